"""One order for the numbers of a fetch position: the one of the Fetch request."""

from leadline.wire.fetch_position import FetchPosition
from leadline.wire.messages import FetchRequest


def test_the_fields_stand_in_the_order_of_the_request() -> None:
    names = [field.name for field in FetchRequest.FetchPartition.SPEC.fields][: len(FetchPosition._fields) - 1]
    assert ["topic_id", *(name.removeprefix("partition_") for name in names)] == list(FetchPosition._fields)
