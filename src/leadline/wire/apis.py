"""The requests that a 3.8 broker in ZooKeeper mode answers, by api key, with their versions.

THE TABLE of `leadline.api` has the advertised versions.

Which header goes with a version follows from whether that version is flexible, with two exceptions:

                request header                             response header
    flexible    2: client id and tagged fields             1: tagged fields
    not         1: client id                               0
    except      0: without client id, ControlledShutdown   0: ApiVersions in every version, as its reader
                   version 0                                  does not yet know what the broker speaks

A client opens with the newest ApiVersions it knows. If that is too new, the answer is `unsupported_api_versions()` in
version 0, which every client can read. Any other request in a version that is not here ends the connection.
"""

from typing import NamedTuple

from leadline.wire import messages, schema
from leadline.wire.classes import Message, message_class

CONTROLLED_SHUTDOWN = 7
API_VERSIONS = 18
UNSUPPORTED_VERSION = 35


class Api(NamedTuple):
    key: int
    name: str
    versions: range
    flexible: range

    def request_header_version(self, version: int) -> int:
        if version in self.flexible:
            return 2
        return 0 if self.key == CONTROLLED_SHUTDOWN and version == 0 else 1

    def response_header_version(self, version: int) -> int:
        return 1 if version in self.flexible and self.key != API_VERSIONS else 0

    @property
    def request(self) -> type[Message]:
        return message_class(f"{self.name}Request")

    @property
    def response(self) -> type[Message]:
        return message_class(f"{self.name}Response")


APIS = {
    head.api_key: Api(head.api_key, head.name.removesuffix("Request"), head.versions, head.flexible)
    for head in schema.heads().values()
    if head.api_key is not None and head.name.endswith("Request")
}


def unsupported_api_versions() -> "messages.ApiVersionsResponse":
    supported = APIS[API_VERSIONS].versions
    version = messages.ApiVersionsResponse.ApiVersion(
        api_key=API_VERSIONS, min_version=supported[0], max_version=supported[-1]
    )
    return messages.ApiVersionsResponse(error_code=UNSUPPORTED_VERSION, api_keys=[version])
