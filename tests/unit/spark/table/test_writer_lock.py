"""The lock that one writer of a table holds on a machine."""

import os
from pathlib import Path

import pytest

from leadline.spark.table.table import WriterRefused
from leadline.spark.table.writer_lock import WriterLock


def test_the_lock_of_a_table_has_one_owner_and_says_who(tmp_path: Path) -> None:
    with WriterLock(tmp_path, "orders"), pytest.raises(WriterRefused, match=f"process {os.getpid()} on"):
        WriterLock(tmp_path, "orders").__enter__()
    with WriterLock(tmp_path, "orders"):
        pass


def test_a_table_outside_of_the_file_system_needs_no_lock() -> None:
    with WriterLock(None, "s3://bucket/orders"), WriterLock(None, "s3://bucket/orders"):
        pass
