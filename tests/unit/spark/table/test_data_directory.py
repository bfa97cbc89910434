"""Where the files of a table are, and the options of object stores."""

from pathlib import Path

import pyarrow.fs as fs
import pytest

from leadline.spark.table.data_directory import DataDirectory, delta_options, local_path, scheme_of
from leadline.spark.table.table import TableError

KEYS = {"s3.access-key-id": "me", "s3.secret-access-key": "hush", "s3.region": "us-east-1"}


@pytest.mark.parametrize(
    ("uri", "scheme", "path"),
    [
        ("orders", "", Path("orders")),
        ("/data/a:b", "", Path("/data/a:b")),
        ("file:///data/my%20orders", "file", Path("/data/my orders")),
        ("file:/data/orders", "file", Path("/data/orders")),
        ("S3A://bucket/orders", "s3a", None),
        ("abfss://container@account.dfs.core.windows.net/orders", "abfss", None),
    ],
)
def test_a_place_is_local_or_in_an_object_store(uri: str, scheme: str, path: Path | None) -> None:
    assert (scheme_of(uri), local_path(uri)) == (scheme, path)


def test_a_path_is_made_absolute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    filesystem, root = DataDirectory("orders").child("data").open()
    assert isinstance(filesystem, fs.LocalFileSystem)
    assert root == str(tmp_path / "orders" / "data")


@pytest.mark.parametrize("scheme", ["s3", "s3a", "s3n"])
def test_s3_goes_by_three_names(scheme: str) -> None:
    filesystem, root = DataDirectory(f"{scheme}://bucket/orders", KEYS).open()
    assert isinstance(filesystem, fs.S3FileSystem)
    assert (root, filesystem.region) == ("bucket/orders", "us-east-1")


def test_an_azure_container_is_named_before_its_account() -> None:
    uri = "abfss://lake@shop.dfs.core.windows.net/orders"
    filesystem, root = DataDirectory(uri, {"adls.account-key": "aHVzaA=="}).open()
    assert isinstance(filesystem, fs.AzureFileSystem)
    assert root == "lake/orders"


def test_a_google_bucket_is_opened() -> None:
    filesystem, root = DataDirectory("gs://bucket/orders", {"gcs.anonymous": "true"}).open()
    assert isinstance(filesystem, fs.GcsFileSystem)
    assert root == "bucket/orders"


def test_delta_gets_the_options_under_its_own_names() -> None:
    assert delta_options({**KEYS, "s3.endpoint": "http://localhost:9000"}) == {
        "AWS_ACCESS_KEY_ID": "me",
        "AWS_SECRET_ACCESS_KEY": "hush",
        "AWS_REGION": "us-east-1",
        "AWS_ENDPOINT_URL": "http://localhost:9000",
        "AWS_ALLOW_HTTP": "true",
    }


def test_an_unknown_option_is_refused_with_the_nearest_one() -> None:
    with pytest.raises(TableError, match=r"there is no option s3.access-key .*s3.access-key-id"):
        delta_options({"s3.access-key": "me"})


def test_secrets_are_not_shown() -> None:
    assert "hush" not in repr(DataDirectory("s3://bucket/orders", KEYS))
