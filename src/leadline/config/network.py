"""The settings of a broker's listeners, sockets and requests.

Pure: a table.
"""

from dataclasses import dataclass

from leadline.config.checks import at_least, one_of
from leadline.config.settings import Importance, Mode, Settings, setting
from leadline.config.values import INT_MAX, ConfigType

INT, LONG, STRING = ConfigType.INT, ConfigType.LONG, ConfigType.STRING
HIGH, LOW = Importance.HIGH, Importance.LOW
PER_BROKER, CLUSTER_WIDE = Mode.PER_BROKER, Mode.CLUSTER_WIDE
PROTOCOLS = "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT"


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class NetworkConfig(Settings):
    """Settings of listeners, connections and requests."""

    __slots__ = ()

    listeners: str = setting(
        "PLAINTEXT://:9092",
        STRING,
        "the addresses to listen on, each as NAME://host:port",
        importance=HIGH,
        mode=PER_BROKER,
    )
    advertised_listeners: str | None = setting(
        None, STRING, "addresses that clients connect to; not set: those of listeners", importance=HIGH, mode=PER_BROKER
    )
    listener_security_protocol_map: str = setting(
        PROTOCOLS, STRING, "the protocol of each listener, as NAME:PROTOCOL", importance=LOW, mode=PER_BROKER
    )
    inter_broker_listener_name: str | None = setting(
        None, STRING, "listener for other brokers; not set: the one named after security.inter.broker.protocol"
    )
    security_inter_broker_protocol: str = setting(
        "PLAINTEXT",
        STRING,
        "the protocol between brokers, if inter.broker.listener.name is not set",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )
    control_plane_listener_name: str | None = setting(
        None, STRING, "listener for requests between the controller and brokers alone", importance=HIGH
    )
    sasl_mechanism_inter_broker_protocol: str = setting(
        "GSSAPI", STRING, "the mechanism by which brokers log in to each other", mode=PER_BROKER
    )

    socket_send_buffer_bytes: int = setting(
        102_400, INT, "a socket's send buffer; -1: the system's choice; not set: 307200", importance=HIGH
    )
    socket_receive_buffer_bytes: int = setting(
        102_400, INT, "a socket's receive buffer; -1: the system's choice", importance=HIGH
    )
    socket_request_max_bytes: int = setting(104_857_600, INT, "the largest request", at_least(1), importance=HIGH)
    socket_listen_backlog_size: int = setting(
        50, INT, "connections that may wait to be accepted; not set: net.core.somaxconn", at_least(1)
    )
    queued_max_request_bytes: int = setting(-1, LONG, "bytes of requests in memory at a time; -1: no limit")
    max_connections: int = setting(INT_MAX, INT, "maximum connections at a time", at_least(0), mode=CLUSTER_WIDE)
    max_connections_per_ip: int = setting(
        INT_MAX, INT, "maximum connections at a time from one address", at_least(0), mode=CLUSTER_WIDE
    )
    max_connections_per_ip_overrides: str = setting(
        "", STRING, "other such limits for some addresses, as host:number", mode=CLUSTER_WIDE
    )
    max_connection_creation_rate: int = setting(
        INT_MAX, INT, "maximum new connections per second", at_least(0), mode=CLUSTER_WIDE
    )
    connections_max_idle_ms: int = setting(600_000, LONG, "how long an idle connection stays open")

    request_timeout_ms: int = setting(30_000, INT, "how long an answer from another broker may take", importance=HIGH)
    socket_connection_setup_timeout_ms: int = setting(
        10_000, LONG, "how long a connection to another broker may take to open"
    )
    socket_connection_setup_timeout_max_ms: int = setting(30_000, LONG, "the same after several failed attempts")

    fetch_max_bytes: int = setting(57_671_680, INT, "maximum bytes of one fetch response", at_least(1024))
    max_incremental_fetch_session_cache_slots: int = setting(
        1000, INT, "fetch sessions that are remembered", at_least(0)
    )
