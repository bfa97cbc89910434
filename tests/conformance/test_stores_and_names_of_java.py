"""Java's own key stores and names: keytool writes what we read, and Java prints the names that we print."""

import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from leadline.security.distinguished_name import name_text
from leadline.security.key_stores import (
    JKS,
    PKCS12,
    KeyStore,
    KeyStoreSettings,
    StoreError,
    TrustStoreSettings,
    load_key_store,
    load_trust_store,
)
from leadline.security.principal_mapping import NoMatchingRule, PrincipalMapping
from leadline.security.secret import Secret
from leadline.security.tls import ListenerTls, TlsSettings
from tests.conformance.kafka import jars
from tests.support.certificates import issued, new_authority
from tests.support.java_stores import der

pytestmark = pytest.mark.conformance

PASSWORD, KEY_PASSWORD = "store-password", "key-password"
WRONG = Secret.of("wrong")
ROOT, OTHER = new_authority("root"), new_authority("other")
BROKER = issued(new_authority("middle", ROOT))
LEGACY = "-J-Dkeystore.pkcs12.legacy"
JAVA_S = 120


def keytool(*args: str) -> str:
    command = jars._in_jdk("keytool")
    assert command, "keytool comes with Java, which these tests need"
    done = subprocess.run([command, *args], capture_output=True, text=True, timeout=JAVA_S)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def write(folder: Path, type_: str, *options: str, key_password: str = PASSWORD) -> Path:
    """A store with a key and its chain, and another authority as a trusted certificate, in the way of keytool."""
    source, store, authority_pem = folder / "source.p12", folder / "store", folder / "other.pem"
    source.write_bytes(BROKER.pkcs12(PASSWORD))
    authority_pem.write_text(OTHER.certificate_pem)
    common = ["-storepass", PASSWORD, "-keystore", str(store), "-storetype", type_, *options]
    from_source = ["-srckeystore", str(source), "-srcstoretype", "PKCS12", "-srcstorepass", PASSWORD]
    to_store = ["-destkeystore", str(store), "-deststoretype", type_, "-deststorepass", PASSWORD, *options]
    passwords = ["-srcalias", "kafka", "-srckeypass", PASSWORD, "-destkeypass", key_password]
    keytool("-importkeystore", "-noprompt", *from_source, *to_store, *passwords)
    keytool("-importcert", "-noprompt", "-alias", "Other", "-file", str(authority_pem), *common)
    return store


def read(path: str) -> bytes:
    return Path(path).read_bytes()


def load(store: Path, type_: str, key_password: str | None = None) -> KeyStore:
    key = None if key_password is None else Secret.of(key_password)
    loaded = load_key_store(KeyStoreSettings(type_, str(store), Secret.of(PASSWORD), key), read)
    assert loaded is not None
    return loaded


@pytest.mark.parametrize(
    ("type_", "options", "key_password"),
    [(JKS, (), PASSWORD), (JKS, (), KEY_PASSWORD), (PKCS12, (), PASSWORD), (PKCS12, (LEGACY,), PASSWORD)],
)
def test_a_key_store_of_keytool_serves(tmp_path: Path, type_: str, options: tuple[str, ...], key_password: str) -> None:
    store = write(tmp_path, type_, *options, key_password=key_password)
    key_store = KeyStoreSettings(type_, str(store), Secret.of(PASSWORD), Secret.of(key_password))
    loaded = load_key_store(key_store, read)
    assert loaded is not None
    assert (loaded.key.reveal(), list(loaded.chain)) == (BROKER.der, BROKER.chain)
    trusted = load_trust_store(TrustStoreSettings(type_, str(store), Secret.of(PASSWORD)), read)
    assert trusted is not None
    assert set(trusted.certificates) == {BROKER.chain[0], OTHER.chain[0]}
    assert keytool("-list", "-keystore", str(store), "-storepass", PASSWORD).count("trustedCertEntry") == 1
    trust_store = TrustStoreSettings("PEM", certificates=Secret.of(ROOT.certificate_pem))
    assert ListenerTls.load(TlsSettings(key_store, trust_store, client_auth="required"), read, inter_broker=True)
    assert load_key_store(replace(key_store, type=JKS if type_ == PKCS12 else PKCS12), read) == loaded  # as in Java
    wrongs = [replace(key_store, password=WRONG), *([replace(key_store, key_password=WRONG)] if type_ == JKS else [])]
    for wrong in wrongs:
        with pytest.raises(StoreError, match="wrong"):
            load_key_store(wrong, read)


@pytest.mark.parametrize(("type_", "options"), [(JKS, ()), (PKCS12, ()), (PKCS12, (LEGACY,))])
def test_a_trust_store_of_keytool_is_read(tmp_path: Path, type_: str, options: tuple[str, ...]) -> None:
    certificate, store = tmp_path / "other.pem", tmp_path / "trust"
    certificate.write_text(OTHER.certificate_pem)
    common = ["-keystore", str(store), "-storetype", type_, "-storepass", PASSWORD, *options]
    keytool("-importcert", "-noprompt", "-alias", "Other", "-file", str(certificate), *common)
    for password in (Secret.of(PASSWORD), None) if type_ == JKS else (Secret.of(PASSWORD),):
        loaded = load_trust_store(TrustStoreSettings(type_, str(store), password), read)
        assert loaded is not None
        assert list(loaded.certificates) == OTHER.chain


# Names

OIDS = [
    *("2.5.4.3", "2.5.4.6", "2.5.4.7", "2.5.4.8", "2.5.4.9", "2.5.4.10", "2.5.4.11"),
    *("0.9.2342.19200300.100.1.25", "0.9.2342.19200300.100.1.1", "1.2.840.113549.1.9.1", "2.5.4.5", "2.5.4.42"),
    *("2.5.4.4", "2.5.4.12", "1.3.6.1.4.1.311.60.2.1.3", "2.999.1", "1.2.3"),
]
UTF8, OTHER_STRINGS = 0x0C, [0x13, 0x14, 0x16]  # Printable, T61, IA5
CHARACTERS = "ab AZ09,+\"\\<>;=#\r\n\t\0é€ß\U0001f600 '/:*$"


def random_name(chance: Random) -> bytes:
    rdns = []
    for _ in range(chance.randint(0, 4)):
        oids = chance.sample(OIDS, chance.choice([1, 1, 1, 2, 3]))
        rdns.append(der(0x31, b"".join(random_attribute(chance, oid) for oid in oids)))
    return der(0x30, b"".join(rdns))


def random_attribute(chance: Random, oid: str) -> bytes:
    value = "".join(chance.choices(CHARACTERS, k=chance.randint(1, 8)))
    kind = chance.choice(OTHER_STRINGS) if value.isascii() and chance.random() < 0.5 else UTF8
    return der(0x30, der(0x06, oid_content(oid)) + der(kind, value.encode()))


def oid_content(dotted: str) -> bytes:
    first, second, *rest = map(int, dotted.split("."))
    return b"".join(base_128(number) for number in (40 * first + second, *rest))


def base_128(number: int) -> bytes:
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))


def java_names(names: list[bytes], *rules: str) -> list[str]:
    classes = jars.compiled(jars.HERE / "java" / "Names.java")
    lines = "\n".join(name.hex() for name in names)
    done = subprocess.run(
        jars.command("Names", *rules, classes=classes), input=lines, capture_output=True, text=True, timeout=JAVA_S
    )
    assert done.returncode == 0, done.stderr
    return [bytes.fromhex(line).decode("utf-8") for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def names() -> list[bytes]:
    chance = Random(7)
    return [random_name(chance) for _ in range(2000)]


def test_names_look_as_java_prints_them(names: list[bytes]) -> None:
    pairs = [(name_text(name), theirs) for name, theirs in zip(names, java_names(names), strict=True)]
    assert [(ours, theirs) for ours, theirs in pairs if ours != theirs][:5] == []


RULES = [
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/L,DEFAULT",
    "RULE:^CN=(.*?),(.*)$/$2-$1-$3/U",
    r"RULE:.*#(.*)$/\$$1\/x/,RULE:^(?<all>[^\\]+)$/<$1>/",
    "RULE:.*/x/",
    r"RULE:^(\w+)=(.*)\z/$2$12/,RULE:(?i)^cn=.*$/cn/",
]


@pytest.mark.parametrize("rules", RULES)
def test_rules_map_names_as_kafkas_do(names: list[bytes], rules: str) -> None:
    mapping = PrincipalMapping(rules)
    differences = []
    for name, theirs in zip(names, java_names(names, rules), strict=True):
        try:
            ours = mapping.name_of(name_text(name))
        except NoMatchingRule:
            ours = "no rule"
        if ours != theirs:
            differences.append((name_text(name), ours, theirs))
    assert differences[:5] == []
