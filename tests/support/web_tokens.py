"""Keys, key sets and signed tokens for OAUTHBEARER."""

import base64
import hashlib
import hmac
import json
from functools import cache
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

PrivateKey = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


@cache
def private_key(name: str) -> PrivateKey:
    """One of each name, which begins with its kind."""
    if name.startswith("rsa"):
        return rsa.generate_private_key(65537, 1024 if "weak" in name else 2048)
    if name.startswith("ed"):
        return ed25519.Ed25519PrivateKey.generate()
    curve = {"256": ec.SECP256R1(), "384": ec.SECP384R1(), "521": ec.SECP521R1()}[name[3:6]]
    return ec.generate_private_key(curve)


def jwk(name: str, **more: object) -> dict[str, Any]:
    """The public key of that name as an entry of a key set, with the name as its id."""
    public: Any = private_key(name).public_key()
    kinds: dict[str, Any] = {"rsa": RSAAlgorithm, "ed2": OKPAlgorithm, "ec-": ECAlgorithm}
    return {**kinds[name[:3]].to_jwk(public, as_dict=True), "kid": name, **more}


def key_set(*entries: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(entries)}).encode()


def signed(claims: object, name: str = "rsa", algorithm: str = "RS256", **header: object) -> str:
    """A token with a real signature. A header of None is left out."""
    headers = {"kid": name, **header}
    headers = {key: value for key, value in headers.items() if value is not None}
    return jwt.api_jws.PyJWS().encode(
        json.dumps(claims).encode(), private_key(name), algorithm=algorithm, headers=headers, sort_headers=True
    )


def unsigned(claims: object, **header: object) -> str:
    return f"{_part({'alg': 'none', **header})}.{_part(claims)}."


def signed_with_public_key(claims: object, name: str, key_id: str) -> str:
    """HS256, with the bytes of a public key as the shared secret: a classic confusion."""
    public = private_key(name).public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    head = f"{_part({'alg': 'HS256', 'kid': key_id})}.{_part(claims)}"
    digest = hmac.new(public, head.encode(), hashlib.sha256).digest()
    return f"{head}.{base64.urlsafe_b64encode(digest).rstrip(b'=').decode()}"


def _part(value: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def first_message(token: str, authorization_id: str = "", **extensions: str) -> bytes:
    authzid = f"a={authorization_id}" if authorization_id else ""
    pairs = "".join(f"{name}={value}\x01" for name, value in extensions.items())
    return f"n,{authzid},\x01auth=Bearer {token}\x01{pairs}\x01".encode()
