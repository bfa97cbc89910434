"""Below protocol 3.7 a broker joins only brokers that serve what it sends."""

import asyncio
from collections.abc import Mapping

import pytest

from leadline.api import TABLE
from leadline.broker.peer_versions import SENT_VERSIONS, refuse_older_brokers
from leadline.cluster.broker_client import PeerLost
from leadline.config.values import InvalidSetting
from leadline.controller.state import RegisteredBroker
from leadline.coordination import znodes
from leadline.coordination.registration import RegisteredEndpoint, Registration, encode_registration
from leadline.model import BrokerId
from leadline.wire.messages import ApiVersionsResponse
from tests.support.memory_tree import CountingTree

ME, OTHER = 1, 2
FETCH = 1
SERVED = {key: entry.versions for key, entry in TABLE.items()}
OLDER = SERVED | {FETCH: range(14)}


class ScriptedPeer:
    """None: it cannot be reached."""

    def __init__(self, served: Mapping[int, range] | None) -> None:
        self._served, self.is_closed = served, False

    async def ask(self, *_: object) -> ApiVersionsResponse:
        if self._served is None:
            raise PeerLost("it does not listen")
        kind = ApiVersionsResponse.ApiVersion
        return ApiVersionsResponse(
            api_keys=[
                kind(api_key=key, min_version=versions[0], max_version=versions[-1])
                for key, versions in self._served.items()
            ]
        )

    def close(self) -> None:
        self.is_closed = True


def join(protocol: str, peers: Mapping[BrokerId, ScriptedPeer]) -> None:
    async def main() -> None:
        tree = CountingTree()
        for id in (ME, *peers):
            endpoint = RegisteredEndpoint("PLAINTEXT", "localhost", 9092, "PLAINTEXT")
            data = encode_registration(Registration((endpoint,), 0))
            await tree.create(znodes.broker_path(id), data, make_parents=True)

        def connect(broker: RegisteredBroker) -> ScriptedPeer:
            return peers[broker.id]

        await refuse_older_brokers(tree, ME, protocol, connect)  # type: ignore[arg-type]

    asyncio.run(main())


def test_all_that_is_sent_is_served_by_our_own_brokers() -> None:
    assert all(version in SERVED[key] for key, version in SENT_VERSIONS.items())


@pytest.mark.parametrize("protocol", ["2.8", "3.6-IV2", "3.7-IV0"])
def test_an_older_broker_is_refused_with_its_id_and_the_request(protocol: str) -> None:
    peer = ScriptedPeer(OLDER)
    wrong = f"protocol.version={protocol}: broker {OTHER} serves versions 0 to 13 of Fetch; .* 3.7 or 3.8 first"
    with pytest.raises(InvalidSetting, match=wrong):
        join(protocol, {OTHER: peer})
    assert peer.is_closed


def test_brokers_that_serve_all_and_those_that_cannot_be_asked_are_joined(caplog: pytest.LogCaptureFixture) -> None:
    peers = {OTHER: ScriptedPeer(SERVED), 3: ScriptedPeer(None)}
    join("2.8", peers)
    assert all(peer.is_closed for peer in peers.values())
    assert "which requests broker 3 serves is not known: it does not listen" in caplog.text


def test_with_protocol_3_7_nobody_is_asked() -> None:
    peer = ScriptedPeer(OLDER)
    join("3.7", {OTHER: peer})
    assert not peer.is_closed
