"""The settings of TLS and SASL. They may differ from listener to listener.

Pure: a table.
"""

from dataclasses import dataclass

from leadline.config.checks import at_least, one_of
from leadline.config.settings import Importance, Mode, Settings, setting
from leadline.config.values import ConfigType, Password

BOOLEAN, DOUBLE, INT, LIST, LONG, PASSWORD, SHORT, STRING = (
    ConfigType.BOOLEAN,
    ConfigType.DOUBLE,
    ConfigType.INT,
    ConfigType.LIST,
    ConfigType.LONG,
    ConfigType.PASSWORD,
    ConfigType.SHORT,
    ConfigType.STRING,
)
LOW = Importance.LOW
PER_BROKER = Mode.PER_BROKER
JAAS = "sasl.jaas.config"  # counts with a listener and a mechanism before it
CALLBACK_HANDLER = "sasl.server.callback.handler.class"  # likewise
LOGIN_HANDLER = "sasl.login.callback.handler.class"  # likewise
_OAUTHBEARER = "org.apache.kafka.common.security.oauthbearer."
SIGNED_HANDLER = f"{_OAUTHBEARER}OAuthBearerValidatorCallbackHandler"
UNSECURED_HANDLER = f"{_OAUTHBEARER}internals.unsecured.OAuthBearerUnsecuredValidatorCallbackHandler"
CALLBACK_HANDLERS = (
    SIGNED_HANDLER,
    f"{_OAUTHBEARER}secured.OAuthBearerValidatorCallbackHandler",  # its older name
    UNSECURED_HANDLER,
)
UNSECURED_LOGIN_HANDLER = f"{_OAUTHBEARER}internals.unsecured.OAuthBearerUnsecuredLoginCallbackHandler"
LOGIN_HANDLERS = (
    f"{_OAUTHBEARER}OAuthBearerLoginCallbackHandler",
    f"{_OAUTHBEARER}secured.OAuthBearerLoginCallbackHandler",  # its older name
    UNSECURED_LOGIN_HANDLER,
)


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class SecurityConfig(Settings):
    """How listeners are protected."""

    __slots__ = ()

    ssl_client_auth: str = setting(
        "none",
        STRING,
        "whether clients must present a certificate",
        one_of("required", "requested", "none"),
        mode=PER_BROKER,
    )
    ssl_keystore_location: str | None = setting(None, STRING, "the file with key and certificate", mode=PER_BROKER)
    ssl_keystore_password: Password | None = setting(None, PASSWORD, "the password of that file", mode=PER_BROKER)
    ssl_key_password: Password | None = setting(None, PASSWORD, "the password of the key within it", mode=PER_BROKER)
    ssl_keystore_key: Password | None = setting(None, PASSWORD, "the key itself, in PEM", mode=PER_BROKER)
    ssl_keystore_certificate_chain: Password | None = setting(
        None, PASSWORD, "the certificates that belong to it, in PEM", mode=PER_BROKER
    )
    ssl_truststore_location: str | None = setting(None, STRING, "the file of trusted certificates", mode=PER_BROKER)
    ssl_truststore_password: Password | None = setting(None, PASSWORD, "the password of that file", mode=PER_BROKER)
    ssl_truststore_certificates: Password | None = setting(
        None, PASSWORD, "the trusted certificates themselves, in PEM", mode=PER_BROKER
    )
    ssl_principal_mapping_rules: str = setting(
        "DEFAULT", STRING, "rules that turn the name in a certificate into a user's", importance=LOW
    )
    ssl_enabled_protocols: tuple[str, ...] = setting(
        ("TLSv1.2", "TLSv1.3"), LIST, "the versions of TLS in use", mode=PER_BROKER
    )
    ssl_cipher_suites: tuple[str, ...] = setting(
        (), LIST, "the cipher suites in use; none: all that are safe", mode=PER_BROKER
    )
    ssl_keystore_type: str = setting("JKS", STRING, "the format of the key store", mode=PER_BROKER)
    ssl_truststore_type: str = setting("JKS", STRING, "the format of the trust store", mode=PER_BROKER)
    ssl_endpoint_identification_algorithm: str = setting(
        "https",
        STRING,
        "how a server's name is compared with its certificate; empty: not at all",
        importance=LOW,
        mode=PER_BROKER,
    )
    ssl_allow_dn_changes: bool = setting(
        False, BOOLEAN, "whether a new certificate may have another name than the one it replaces", importance=LOW
    )
    ssl_allow_san_changes: bool = setting(
        False, BOOLEAN, "whether a new certificate may lack alternative names of the one it replaces", importance=LOW
    )

    sasl_enabled_mechanisms: tuple[str, ...] = setting(
        ("GSSAPI",), LIST, "the mechanisms that clients may choose from", mode=PER_BROKER
    )
    sasl_kerberos_service_name: str | None = setting(
        None, STRING, "the first part of the principals of all brokers: kafka of kafka/host@REALM", mode=PER_BROKER
    )
    sasl_kerberos_principal_to_local_rules: tuple[str, ...] = setting(
        ("DEFAULT",), LIST, "rules that turn the name of a Kerberos principal into a user's", mode=PER_BROKER
    )
    sasl_oauthbearer_jwks_endpoint_url: str | None = setting(
        None, STRING, "where the keys that OAUTHBEARER tokens are signed with come from: an https or file URL"
    )
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int = setting(
        3_600_000, LONG, "how long those keys are kept", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int = setting(
        100, LONG, "wait after a first failed attempt to get them", importance=LOW
    )
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int = setting(
        10_000, LONG, "maximum wait between attempts", importance=LOW
    )
    sasl_oauthbearer_clock_skew_seconds: int = setting(30, INT, "how far two clocks may be apart", importance=LOW)
    sasl_oauthbearer_expected_audience: tuple[str, ...] | None = setting(
        None, LIST, "the audiences of which a token must have one", importance=LOW
    )
    sasl_oauthbearer_expected_issuer: str | None = setting(
        None, STRING, "the issuer that a token must have", importance=LOW
    )
    sasl_oauthbearer_scope_claim_name: str = setting(
        "scope", STRING, "the claim of a token that holds its scope", importance=LOW
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sub", STRING, "the claim of a token that holds its user", importance=LOW
    )
    sasl_oauthbearer_token_endpoint_url: str | None = setting(
        None, STRING, "where the broker's own tokens come from: an https or file URL"
    )
    sasl_login_refresh_window_factor: float = setting(
        0.8, DOUBLE, "the share of a token's life after which the broker gets another one", mode=PER_BROKER
    )
    sasl_login_refresh_window_jitter: float = setting(
        0.05, DOUBLE, "the random part that is added to that share, at most", mode=PER_BROKER
    )
    sasl_login_refresh_min_period_seconds: int = setting(
        60, SHORT, "how long the broker keeps a token at least", mode=PER_BROKER
    )
    sasl_login_refresh_buffer_seconds: int = setting(
        300, SHORT, "how long before a token expires the broker gets another one at the latest", mode=PER_BROKER
    )
    sasl_login_connect_timeout_ms: int | None = setting(
        None, INT, "how long connecting for a token may take", importance=LOW
    )
    sasl_login_read_timeout_ms: int | None = setting(
        None, INT, "how long the answer with a token may take", importance=LOW
    )
    sasl_login_retry_backoff_ms: int = setting(
        100, LONG, "wait after a first failed attempt to get a token", importance=LOW
    )
    sasl_login_retry_backoff_max_ms: int = setting(10_000, LONG, "maximum wait between attempts", importance=LOW)
    connections_max_reauth_ms: int = setting(0, LONG, "how long a login lasts; 0: as long as its connection")
    sasl_server_max_receive_size: int = setting(524_288, INT, "the largest message of a login")
    connection_failed_authentication_delay_ms: int = setting(
        100,
        INT,
        "how long a connection that failed to authenticate waits before it is closed",
        at_least(0),
        importance=LOW,
    )
