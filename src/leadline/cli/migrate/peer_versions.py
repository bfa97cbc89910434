"""The versions of the requests that Leadline's brokers send to the other brokers of a cluster, by key.

They are fixed: the brokers of a cluster have one version of the inter-broker protocol.
"""

from leadline.api.verification import REQUEST_VERSION as ADD_PARTITIONS_TO_TXN
from leadline.broker.presence import SHUTDOWN_VERSION
from leadline.controller.broker_channel import VERSIONS
from leadline.controller.leadership import METADATA_VERSION
from leadline.coordinator.marker_channel import REQUEST_VERSION as WRITE_TXN_MARKERS
from leadline.replication.alterations import BY_ID
from leadline.replication.fetcher import FETCH_BY_ID, LIST_OFFSETS
from leadline.wire.apis import APIS

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
SENT_VERSIONS = {api.key: _BY_NAME[api.name] for api in APIS.values() if api.name in _BY_NAME}
