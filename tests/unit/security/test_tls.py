"""TLS without sockets: two ends in memory, of contexts made from Kafka's settings."""

import contextlib
import datetime
import re
import ssl
import sys
from dataclasses import replace
from subprocess import run
from unittest.mock import patch

import pytest

from leadline.config.values import InvalidSetting
from leadline.security import tls as tls_module
from leadline.security.key_stores import (
    JKS,
    PEM,
    PKCS12,
    KeyStoreSettings,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)
from leadline.security.principal import ANONYMOUS, Principal
from leadline.security.principal_mapping import PrincipalMapping, certificate_principal
from leadline.security.secret import Secret
from leadline.security.tls import ListenerTls, TlsSettings, alternative_names, client_auth_of
from tests.support.certificates import NOW, Identity, issued, new_authority
from tests.support.java_stores import jks

ROOT, FOREIGN = new_authority("root"), new_authority("foreign")
MIDDLE = new_authority("middle", ROOT)
BROKER, ALICE = issued(MIDDLE, "broker", ("localhost", "127.0.0.1")), issued(ROOT, "alice", ())
EXPIRED = issued(ROOT, "old", (), NOW + datetime.timedelta(days=1))
STRANGER = issued(FOREIGN, "stranger", ())
PROTOCOLS = ["TLSv1.2", "TLSv1.3"]


def unread(path: str) -> bytes:
    raise AssertionError(f"{path} is read")


def pem_store(identity: Identity, password: str | None = None) -> KeyStoreSettings:
    return KeyStoreSettings(
        PEM,
        key=Secret.of(identity.key_pem(password)),
        certificate_chain=Secret.of(identity.chain_pem),
        key_password=None if password is None else Secret.of(password),
    )


def trust(*identities: Identity) -> TrustStoreSettings:
    return TrustStoreSettings(PEM, certificates=Secret.of("".join(part.certificate_pem for part in identities)))


SETTINGS = TlsSettings(pem_store(BROKER), trust(ROOT))


def listener(**changes: object) -> ListenerTls:
    return ListenerTls.load(replace(SETTINGS, **changes), unread)  # type: ignore[arg-type]


def client(identity: Identity | None, *authorities: Identity, protocol: str = "TLSv1.3") -> ssl.SSLContext:
    store = KeyStoreSettings() if identity is None else pem_store(identity)
    settings = TlsSettings(store, trust(*(authorities or (ROOT,))), enabled_protocols=(protocol,))
    return ListenerTls(
        settings,
        load_key_store(settings.key_store, unread),
        load_trust_store(settings.trust_store, unread),
    ).client_context


def connect(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Server and client after the handshake and a byte each way; ssl.SSLError of the side that refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(to_client, to_server, server_hostname=host)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    done: set[ssl.SSLObject] = set()
    for _ in range(10):
        for end in (near, far):
            try:
                end.do_handshake()
                done.add(end)
            except ssl.SSLWantReadError:
                pass
    assert len(done) == 2
    near.write(b"x")
    assert far.read(1) == b"x"
    far.write(b"y")
    assert near.read(1) == b"y"
    return far, near


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_handshake_in_each_protocol(protocol: str) -> None:
    far, near = connect(listener().server_context, client(None, protocol=protocol))
    assert far.version() == near.version() == protocol
    assert far.compression() is None


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize(
    ("client_auth", "identity", "principal"),
    [
        ("required", ALICE, "CN=alice,O=Acme,C=DE"),
        ("required", None, None),
        ("required", STRANGER, None),
        ("required", EXPIRED, None),
        ("requested", ALICE, "CN=alice,O=Acme,C=DE"),
        ("requested", None, "ANONYMOUS"),
        ("requested", STRANGER, None),
        ("requested", EXPIRED, None),
        ("none", ALICE, "ANONYMOUS"),
        ("none", None, "ANONYMOUS"),
        ("none", STRANGER, "ANONYMOUS"),
    ],
)
def test_the_principal_of_a_client_comes_from_its_certificate(
    protocol: str, client_auth: str, identity: Identity | None, principal: str | None
) -> None:
    server, near = listener(client_auth=client_auth).server_context, client(identity, protocol=protocol)
    if principal is None:
        with pytest.raises(ssl.SSLError):
            connect(server, near)
        return
    far, _ = connect(server, near)
    shown = certificate_principal(far.getpeercert(binary_form=True), PrincipalMapping())
    assert shown == (ANONYMOUS if principal == "ANONYMOUS" else Principal("User", principal))


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_client_refuses_a_broker_of_an_authority_that_it_does_not_trust(protocol: str) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        connect(listener().server_context, client(None, FOREIGN, protocol=protocol))


def test_a_client_refuses_an_expired_broker_and_one_of_another_name() -> None:
    expired = issued(ROOT, "broker", ("localhost",), NOW + datetime.timedelta(days=1))
    server = listener(key_store=pem_store(expired)).server_context
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        connect(server, client(None))
    with pytest.raises(ssl.SSLCertVerificationError, match=r"[Hh]ostname"):
        connect(listener().server_context, client(None), "elsewhere")


def test_an_intermediate_or_the_certificate_itself_may_be_trusted_as_in_java() -> None:
    for trusted in (MIDDLE, BROKER):
        connect(listener().server_context, client(None, trusted))
    server = listener(client_auth="required", trust_store=trust(ALICE)).server_context
    connect(server, client(ALICE))


@pytest.mark.parametrize(
    ("key_store", "data"),
    [
        (pem_store(BROKER, "secret"), b""),
        (KeyStoreSettings(JKS, "/k", Secret.of("p")), jks("p", {"k": BROKER}, {})),
        (KeyStoreSettings(PKCS12, "/k", Secret.of("p")), BROKER.pkcs12("p")),
        (KeyStoreSettings(PEM, "/k"), (BROKER.key_pem() + BROKER.chain_pem).encode()),
    ],
)
def test_every_kind_of_key_store_serves(key_store: KeyStoreSettings, data: bytes) -> None:
    server = ListenerTls.load(replace(SETTINGS, key_store=key_store), lambda path: data)
    connect(server.server_context, client(None))


def test_a_context_is_built_once_per_listener_and_reload() -> None:
    with patch.object(ListenerTls, "_context", autospec=True, side_effect=ListenerTls._context) as built:
        tls = listener()
        contexts = {id(tls.server_context) for _ in range(100)}
        assert len(contexts) == 1
        assert built.call_count == 1
        assert tls.reloaded(SETTINGS, unread).server_context is not tls.server_context
        assert built.call_count == 2


def test_renegotiation_and_compression_are_off() -> None:
    context = listener().server_context
    for option in (ssl.OP_NO_RENEGOTIATION, ssl.OP_NO_COMPRESSION, ssl.OP_CIPHER_SERVER_PREFERENCE):
        assert context.options & option
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)


# Protocols and ciphers


@pytest.mark.parametrize(
    ("protocols", "suites", "works"),
    [
        (("TLSv1.2",), (), {"TLSv1.2"}),
        (("TLSv1.3",), (), {"TLSv1.3"}),
        ((), (), {"TLSv1.2", "TLSv1.3"}),
        (("TLSv1.3", "TLSv1.2"), ("TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",), {"TLSv1.2"}),
        (("TLSv1.3", "TLSv1.2"), ("TLS_AES_256_GCM_SHA384",), {"TLSv1.3"}),
        (
            ("TLSv1.3", "TLSv1.2"),
            ("TLS_AES_256_GCM_SHA384", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
            {"TLSv1.2", "TLSv1.3"},
        ),
    ],
)
def test_protocols_and_suites_as_java_would_have_them(
    protocols: tuple[str, ...], suites: tuple[str, ...], works: set[str]
) -> None:
    server = listener(enabled_protocols=protocols, cipher_suites=suites).server_context
    for protocol in PROTOCOLS:
        if protocol in works:
            far, _ = connect(server, client(None, protocol=protocol))
            cipher = far.cipher()
            assert cipher is not None
            assert protocol == "TLSv1.3" or not suites or cipher[0] == "ECDHE-ECDSA-AES128-GCM-SHA256"
        else:
            with pytest.raises(ssl.SSLError):
                connect(server, client(None, protocol=protocol))


@pytest.mark.parametrize("suite", tls_module._CIPHERS)
def test_openssl_knows_every_suite_of_the_table(suite: str) -> None:
    context = listener(cipher_suites=(f"TLS_{suite}",)).server_context
    assert tls_module._CIPHERS[suite] in {cipher["name"] for cipher in context.get_ciphers()}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"cipher_suites": ("TLS_NULL",)}, "ssl.cipher.suites=TLS_NULL: Unsupported CipherSuite"),
        ({"cipher_suites": ("ECDHE-RSA-AES256-GCM-SHA384",)}, "Unsupported CipherSuite"),
        ({"enabled_protocols": ("TLSv1.1",)}, "ssl.enabled.protocols=TLSv1.1: must be TLSv1.2, TLSv1.3 or both"),
        ({"enabled_protocols": ("tlsv1.2",)}, "ssl.enabled.protocols=tlsv1.2: must be"),
        (
            {"enabled_protocols": ("TLSv1.2",), "cipher_suites": ("TLS_AES_128_GCM_SHA256",)},
            "none of them is for a protocol of ssl.enabled.protocols=TLSv1.2",
        ),
        ({"client_auth": "Required"}, "ssl.client.auth=Required: must be one of required, requested, none"),
        ({"key_store": KeyStoreSettings()}, "a listener with TLS has a key store"),
        (
            {"key_store": replace(pem_store(BROKER), certificate_chain=Secret.of(ALICE.chain_pem))},
            "key and certificate of the key store cannot be used",
        ),
    ],
)
def test_cve_2023_30450_settings_that_are_wrong_stop_the_start(changes: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(message)):
        listener(**changes)


def test_suites_of_tls_1_3_that_stay_on_are_noted() -> None:
    assert listener().notes == ()
    (note,) = listener(cipher_suites=("TLS_AES_256_GCM_SHA384",)).notes
    assert "TLS_AES_128_GCM_SHA256, TLS_CHACHA20_POLY1305_SHA256 stay on" in note


@pytest.mark.parametrize(
    ("protocol", "broker_wide", "own", "client_auth"),
    [
        ("SSL", "required", None, "required"),
        ("SSL", "required", "none", "none"),
        ("SASL_SSL", "required", None, "none"),
        ("SASL_SSL", "none", "requested", "requested"),
    ],
)
def test_on_sasl_ssl_only_the_listeners_own_client_auth_counts(
    protocol: str, broker_wide: str, own: str | None, client_auth: str
) -> None:
    assert client_auth_of(protocol, broker_wide, own) == client_auth


# Reload


def reload(identity: Identity, inter_broker: bool = False, **changes: object) -> ListenerTls:
    settings = replace(SETTINGS, key_store=pem_store(identity), **changes)  # type: ignore[arg-type]
    return listener().reloaded(settings, unread, inter_broker=inter_broker)


def test_a_new_certificate_of_the_same_name_is_taken() -> None:
    new = reload(issued(ROOT, "broker", ("localhost", "127.0.0.1", "more")))
    far, near = connect(new.server_context, client(None))
    assert "more" in str(near.getpeercert())
    assert far.version()


def test_a_name_may_differ_in_case_and_spaces() -> None:
    reload(issued(ROOT, "BROKER", ("localhost", "127.0.0.1")))
    reload(issued(ROOT, " broker ", ("localhost", "127.0.0.1")))


@pytest.mark.parametrize(
    ("identity", "allowed_by", "message"),
    [
        (issued(ROOT, "other", ("localhost", "127.0.0.1")), "allow_dn_changes", "Keystore DistinguishedName does not"),
        (issued(ROOT, "broker", ("localhost",)), "allow_san_changes", "Keystore SubjectAltNames do not match"),
        (issued(ROOT, "broker", ()), "allow_san_changes", "Keystore SubjectAltNames do not match"),
    ],
)
def test_another_name_or_less_alternative_names_are_refused_unless_allowed(
    identity: Identity, allowed_by: str, message: str
) -> None:
    with pytest.raises(InvalidSetting, match=f"Validation of dynamic config update of SSLFactory failed: {message}"):
        reload(identity)
    assert reload(identity, **{allowed_by: True})


def test_a_key_store_cannot_be_removed_and_a_trust_store_not_added() -> None:
    with pytest.raises(InvalidSetting, match="a listener with TLS has a key store"):
        listener().reloaded(replace(SETTINGS, key_store=KeyStoreSettings()), unread)
    without = listener(trust_store=TrustStoreSettings())
    with pytest.raises(InvalidSetting, match="Cannot add SSL truststore to an existing listener"):
        without.reloaded(SETTINGS, unread)


def test_connections_keep_the_session_that_they_have() -> None:
    tls = listener()
    far, near = connect(tls.server_context, client(None))
    tls.reloaded(SETTINGS, unread)
    near.write(b"still here")
    assert far.read() == b"still here"


def resumed(server: ssl.SSLContext, near: ssl.SSLObject, context: ssl.SSLContext) -> ssl.SSLObject:
    """The server's end of a second connection that offers the session of the first."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    again = context.wrap_bio(to_client, to_server, server_hostname="localhost", session=near.session)
    far = server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(10):
        for end in (again, far):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    again.write(b"x")
    assert far.read(1) == b"x"
    return far


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_resumed_session_keeps_its_principal_and_does_not_outlive_a_reload(protocol: str) -> None:
    """So a certificate whose authority is no longer trusted is refused at the next connection."""
    tls, context = listener(client_auth="required"), client(ALICE, protocol=protocol)
    _, near = connect(tls.server_context, context)
    far = resumed(tls.server_context, near, context)
    assert far.session_reused
    shown = certificate_principal(far.getpeercert(binary_form=True), PrincipalMapping())
    assert shown == Principal("User", "CN=alice,O=Acme,C=DE")
    new = tls.reloaded(replace(SETTINGS, client_auth="required"), unread)
    assert not resumed(new.server_context, near, context).session_reused
    without_root = tls.reloaded(replace(SETTINGS, client_auth="required", trust_store=trust(FOREIGN)), unread)
    with pytest.raises(ssl.SSLError):
        resumed(without_root.server_context, near, context)


# The inter-broker listener


@pytest.mark.parametrize("client_auth", ["none", "requested", "required"])
def test_the_inter_broker_listener_accepts_itself(client_auth: str) -> None:
    settings = replace(SETTINGS, client_auth=client_auth)
    ListenerTls.load(settings, unread, inter_broker=True)
    reload(issued(ROOT, "broker", ("localhost", "127.0.0.1")), inter_broker=True, client_auth=client_auth)


@pytest.mark.parametrize("protocols", [("TLSv1.2",), ("TLSv1.3",)])
def test_an_inter_broker_listener_that_does_not_trust_itself_does_not_start(protocols: tuple[str, ...]) -> None:
    settings = replace(SETTINGS, trust_store=trust(FOREIGN), enabled_protocols=protocols)
    with pytest.raises(InvalidSetting, match="can't connect to a server SSLEngine created with those settings"):
        ListenerTls.load(settings, unread, inter_broker=True)
    with pytest.raises(InvalidSetting, match="can't connect to a server SSLEngine"):
        reload(issued(FOREIGN, "broker", ("localhost", "127.0.0.1")), inter_broker=True)


def test_alternative_names_have_their_kind() -> None:
    assert alternative_names(BROKER.chain[0]) == {"DNSName:localhost", "IPAddress:127.0.0.1"}
    assert alternative_names(ALICE.chain[0]) == frozenset()


def test_no_error_contains_a_key() -> None:
    with pytest.raises(InvalidSetting) as refused:
        listener(key_store=replace(pem_store(BROKER), certificate_chain=Secret.of(ALICE.chain_pem)))
    assert BROKER.key_pem().splitlines()[1] not in str(refused.value)
    assert "PRIVATE" not in repr(SETTINGS)


def test_what_is_not_used_is_not_imported() -> None:
    """A broker without TLS starts as fast as ever."""
    code = (
        "import sys, leadline.security.tls, leadline.security.key_stores, leadline.security.sasl_authenticator;"
        "print(sorted({'cryptography', 'jwt', 'cffi'} & sys.modules.keys()))"
    )
    assert run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip() == "[]"
