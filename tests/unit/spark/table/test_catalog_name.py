"""Names of tables in catalogs, as a person types them."""

import pytest

from leadline.spark.table.catalog_name import CatalogName
from leadline.spark.table.table import TableError


@pytest.mark.parametrize(
    ("text", "namespace", "name"),
    [
        ("prod:sales.orders", ("sales",), "orders"),
        ("prod:sales.eu-west.orders", ("sales", "eu-west"), "orders"),
        ("prod:`sales.eu`.`orders 2026`", ("sales.eu",), "orders 2026"),
        ("prod:sales.`a``b/c:d`", ("sales",), "a`b/c:d"),
    ],
)
def test_a_name_is_read_and_written_back(text: str, namespace: tuple[str, ...], name: str) -> None:
    parsed = CatalogName.of(text)
    assert parsed == CatalogName("prod", namespace, name)
    assert str(parsed) == text


@pytest.mark.parametrize("text", ["orders", "/data/orders", "data/prod:x", "s3://bucket/a.b", "file:/data/a.b", "C"])
def test_a_path_is_no_name(text: str) -> None:
    assert CatalogName.of(text) is None


@pytest.mark.parametrize("text", ["prod:orders", "prod:", "prod:a..b", "prod:a.`b", "prod:a.b:c"])
def test_half_a_name_is_refused(text: str) -> None:
    with pytest.raises(TableError, match=r"is not the name of a table: expected CATALOG:NAMESPACE\.NAME"):
        CatalogName.of(text)


def test_a_suffix_goes_into_the_quotes() -> None:
    name = CatalogName.of("prod:sales.`orders 2026`")
    assert name is not None
    assert str(name.with_suffix("_dead_letters")) == "prod:sales.`orders 2026_dead_letters`"
