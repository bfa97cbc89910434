"""The versions of requests that another broker serves, from its answer to ApiVersions.

Pure: values in, values out.
"""

from collections.abc import Iterator, Mapping

from leadline.wire.apis import APIS
from leadline.wire.messages import ApiVersionsResponse


def served_versions(answer: ApiVersionsResponse) -> dict[int, range]:
    """By the key of the request."""
    return {api.api_key: range(api.min_version, api.max_version + 1) for api in answer.api_keys}


def not_served(sent: Mapping[int, int], served: Mapping[int, range]) -> Iterator[str]:
    """What a broker does not understand of the requests that Leadline's brokers send in these versions."""
    for key, version in sent.items():
        theirs = served.get(key, range(0))
        if version not in theirs:
            offered = f"versions {theirs[0]} to {theirs[-1]}" if theirs else "no version"
            yield f"serves {offered} of {APIS[key].name}; Leadline's brokers send version {version}"
