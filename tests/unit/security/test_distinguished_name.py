"""Names as Java writes them. The two long ones were printed by X500Principal.getName() of Java 17."""

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.name import _ASN1Type
from cryptography.x509.oid import NameOID

from leadline.security.distinguished_name import (
    InvalidName,
    canonical_name,
    issuer_of,
    name_text,
    subject_name,
    subject_of,
)
from leadline.security.principal import ANONYMOUS, Principal
from leadline.security.principal_mapping import PrincipalMapping, certificate_principal
from tests.support.certificates import issued, new_authority

CA = new_authority()
ORG, CN, C, UID = NameOID.ORGANIZATION_NAME, NameOID.COMMON_NAME, NameOID.COUNTRY_NAME, NameOID.USER_ID


def attribute(oid: x509.ObjectIdentifier, value: str, kind: _ASN1Type | None = None) -> x509.NameAttribute[str]:
    return x509.NameAttribute(oid, value, kind, _validate=False)


def der(*rdns: list[x509.NameAttribute[str]]) -> bytes:
    return x509.Name([x509.RelativeDistinguishedName(rdn) for rdn in rdns]).public_bytes()


LONG = der(
    [attribute(C, "DE")],
    [attribute(NameOID.STATE_OR_PROVINCE_NAME, "BY")],
    [attribute(NameOID.LOCALITY_NAME, "M")],
    [attribute(ORG, 'Acme, Inc. "x"')],
    [attribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "a")],
    [attribute(CN, " lead ")],
    [attribute(NameOID.EMAIL_ADDRESS, "a@b.c")],
    [attribute(NameOID.SERIAL_NUMBER, "42", _ASN1Type.PrintableString)],
    [attribute(UID, "u1")],
    [attribute(NameOID.DOMAIN_COMPONENT, "example")],
    [attribute(NameOID.STREET_ADDRESS, "Main 1")],
    [attribute(NameOID.TITLE, "Dr")],
    [attribute(NameOID.GIVEN_NAME, "José")],
)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (
            LONG,
            "2.5.4.42=#0c054a6f73c3a9,2.5.4.12=#0c024472,STREET=Main 1,DC=example,UID=u1,2.5.4.5=#13023432,"
            '1.2.840.113549.1.9.1=#16056140622e63,CN=\\ lead\\ ,OU=a,O=Acme\\, Inc. \\"x\\",L=M,ST=BY,C=DE',
        ),
        (
            der([attribute(C, "DE")], [attribute(ORG, "é;<z>\\y")], [attribute(CN, "a=b"), attribute(UID, "7")]),
            "CN=a\\=b+UID=7,O=é\\;\\<z\\>\\\\y,C=DE",
        ),
        (der(), ""),
        (der([attribute(CN, "a#b")]), "CN=a\\#b"),
        (der([attribute(CN, "#b")]), "CN=\\#b"),
        (der([attribute(CN, "   ")]), "CN=\\ \\ \\ "),
        (der([attribute(CN, "a\0b")]), "CN=a\\00b"),
        (der([attribute(CN, "a\nb")]), "CN=a\nb"),
        (der([attribute(CN, "ab", _ASN1Type.BMPString)]), "CN=\\00a\\00b"),
    ],
)
def test_a_name_and_its_text(name: bytes, text: str) -> None:
    assert name_text(name) == text


def test_the_subject_of_a_certificate_is_its_principal() -> None:
    certificate = issued(CA, "alice").chain[0]
    assert subject_name(certificate) == "CN=alice,O=Acme,C=DE"
    assert name_text(issuer_of(certificate)) == "CN=ca,O=Acme,C=DE"
    assert certificate_principal(certificate, PrincipalMapping()) == Principal("User", "CN=alice,O=Acme,C=DE")
    mapped = certificate_principal(certificate, PrincipalMapping("RULE:^CN=(.*?),.*$/$1/U"))
    assert mapped == Principal("User", "ALICE")
    assert certificate_principal(None, PrincipalMapping()) == ANONYMOUS


def test_java_compares_names_without_case_and_without_double_spaces() -> None:
    one = der([attribute(ORG, "Acme  Inc ")], [attribute(CN, "A"), attribute(UID, "7")])
    other = der([attribute(ORG, "acme inc")], [attribute(UID, "7"), attribute(CN, "a")])
    assert canonical_name(one) == canonical_name(other)
    assert canonical_name(one) != canonical_name(der([attribute(ORG, "acmeinc")]))


def test_bytes_that_are_no_certificate_are_refused() -> None:
    certificate = CA.certificate.public_bytes(Encoding.DER)
    for end in (*range(40), len(certificate) - 1):
        with pytest.raises(InvalidName):
            subject_of(certificate[:end])
    with pytest.raises(InvalidName):
        name_text(b"\x30\x04\x31\x02\x30\x00")
