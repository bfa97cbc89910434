"""The options of pipeline jobs about a table: where it is, what its columns are like, and how its topic is read."""

import argparse
import re
from pathlib import Path
from typing import TYPE_CHECKING

from leadline.admin.errors import Failure
from leadline.admin.times import duration_ms
from leadline.cli.options import at_least, key_value
from leadline.cli.pipeline.job import client_properties

if TYPE_CHECKING:
    import pyarrow as pa

    from leadline.spark.table.quality import Quality
    from leadline.spark.table.table_format import TablePlace
    from leadline.spark.table.table_writer import TableSpec

MODES = ("append", "upsert", "scd2")
ON_VIOLATION = ("dead-letter", "refuse", "mark")
HISTORY_COLUMNS = "valid_from,valid_to,is_current"
FORMATS = ("raw", "json", "avro", "protobuf", "debezium", "debezium-avro")
SAFE_HOURS = 24  # uncommitted files of a running writer are younger
NEED_REGISTRY = ("avro", "protobuf", "debezium-avro")
_COLUMN = re.compile(r"[A-Za-z]\w*")
SUBJECT = "subject:"  # in front of the name of a subject of the registry


def add_registry_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--registry", default="", metavar="URL|DIR", help="schema registry for avro and protobuf: a URL or a directory"
    )
    parser.add_argument(
        "--registry-option",
        type=key_value,
        action="append",
        default=[],
        metavar="KEY=FILE",
        help="access to the registry: token-file (a bearer token), ca, cert, key (TLS, as PEM); repeatable. A user and "
        "password are part of the URL",
    )


def registry_of(options: argparse.Namespace) -> str:
    if not options.registry_option:
        return str(options.registry)
    from leadline.spark.table.registry import NoSchema, with_access

    try:
        return with_access(options.registry, dict(options.registry_option))
    except NoSchema as error:
        raise Failure(str(error)) from None


def add_column_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--column",
        type=key_value,
        action="append",
        default=[],
        metavar="NAME=TYPE",
        help="type of a column, such as price=decimal(18,2); repeatable",
    )
    parser.add_argument(
        "--schema",
        default="",
        metavar="FILE|subject:NAME",
        help="types of columns: a file with lines NAME=TYPE, an Avro schema (.avsc), or the newest schema of a subject "
        "of --registry",
    )


def add_quality_options(parser: argparse._ActionsContainer) -> None:
    parser.add_argument(
        "--rule",
        action="append",
        default=[],
        metavar="RULE",
        help="what rows must be like, such as 'price: range 0..10000'; repeatable",
    )
    parser.add_argument(
        "--on-violation",
        choices=ON_VIOLATION,
        default=ON_VIOLATION[0],
        help="what becomes of a row that breaks a rule (default dead-letter)",
    )
    parser.add_argument(
        "--mask",
        type=key_value,
        action="append",
        default=[],
        metavar="COLUMN=KIND",
        help="hide a column: hash, last4, redact or null, such as email=hash; repeatable",
    )
    parser.add_argument(
        "--mask-key-file", default="", metavar="FILE", help="file with the key of hashes, of 16 bytes or more"
    )


def quality_of(options: argparse.Namespace) -> "Quality":
    from leadline.spark.table.quality import Quality

    key = b""
    if options.mask_key_file:
        try:
            key = Path(options.mask_key_file).read_bytes().rstrip(b"\r\n")
        except OSError as error:
            raise Failure(f"--mask-key-file {options.mask_key_file}: {error.strerror}") from None
    return Quality(tuple(options.rule), options.on_violation, tuple(options.mask), key)


def add_table_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "table", metavar="TABLE", help="directory or URL of the table; for Iceberg also CATALOG:NAMESPACE.NAME"
    )
    parser.add_argument("--table-format", choices=["delta", "iceberg"], default="delta")
    add_store_options(parser)


def add_store_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--table-option",
        type=key_value,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="one option of the object store or catalog, such as s3.endpoint=URL; repeatable",
    )


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    table = parser.add_argument_group("the table")
    table.add_argument("--format", choices=FORMATS, default="raw", help="format of the values (default raw)")
    table.add_argument(
        "--mode",
        choices=MODES,
        default="append",
        help="one row per record, one row per key, or one row per version of a key (default append)",
    )
    table.add_argument(
        "--history-columns",
        type=history_columns,
        default=HISTORY_COLUMNS,
        metavar="FROM,TO,CURRENT",
        help=f"names of the columns of --mode scd2 (default {HISTORY_COLUMNS})",
    )
    table.add_argument(
        "--partition-by",
        choices=["day", "hour", "none"],
        default="none",
        help="partition the table by the time of records (default none)",
    )
    add_registry_options(table)
    add_column_options(table)
    add_quality_options(table)
    reading = parser.add_argument_group("how to read")
    reading.add_argument("--once", action="store_true", help="process what is available, then exit")
    reading.add_argument(
        "--interval",
        type=duration_ms,
        default=2000,
        metavar="TIME",
        help="time between two commits, unless the table is behind (default 2s)",
    )
    reading.add_argument(
        "--batch-bytes", type=at_least(1), default=512 << 20, metavar="N", help="maximum bytes per commit"
    )
    reading.add_argument("--isolation", choices=["read_committed", "read_uncommitted"], default="read_committed")
    reading.add_argument(
        "--allow-data-loss", action="store_true", help="continue if records were deleted before they were read"
    )
    reading.add_argument(
        "--group", metavar="G", help="group that offsets are committed to, for lag tools (default table-NAME)"
    )


def place_of(options: argparse.Namespace) -> "TablePlace":
    from leadline.spark.table.table_format import TablePlace

    return TablePlace(options.table_format, options.table.rstrip("/"), dict(options.table_option))


def history_columns(text: str) -> str:
    """Three names, with commas between them."""
    names = text.split(",")
    if len(names) != 3 or len({name.lower() for name in names}) != 3 or not all(map(_COLUMN.fullmatch, names)):
        raise argparse.ArgumentTypeError(f"{text!r} is not three names, as in {HISTORY_COLUMNS}")
    return text


def spec_of(options: argparse.Namespace) -> "TableSpec":
    from leadline.spark.table.table import HistoryColumns
    from leadline.spark.table.table_writer import TableSpec

    name = re.sub(r"[^\w.-]", "-", options.table.rstrip("/").rpartition("/")[2].rpartition(":")[2].replace("`", ""))
    return TableSpec(
        options.topic,
        client_properties(options),
        options.format,
        options.mode,
        options.partition_by,
        registry_of(options),
        options.isolation == "read_committed",
        not options.allow_data_loss,
        options.batch_bytes,
        declared_columns(options),
        f"table-{name}" if options.group is None else options.group,
        HistoryColumns(*options.history_columns.split(",")),
        quality_of(options),
    )


def declared_columns(options: argparse.Namespace) -> "dict[str, pa.DataType]":
    """The types of --schema, and then of --column."""
    from leadline.spark.table.declared_columns import column_types, registered_schema, schema_file

    columns = {}
    if options.schema.startswith(SUBJECT):
        if not options.registry:
            raise Failure(f"--schema {options.schema} needs --registry")
        columns = registered_schema(registry_of(options), options.schema.removeprefix(SUBJECT))
    elif options.schema:
        columns = schema_file(Path(options.schema))
    return columns | column_types(dict(options.column))


def local_directory(options: argparse.Namespace) -> Path | None:
    from leadline.spark.table.catalog_name import CatalogName
    from leadline.spark.table.data_directory import local_path

    if options.table_format == "iceberg" and CatalogName.of(options.table) is not None:
        return None
    return local_path(options.table)
