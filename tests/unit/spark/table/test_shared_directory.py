"""What tasks on executors find in the directory of a table, held against what the driver sees."""

import pytest

from leadline.spark.table.shared_directory import Probe, check_probes
from leadline.spark.table.table import TableError


def test_a_directory_that_all_share_is_accepted() -> None:
    check_probes(
        "/data/orders", [Probe("a", True, "task-0"), Probe("b", True, "task-1")], ["driver", "task-0", "task-1"]
    )


@pytest.mark.parametrize(
    ("probe", "message"),
    [
        (Probe("b", False, "task-1"), "/data/orders is not shared: an executor on b has another disk there"),
        (Probe("b", True, "task-9"), "/data/orders is not shared: an executor on b has another disk there"),
        (Probe("b", False, "task-1", "Permission denied"), "an executor on b cannot write there: Permission denied"),
    ],
)
def test_an_executor_with_another_disk_is_named(probe: Probe, message: str) -> None:
    with pytest.raises(TableError, match=message):
        check_probes("/data/orders", [Probe("a", True, "task-0"), probe], ["driver", "task-0", "task-1"])
