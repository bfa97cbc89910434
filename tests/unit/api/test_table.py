"""THE TABLE: every request once, as ApiVersions advertises it."""

from typing import cast

import pytest

from leadline.api import TABLE, api_versions, by_key
from leadline.api.authorization import AUTHORIZATION
from leadline.api.context import ClientConnection, Context, Services
from leadline.wire.apis import API_VERSIONS, APIS
from leadline.wire.codec import decode, to_bytes
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse

CONTEXT = Context(cast(Services, None), 3, None, ClientConnection("", ""), AUTHORIZATION[18])


def test_a_request_that_is_listed_twice_is_refused() -> None:
    first, *others = TABLE.values()
    with pytest.raises(ValueError, match="Produce and Produce both have api key 0"):
        by_key(first, *others, first)


def test_each_entry_is_found_under_its_own_key() -> None:
    assert all(key == entry.key for key, entry in TABLE.items())
    assert len({entry.name for entry in TABLE.values()}) == len(TABLE)


def test_all_requests_are_advertised_with_their_versions() -> None:
    request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
    response = api_versions(request, CONTEXT)
    advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    versions = {key: (api.versions[0], api.versions[-1]) for key, api in APIS.items()}
    assert advertised == versions
    assert (advertised[0], advertised[1], advertised[18]) == ((0, 11), (0, 16), (0, 3))
    assert decode(ApiVersionsResponse, to_bytes(response, 3), 3) == response
    assert ApiVersionsRequest.API_KEY == API_VERSIONS


@pytest.mark.parametrize("name", ["", "-a", "a b"])
def test_a_client_with_an_invalid_name_is_refused(name: str) -> None:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    assert api_versions(request, CONTEXT).error_code == 42


def test_the_fast_paths_belong_to_their_entries() -> None:
    assert {entry.name for entry in TABLE.values() if entry.fast is not None} == {"Produce", "Fetch", "OffsetCommit"}
    assert [entry.name for entry in TABLE.values() if entry.pipelined] == ["Produce"]
