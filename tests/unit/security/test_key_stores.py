"""Key stores and trust stores in all formats, and what Kafka refuses."""

import re

import pytest
from cryptography.hazmat.primitives.serialization import PrivateFormat
from hypothesis import given
from hypothesis import strategies as st

from leadline.config.values import InvalidSetting
from leadline.security.key_stores import (
    JKS,
    PEM,
    PKCS12,
    KeyStore,
    KeyStoreSettings,
    StoreError,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)
from leadline.security.secret import Secret
from tests.support.certificates import issued, new_authority
from tests.support.java_stores import jks

ROOT = new_authority("root")
MIDDLE = new_authority("middle", ROOT)
BROKER = issued(MIDDLE)
OTHER = new_authority("other")
PASSWORD, KEY_PASSWORD = "store-pässword", "key-password"


def secret(text: str | None) -> Secret | None:
    return None if text is None else Secret.of(text)


def key_store(data: bytes, type_: str, password: str | None = PASSWORD, key_password: str | None = None) -> KeyStore:
    settings = KeyStoreSettings(type_, "/store", secret(password), secret(key_password))
    store = load_key_store(settings, lambda path: data)
    assert store is not None
    return store


def trusted(data: bytes, type_: str, password: str | None = PASSWORD) -> set[bytes]:
    store = load_trust_store(TrustStoreSettings(type_, "/store", secret(password)), lambda path: data)
    assert store is not None
    return set(store.certificates)


@pytest.mark.parametrize(
    ("data", "type_", "password", "key_password"),
    [
        (jks(PASSWORD, {"k": BROKER}, {"other": OTHER}), JKS, PASSWORD, None),
        (jks(PASSWORD, {"k": BROKER}, {}, version=1), JKS, PASSWORD, None),
        (jks(PASSWORD, {"k": BROKER}, {}, KEY_PASSWORD), JKS, PASSWORD, KEY_PASSWORD),
        (BROKER.pkcs12(PASSWORD, (OTHER.certificate,)), PKCS12, PASSWORD, None),
        ((BROKER.key_pem() + BROKER.chain_pem).encode(), PEM, None, None),
        ((BROKER.chain_pem + "some words\n" + BROKER.key_pem(KEY_PASSWORD)).encode(), PEM, None, KEY_PASSWORD),
        ((BROKER.key_pem() + BROKER.chain_pem).strip().replace("\n", "\r\n").encode(), PEM, None, None),
    ],
)
def test_key_and_chain_come_out_of_every_format(
    data: bytes, type_: str, password: str | None, key_password: str | None
) -> None:
    store = key_store(data, type_, password, key_password)
    assert store.key.reveal() == BROKER.der
    assert list(store.chain) == BROKER.chain
    assert "hidden" in repr(store)


@pytest.mark.parametrize("key_password", [None, KEY_PASSWORD])
def test_pem_within_the_settings(key_password: str | None) -> None:
    key, chain = BROKER.key_pem(key_password).replace("\n", " \n"), BROKER.chain_pem
    settings = KeyStoreSettings(
        PEM, key=Secret.of(key), certificate_chain=Secret.of(chain), key_password=secret(key_password)
    )
    store = load_key_store(settings, lambda path: b"")
    assert store is not None
    assert (store.key.reveal(), list(store.chain)) == (BROKER.der, BROKER.chain)


def test_a_chain_is_picked_by_issuer_in_its_order() -> None:
    shuffled = issued(MIDDLE)
    shuffled = type(shuffled)(shuffled.key, shuffled.certificate, (OTHER.certificate, ROOT.certificate))
    data = shuffled.pkcs12(PASSWORD, (MIDDLE.certificate,))
    assert list(key_store(data, PKCS12).chain) == [shuffled.chain[0], MIDDLE.chain[0], ROOT.chain[0]]


@pytest.mark.parametrize(
    ("data", "type_", "password"),
    [
        (jks(PASSWORD, {}, {"a": ROOT, "b": OTHER}), JKS, PASSWORD),
        (jks(PASSWORD, {}, {"a": ROOT, "b": OTHER}), JKS, None),
        ((ROOT.certificate_pem + "text\n" + OTHER.certificate_pem).encode(), PEM, None),
    ],
)
def test_trusted_certificates_come_out_of_every_format(data: bytes, type_: str, password: str | None) -> None:
    assert trusted(data, type_, password) == {ROOT.chain[0], OTHER.chain[0]}


@pytest.mark.parametrize(
    ("data", "type_", "certificates"),
    [
        (jks(PASSWORD, {"k": BROKER}, {"b": OTHER}), JKS, {BROKER.chain[0], OTHER.chain[0]}),
        (jks(PASSWORD, {"k": BROKER}, {}), JKS, {BROKER.chain[0]}),
        (BROKER.pkcs12(PASSWORD), PKCS12, {BROKER.chain[0]}),
        (ROOT.pkcs12(PASSWORD), PKCS12, {ROOT.chain[0]}),
    ],
)
def test_the_certificate_of_a_key_is_trusted_but_not_the_authorities_of_its_chain(
    data: bytes, type_: str, certificates: set[bytes]
) -> None:
    assert trusted(data, type_) == certificates


def test_trusted_certificates_within_the_settings() -> None:
    settings = TrustStoreSettings(PEM, certificates=Secret.of(ROOT.certificate_pem + OTHER.certificate_pem))
    store = load_trust_store(settings, lambda path: b"")
    assert store is not None
    assert set(store.certificates) == {ROOT.chain[0], OTHER.chain[0]}


def test_no_store_at_all_is_none() -> None:
    assert load_key_store(KeyStoreSettings(), lambda path: b"") is None
    assert load_trust_store(TrustStoreSettings(), lambda path: b"") is None


TEXT, FILE = Secret.of("x"), "/f"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            KeyStoreSettings(JKS, key=TEXT, certificate_chain=TEXT),
            "SSL private key can be specified only for PEM, but key store type is JKS.",
        ),
        (
            KeyStoreSettings(PEM, key=TEXT),
            "SSL private key is specified, but certificate chain is not specified.",
        ),
        (
            KeyStoreSettings(PEM, FILE, key=TEXT, certificate_chain=TEXT),
            "Both SSL key store location and separate private key are specified.",
        ),
        (
            KeyStoreSettings(PEM, password=TEXT, key=TEXT, certificate_chain=TEXT),
            "SSL key store password cannot be specified with PEM format, only key password may be specified.",
        ),
        (
            KeyStoreSettings(PEM, certificate_chain=TEXT),
            "SSL certificate chain is specified, but private key is not specified",
        ),
        (
            KeyStoreSettings(PEM, FILE, password=TEXT),
            "SSL key store password cannot be specified with PEM format, only key password may be specified",
        ),
        (KeyStoreSettings(JKS, password=TEXT), "SSL key store is not specified, but key store password is specified."),
        (KeyStoreSettings(JKS, FILE), "SSL key store is specified, but key store password is not specified."),
        (KeyStoreSettings("BKS", FILE, TEXT), "ssl.keystore.type=BKS: must be JKS, PKCS12 or PEM"),
    ],
)
def test_settings_of_a_key_store_that_kafka_refuses(settings: KeyStoreSettings, message: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(message)):
        load_key_store(settings, lambda path: b"")


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            TrustStoreSettings(JKS, certificates=TEXT),
            "SSL trust store certs can be specified only for PEM, but trust store type is JKS.",
        ),
        (
            TrustStoreSettings(PEM, FILE, certificates=TEXT),
            "Both SSL trust store location and separate trust certificates are specified.",
        ),
        (
            TrustStoreSettings(PEM, password=TEXT, certificates=TEXT),
            "SSL trust store password cannot be specified for PEM format.",
        ),
        (TrustStoreSettings(PEM, FILE, TEXT), "SSL trust store password cannot be specified for PEM format."),
        (
            TrustStoreSettings(JKS, password=TEXT),
            "SSL trust store is not specified, but trust store password is specified.",
        ),
    ],
)
def test_settings_of_a_trust_store_that_kafka_refuses(settings: TrustStoreSettings, message: str) -> None:
    with pytest.raises(InvalidSetting, match=re.escape(message)):
        load_trust_store(settings, lambda path: b"")


@pytest.mark.parametrize(
    ("data", "type_"), [(BROKER.pkcs12(PASSWORD), JKS), (jks(PASSWORD, {"k": BROKER}, {}), PKCS12)]
)
def test_a_store_that_is_set_as_the_other_type_is_read_as_in_java(data: bytes, type_: str) -> None:
    assert key_store(data, type_, PASSWORD, None).chain[0] == BROKER.chain[0]
    assert load_trust_store(TrustStoreSettings(type_, "/store", Secret.of(PASSWORD)), lambda path: data) is not None


@pytest.mark.parametrize(
    ("data", "type_", "password", "key_password", "message"),
    [
        (jks(PASSWORD, {"k": BROKER}, {}), JKS, "wrong", None, "wrong password"),
        (jks(PASSWORD, {"k": BROKER}, {}, KEY_PASSWORD), JKS, PASSWORD, "wrong", "wrong key password"),
        (jks(PASSWORD, {"k": BROKER}, {}, KEY_PASSWORD), JKS, PASSWORD, None, "wrong key password"),
        (jks(PASSWORD, {}, {"a": ROOT}), JKS, PASSWORD, None, "there is no key in it"),
        (b"no store", JKS, PASSWORD, None, "it is not a JKS store"),
        (b"\xce\xce\xce\xce", JKS, PASSWORD, None, "JCEKS"),
        (BROKER.pkcs12(PASSWORD), PKCS12, "wrong", None, "wrong password"),
        (b"no store", PKCS12, PASSWORD, None, "no PKCS12 store"),
        (BROKER.chain_pem.encode(), PEM, None, None, "No matching PRIVATE KEY entries in PEM file"),
        (BROKER.key_pem().encode(), PEM, None, None, "No matching CERTIFICATE entries in PEM file"),
        ((BROKER.key_pem() * 2 + BROKER.chain_pem).encode(), PEM, None, None, "Expected one private key, but found 2"),
        ((BROKER.key_pem("p") + BROKER.chain_pem).encode(), PEM, None, None, "not a plain key in PKCS#8"),
        ((BROKER.key_pem("p") + BROKER.chain_pem).encode(), PEM, None, "q", "wrong ssl.key.password"),
        ((BROKER.key_pem() + BROKER.chain_pem).encode(), PEM, None, "q", "not an encrypted key in PKCS#8"),
        (
            (BROKER.key_pem(format=PrivateFormat.TraditionalOpenSSL) + BROKER.chain_pem).encode(),
            *(PEM, None, None, "not a plain key in PKCS#8"),
        ),
    ],
)
def test_a_store_that_cannot_be_loaded_says_why(
    data: bytes, type_: str, password: str | None, key_password: str | None, message: str
) -> None:
    with pytest.raises(StoreError, match=re.escape(message)) as refused:
        key_store(data, type_, password, key_password)
    assert str(refused.value).startswith(f"Failed to load SSL keystore /store of type {type_}: ")
    assert "password'" not in str(refused.value)


def test_a_file_that_is_missing_is_named() -> None:
    def read(path: str) -> bytes:
        raise FileNotFoundError(2, "No such file or directory", path)

    settings = KeyStoreSettings(JKS, "/gone", Secret.of("x"))
    with pytest.raises(StoreError, match="keystore /gone of type JKS: No such file or directory"):
        load_key_store(settings, read)


def test_a_pkcs12_trust_store_without_its_password_is_refused_and_not_empty() -> None:
    with pytest.raises(StoreError, match=r"it needs ssl\.truststore\.password"):
        trusted(BROKER.pkcs12(PASSWORD), PKCS12, None)


STORES = [
    (jks(PASSWORD, {"k": BROKER}, {"a": ROOT}), JKS),
    (BROKER.pkcs12(PASSWORD), PKCS12),
    ((BROKER.key_pem() + BROKER.chain_pem).encode(), PEM),
]


@given(st.sampled_from(STORES), st.integers(0, 3000), st.binary(max_size=6), st.integers(0, 6))
def test_a_damaged_store_is_refused_and_nothing_else(
    store: tuple[bytes, str], at: int, bytes_: bytes, removed: int
) -> None:
    data, type_ = store
    damaged = data[:at] + bytes_ + data[at + removed :]
    for password in (PASSWORD, None):
        try:
            if type_ == JKS:
                trusted(damaged, type_, password)
            if password or type_ == PEM:
                key_store(damaged, type_, None if type_ == PEM else password)
        except StoreError:
            pass
