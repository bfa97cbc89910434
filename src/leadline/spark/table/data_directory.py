"""The directory of a table's files, as the driver and the tasks reach it: a local path, or a URI of an object store.

    s3, s3a, s3n            Amazon S3, and servers with its interface
    gs, gcs                 Google Cloud Storage
    abfs, abfss, wasb(s)    Azure Data Lake Storage

Options have the names of Iceberg's FileIO in Python, for both table formats. What they do not set comes from the
environment, as the libraries of these stores read it (AWS_ACCESS_KEY_ID, GOOGLE_APPLICATION_CREDENTIALS, ...).
A commit names no file that a reader does not find: `check_files` compares the files of a commit with the directory.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.fs as fs

from leadline.config.settings import nearest
from leadline.spark.table.table import DataFile, TableError

S3, GCS, AZURE = ("s3", "s3a", "s3n"), ("gs", "gcs"), ("abfs", "abfss", "wasb", "wasbs")

# Of each option: its name for `deltalake` (empty: it takes this one from the environment only), and for `pyarrow`.
S3_OPTIONS = {
    "s3.endpoint": ("AWS_ENDPOINT_URL", "endpoint_override"),
    "s3.access-key-id": ("AWS_ACCESS_KEY_ID", "access_key"),
    "s3.secret-access-key": ("AWS_SECRET_ACCESS_KEY", "secret_key"),
    "s3.session-token": ("AWS_SESSION_TOKEN", "session_token"),
    "s3.region": ("AWS_REGION", "region"),
    "s3.anonymous": ("AWS_SKIP_SIGNATURE", "anonymous"),
    "s3.force-virtual-addressing": ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "force_virtual_addressing"),
}
GCS_OPTIONS = {
    "gcs.project-id": ("", "project_id"),
    "gcs.service.host": ("", "endpoint_override"),
    "gcs.anonymous": ("GOOGLE_SKIP_SIGNATURE", "anonymous"),
}
AZURE_OPTIONS = {
    "adls.account-name": ("AZURE_STORAGE_ACCOUNT_NAME", "account_name"),
    "adls.account-key": ("AZURE_STORAGE_ACCOUNT_KEY", "account_key"),
    "adls.sas-token": ("AZURE_STORAGE_SAS_TOKEN", "sas_token"),
    "adls.tenant-id": ("AZURE_STORAGE_TENANT_ID", "tenant_id"),
    "adls.client-id": ("AZURE_STORAGE_CLIENT_ID", "client_id"),
    "adls.client-secret": ("AZURE_STORAGE_CLIENT_SECRET", "client_secret"),
}
OPTIONS = {**S3_OPTIONS, **GCS_OPTIONS, **AZURE_OPTIONS}
FLAGS = ("anonymous", "force_virtual_addressing")


@dataclass(frozen=True, slots=True)
class DataDirectory:
    uri: str  # or a path
    options: Mapping[str, str] = field(default_factory=dict, repr=False)  # they may hold secrets

    def child(self, name: str) -> "DataDirectory":
        return replace(self, uri=f"{self.uri}/{name}")

    def uri_of(self, path: str) -> str:
        """The URI of a file within it."""
        base = self.uri if scheme_of(self.uri) else f"file://{self.uri}"
        return f"{base}/{path}"

    def open(self) -> tuple[fs.FileSystem, str]:
        """The file system, and the path within it."""
        scheme, place = scheme_of(self.uri), urlsplit(self.uri, allow_fragments=False)
        try:
            if scheme in S3:
                return fs.S3FileSystem(**_s3_arguments(self.options)), f"{place.netloc}{place.path}"
            if scheme in GCS:
                return fs.GcsFileSystem(**_arguments(GCS_OPTIONS, self.options)), f"{place.netloc}{place.path}"
            if scheme in AZURE:
                container, _, host = place.netloc.rpartition("@")
                account = {"account_name": host.partition(".")[0]} if container else {}
                arguments = {**account, **_arguments(AZURE_OPTIONS, self.options)}
                return fs.AzureFileSystem(**arguments), f"{container or host}{place.path}"
            if scheme == "file":
                return fs.LocalFileSystem(), place.path  # as it is: Iceberg's locations have no escapes
            if scheme:
                filesystem, path = fs.FileSystem.from_uri(self.uri)
                return filesystem, path
        except (ValueError, TypeError, OSError, pa.ArrowException) as error:
            raise TableError(f"{self.uri} cannot be opened: {error}") from None
        return fs.LocalFileSystem(), str(Path(self.uri).absolute())


def make_directory(filesystem: fs.FileSystem, path: str) -> None:
    """Object stores have no directories: to make one would leave an object that is not a file of the table."""
    if not isinstance(filesystem, fs.S3FileSystem | fs.GcsFileSystem | fs.AzureFileSystem):
        filesystem.create_dir(path, recursive=True)


def scheme_of(uri: str) -> str:
    """Empty: a local path."""
    scheme, separator, _ = uri.partition("://")
    if separator:
        return scheme.lower()
    return "file" if uri.startswith("file:/") else ""


def local_path(uri: str) -> Path | None:
    """The place that a person names. None: it is in an object store, or on another machine."""
    scheme = scheme_of(uri)
    if scheme == "file":
        return Path(unquote(urlsplit(uri).path))
    return None if scheme else Path(uri)


def _arguments(names: Mapping[str, tuple[str, str]], options: Mapping[str, str]) -> dict[str, object]:
    arguments = {names[name][1]: value for name, value in options.items() if name in names}
    return {name: value.lower() == "true" if name in FLAGS else value for name, value in arguments.items()}


def _s3_arguments(options: Mapping[str, str]) -> dict[str, object]:
    arguments = _arguments(S3_OPTIONS, options)
    endpoint = arguments.get("endpoint_override")
    if isinstance(endpoint, str) and "://" in endpoint:
        arguments["scheme"], _, arguments["endpoint_override"] = endpoint.partition("://")
    return arguments


def delta_options(options: Mapping[str, str]) -> dict[str, str]:
    """The options for `deltalake`. TableError if there is no such option."""
    for name in options:
        if name not in OPTIONS:
            raise TableError(f"there is no option {name} for a Delta table{nearest(name, OPTIONS)}")
    named = {OPTIONS[name][0]: value for name, value in options.items() if OPTIONS[name][0]}
    if options.get("s3.endpoint", "").startswith("http://"):
        named["AWS_ALLOW_HTTP"] = "true"
    return named


def check_files(directory: DataDirectory, files: Sequence[DataFile]) -> None:
    """TableError unless all files are where a reader looks for them, with their sizes."""
    if not files:
        return
    filesystem, root = directory.open()
    infos = filesystem.get_file_info([f"{root}/{file.path}" for file in files])
    absent = [file for file, info in zip(files, infos, strict=True) if not info.is_file]
    if absent:
        raise TableError(
            f"{len(absent)} of {len(files)} files are not in {directory.uri}, such as {absent[0].path}: a task wrote "
            "them to a disk that this process does not see. The driver and all executors must share the directory of "
            "the table; nothing was committed"
        )
    for file, info in zip(files, infos, strict=True):
        if info.size != file.size:
            raise TableError(
                f"{directory.uri}/{file.path} has {info.size} bytes, and its task wrote {file.size}; nothing was "
                "committed"
            )
