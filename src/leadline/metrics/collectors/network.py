"""Connections, fetch sessions, and how busy the loop is.

One loop does what Kafka's network threads and request handlers do. Their idle percentages are the share of the last
minutes in which the loop waited.
"""

from leadline.coordination.tree import SessionState
from leadline.metrics.families import Collected, FamilySet, labels_text, one
from leadline.metrics.sources import MetricsSources

FAMILIES = FamilySet("Network and event loop")
_LISTENER = ("listener", "networkProcessor")
NETWORK_IDLE = FAMILIES.gauge(
    "kafka_network_socketserver_networkprocessoravgidle_percent", "Share of time in which the loop is idle, 0 to 1"
)
NETWORK_IDLE_VALUE = FAMILIES.gauge(
    "kafka_network_socketserver_networkprocessoravgidlepercent", "The same, as the rules of jmx_exporter name it"
)
PROCESSOR_IDLE = FAMILIES.gauge(
    "kafka_network_processor_idlepercent", "The same, as that of Kafka's first network thread", "networkProcessor"
)
HANDLER_IDLE = FAMILIES.gauge(
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
    "The same, as that of request handlers",
)
BUSY = FAMILIES.counter("leadline_loop_busy_seconds_total", "Time that the turns of the event loop took")
TURNS = FAMILIES.counter("leadline_loop_turns_total", "Turns of the event loop")
LONGEST_TURN = FAMILIES.gauge(
    "leadline_loop_longest_turn_seconds",
    "The longest turn of the last one to two minutes: other requests waited this long",
)
QUEUE = FAMILIES.gauge(
    "kafka_network_requestchannel_requestqueuesize", "Steps of large requests and responses that wait for their turn"
)
_SERVER = "kafka_server_socket_server_metrics"
CONNECTIONS = FAMILIES.gauge(f"{_SERVER}_connection_count", "Connections", *_LISTENER)
OPENED = FAMILIES.counter(f"{_SERVER}_connection_creation_total", "Connections that were accepted", *_LISTENER)
CLOSED = FAMILIES.counter(f"{_SERVER}_connection_close_total", "Connections that ended", *_LISTENER)
LOGINS = FAMILIES.counter(f"{_SERVER}_successful_authentication_total", "Logins that succeeded", *_LISTENER)
FAILED_LOGINS = FAMILIES.counter(f"{_SERVER}_failed_authentication_total", "Logins that failed", *_LISTENER)
EXPIRED = FAMILIES.gauge(
    "kafka_network_socketserver_expiredconnectionskilledcount", "Connections that were closed because they were idle"
)
_CACHE = "kafka_server_fetchsessioncache"
SESSIONS = FAMILIES.gauge(f"{_CACHE}_numincrementalfetchsessions", "Fetch sessions")
SESSION_PARTITIONS = FAMILIES.gauge(f"{_CACHE}_numincrementalfetchpartitionscached", "Partitions in fetch sessions")
EVICTIONS = FAMILIES.counter(
    f"{_CACHE}_incrementalfetchsessionevictions_total", "Fetch sessions that gave way to others"
)
_LISTENER_OF_ZOOKEEPER = "kafka_server_sessionexpirelistener_zookeeper"
ZOOKEEPER = {
    SessionState.CONNECTED: FAMILIES.counter(
        f"{_LISTENER_OF_ZOOKEEPER}syncconnects_total", "Connections to ZooKeeper after the first one"
    ),
    SessionState.SUSPENDED: FAMILIES.counter(
        f"{_LISTENER_OF_ZOOKEEPER}disconnects_total", "Connections to ZooKeeper that were lost"
    ),
    SessionState.EXPIRED: FAMILIES.counter(
        f"{_LISTENER_OF_ZOOKEEPER}expires_total", "Sessions with ZooKeeper that expired"
    ),
}
_FIRST = "0"  # the number of the only loop


def collect(sources: MetricsSources) -> Collected:
    broker, loop, idleness = sources.broker, sources.loop, sources.idleness
    if loop is not None and idleness is not None:
        idle = idleness.idle_share(broker.clock.monotonic_s(), loop.busy_s)
        yield one(NETWORK_IDLE, idle)
        yield one(NETWORK_IDLE_VALUE, idle)
        yield one(PROCESSOR_IDLE, idle, networkProcessor=_FIRST)
        yield one(HANDLER_IDLE, idle)
        yield one(BUSY, loop.busy_s)
        yield one(TURNS, loop.turns)
        yield one(LONGEST_TURN, loop.recent_longest_turn_s)
    net = broker.net
    yield one(QUEUE, len(net.scheduler))
    listeners = {name: labels_text(listener=name, networkProcessor=_FIRST) for name in broker.addresses}
    yield CONNECTIONS, [(labels, net.connection_count(name)) for name, labels in listeners.items()]
    opened = net.opened_connections
    yield OPENED, [(labels, opened[name]) for name, labels in listeners.items()]
    yield CLOSED, [(labels, opened[name] - net.connection_count(name)) for name, labels in listeners.items()]
    yield LOGINS, [(labels, net.logins.successful[name]) for name, labels in listeners.items()]
    yield FAILED_LOGINS, [(labels, net.logins.failed[name]) for name, labels in listeners.items()]
    yield one(EXPIRED, net.expired_connections)
    sessions = broker.services.sessions
    yield one(SESSIONS, len(sessions.by_id))
    yield one(SESSION_PARTITIONS, sessions.position_count())
    yield one(EVICTIONS, sessions.evictions)
    if not broker.is_alone:
        for state, family in ZOOKEEPER.items():
            yield one(family, broker.session_events[state])
