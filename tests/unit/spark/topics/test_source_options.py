"""Options as Spark passes them."""

import pytest

from leadline.security.client_properties import NAMES as SECURITY_NAMES
from leadline.spark.topics.source_options import ACCESS, BadOption, SourceOptions, number

NAMES = ["startingOffsets", "includeHeaders", "minPartitions"]


def options(**values: str) -> SourceOptions:
    return SourceOptions({name.replace("_", "."): value for name, value in values.items()}, NAMES, ["group.id"])


def test_options_are_found_in_any_case() -> None:
    source = options(STARTINGoffsets="earliest", kafka_group_id="g")
    assert source.has("startingOffsets")
    assert source.text("startingoffsets") == "earliest"
    assert not source.has("includeHeaders")


def test_properties_of_the_client_lose_their_prefix() -> None:
    assert SourceOptions({"kafka.group.id": "g", "kafka.linger.ms": "5"}, NAMES, ["group.id"]).client == {
        "group.id": "g",
        "linger.ms": "5",
    }


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("includeheader", "there is no option includeheader .did you mean includeheaders"),
        ("kafka.group.ids", r"there is no option kafka.group.ids.*kafka\.group\.id"),
        ("kafka.key.serializer", "kafka.key.serializer cannot be used: keys are bytes or strings"),
    ],
)
def test_a_name_that_is_unknown_or_cannot_be_used_is_refused(name: str, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        SourceOptions({name: "1"}, NAMES, ["group.id"])


@pytest.mark.parametrize("text", ["yes", "1", ""])
def test_a_flag_is_true_or_false(text: str) -> None:
    assert options(includeHeaders=" TRUE ").flag("includeHeaders", False)
    with pytest.raises(BadOption, match="expected true or false"):
        options(includeHeaders=text).flag("includeHeaders", False)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "9" * 19])
def test_a_count_is_a_whole_number_from_its_least_on(text: str) -> None:
    assert (options(minPartitions=" 3 ").count("minPartitions"), options().count("minPartitions")) == (3, None)
    with pytest.raises(BadOption, match="expected a number from 1 on"):
        number("minPartitions", text, 1)


def test_every_security_property_of_kafkas_clients_is_an_option() -> None:
    options = {f"kafka.{name}": "x" for name in SECURITY_NAMES}
    assert SourceOptions(options, [], ACCESS).client == dict.fromkeys(SECURITY_NAMES, "x")
