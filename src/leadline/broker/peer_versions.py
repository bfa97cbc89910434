"""The versions of the requests that Leadline's brokers send to the other brokers of a cluster.

They are fixed, and brokers of Apache Kafka 3.7 and 3.8 serve them, whatever their inter.broker.protocol.version. Where
that setting is below 3.7, older brokers may be there. Before a broker joins them, it asks which versions they serve.
"""

import asyncio
import logging
from collections.abc import Callable

from leadline.api.verification import REQUEST_VERSION as ADD_PARTITIONS_TO_TXN
from leadline.broker.presence import SHUTDOWN_VERSION
from leadline.cluster.broker_client import BrokerClient, PeerLost
from leadline.cluster.served_versions import not_served, served_versions
from leadline.config.checks import precedes
from leadline.config.replication import LEAST_PROTOCOL
from leadline.config.values import InvalidSetting
from leadline.controller import tree_reader
from leadline.controller.broker_channel import VERSIONS
from leadline.controller.leadership import METADATA_VERSION
from leadline.controller.state import RegisteredBroker
from leadline.coordination.tree import Tree
from leadline.coordinator.marker_channel import REQUEST_VERSION as WRITE_TXN_MARKERS
from leadline.model import BrokerId
from leadline.replication.alterations import BY_ID
from leadline.replication.fetcher import FETCH_BY_ID, LIST_OFFSETS
from leadline.wire.apis import APIS
from leadline.wire.messages import ApiVersionsRequest, ApiVersionsResponse

log = logging.getLogger(__name__)

ASK_S = 5.0
CURE = "bring all brokers to Apache Kafka 3.7 or 3.8 first"

_BY_NAME = {
    "AddPartitionsToTxn": ADD_PARTITIONS_TO_TXN,
    "AlterPartition": BY_ID,
    "ControlledShutdown": SHUTDOWN_VERSION,
    "Fetch": FETCH_BY_ID,
    "ListOffsets": LIST_OFFSETS,
    "Metadata": METADATA_VERSION,
    "WriteTxnMarkers": WRITE_TXN_MARKERS,
    **{kind.__name__.removesuffix("Request"): version for kind, (_, version) in VERSIONS.items()},
}
SENT_VERSIONS = {api.key: _BY_NAME[api.name] for api in APIS.values() if api.name in _BY_NAME}  # by the request's key

Connect = Callable[[RegisteredBroker], BrokerClient]


async def refuse_older_brokers(tree: Tree, me: BrokerId, protocol: str, connect: Connect) -> None:
    """InvalidSetting if a registered broker does not serve what this one sends. One that cannot be asked is skipped."""
    if not precedes(protocol, LEAST_PROTOCOL):
        return
    others = [broker for broker in await tree_reader.brokers(tree) if broker.id != me]
    await asyncio.gather(*(_refuse_if_older(broker, protocol, connect(broker)) for broker in others))


async def _refuse_if_older(broker: RegisteredBroker, protocol: str, client: BrokerClient) -> None:
    try:
        answer = await client.ask(ApiVersionsRequest(), ApiVersionsResponse, 0, ASK_S)
    except PeerLost as error:
        log.warning("which requests broker %d serves is not known: %s", broker.id, error)
        return
    finally:
        client.close()
    if wrong := next(not_served(SENT_VERSIONS, served_versions(answer)), None):
        raise InvalidSetting(f"inter.broker.protocol.version={protocol}: broker {broker.id} {wrong}; {CURE}")
