"""The options of tables, as the values that jobs get from them."""

import argparse
from pathlib import Path

import pyarrow as pa
import pytest

from leadline.admin.errors import Failure
from leadline.cli.pipeline.table import add_to
from leadline.cli.pipeline.table_options import history_columns, local_directory, spec_of
from leadline.spark.table.table import TableError


def options(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_to(parser.add_subparsers())
    return parser.parse_args(["table", "orders", *arguments])


@pytest.mark.parametrize(
    ("arguments", "group"),
    [
        (("/data/sales/",), "table-sales"),
        (("prod:shop.sales", "--table-format", "iceberg"), "table-shop.sales"),
        (("/data/sales", "--group", "mine"), "mine"),
        (("/data/sales", "--group", ""), ""),
    ],
)
def test_the_group_has_the_name_of_the_table_unless_it_is_set(arguments: tuple[str, ...], group: str) -> None:
    assert spec_of(options(*arguments)).group == group


def test_the_spec_reads_committed_records_and_fails_on_data_loss_by_default() -> None:
    spec = spec_of(options("/data"))
    assert (spec.committed, spec.fail_on_data_loss) == (True, True)
    spec = spec_of(options("/data", "--isolation", "read_uncommitted", "--allow-data-loss"))
    assert (spec.committed, spec.fail_on_data_loss) == (False, False)


def test_columns_are_declared_one_by_one_over_those_of_a_schema(tmp_path: Path) -> None:
    (tmp_path / "orders.schema").write_text("id=int\nprice=double\n")
    (tmp_path / "orders-value.avsc").write_text(
        '{"type": "record", "name": "r", "fields": [{"name": "n", "type": "string"}]}'
    )
    one = ("--column", "price=decimal(18,2)")
    spec = spec_of(options("/data", "--schema", str(tmp_path / "orders.schema"), *one))
    assert dict(spec.columns) == {"id": pa.int32(), "price": pa.decimal128(18, 2)}
    spec = spec_of(options("/data", "--schema", "subject:orders-value", "--registry", str(tmp_path)))
    assert dict(spec.columns) == {"n": pa.string()}
    with pytest.raises(Failure, match="needs --registry"):
        spec_of(options("/data", "--schema", "subject:orders-value"))
    with pytest.raises(TableError, match="the column price=money: there is no type 'money'"):
        spec_of(options("/data", "--column", "price=money"))


@pytest.mark.parametrize(
    ("arguments", "directory"),
    [
        (("data/orders",), Path("data/orders")),
        (("s3://bucket/orders",), None),
        (("prod:shop.orders", "--table-format", "iceberg"), None),
        (("data/orders", "--table-format", "iceberg"), Path("data/orders")),
    ],
)
def test_only_a_table_on_this_machine_has_a_directory_to_lock(
    arguments: tuple[str, ...], directory: Path | None
) -> None:
    assert local_directory(options(*arguments)) == directory


def test_the_columns_of_validity_have_names_that_can_be_chosen() -> None:
    chosen = options("/data/", "--mode", "scd2", "--history-columns", "since,until,now")
    assert spec_of(chosen).history.names == ("since", "until", "now")
    assert spec_of(options("/data/")).history.names == ("valid_from", "valid_to", "is_current")


@pytest.mark.parametrize("text", ["", "a,b", "a,b,B", "a,b,_c", "a,b,c d", "a,b,c,d"])
def test_names_that_are_no_columns_are_refused(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match="is not three names"):
        history_columns(text)


def test_rules_and_masks_are_those_of_the_user(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"0123456789abcdef\n")
    arguments = ("--rule", "id: not null", "--rule", "price: range 0..5", "--on-violation", "mark")
    masks = ("--mask", "email=hash", "--mask", "customer.card=last4", "--mask-key-file", str(tmp_path / "key"))
    quality = spec_of(options("/data", *arguments, *masks)).quality
    assert quality.rules == ("id: not null", "price: range 0..5")
    assert (quality.on_violation, quality.key) == ("mark", b"0123456789abcdef")
    assert quality.masks == (("email", "hash"), ("customer.card", "last4"))
    with pytest.raises(Failure, match=r"--mask-key-file .*: No such file"):
        spec_of(options("/data", "--mask-key-file", str(tmp_path / "absent")))
