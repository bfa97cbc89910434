"""SCRAM (RFC 5802): both sides prove that they know the password, and neither sends it.

Pure: bytes in, an outcome out. Nonces are passed in.

    client first    n,[a=authzid],n=name,r=nonce[,tokenauth=true]
    server first    r=nonce of both,s=salt,i=iterations
    client final    c=gs2 header in base64,r=nonce of both,p=proof
    server final    v=signature

    auth message    = client first without gs2 header, server first, client final without proof: the bytes as sent
    proof           = client key XOR HMAC(stored key, auth message)
    signature       = HMAC(server key, auth message)

    a login costs the server two HMACs and a hash; PBKDF2 is the client's work
    the nonce and the channel binding of client final are the ones of this exchange (CVE-2024-56128); librdkafka before
    2.6.1 repeats its own nonce before that of both, and is let in, as by Kafka
    an authorization id other than the name itself is refused, before the name is looked up (CVE-2017-12610)
    a name that does not exist gets iterations and a salt like those of users, always the same for as long as users have
    these, and fails at the same message after the same work
    messages to the client are the same for all that is wrong with a credential
    a message is parsed in one pass of compiled code: half a megabyte of a stranger takes milliseconds

A delegation token logs in with `tokenauth=true`: the name is its id, the password its HMAC in base64. The client is
then the token's owner. An expired token is refused.

Names are ASCII in Kafka, which escapes `,` as `=2C` and `=` as `=3D` and refuses any other `=`.
"""

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum

from leadline.security.principal import USER_TYPE, Principal
from leadline.security.sasl_mechanisms import Authenticated, Challenge, Failed, Outcome
from leadline.security.sasl_names import SASL_NAME, decoded, encoded, is_escaped
from leadline.security.scram_credentials import (
    KAFKAS_FORM,
    MIN_ITERATIONS,
    MOST_CLIENT_ITERATIONS,
    RANDOM_BYTES,
    CredentialForm,
    ScramCredential,
    ScramMechanism,
    client_key,
    random_text,
    salted_password,
    server_key,
)
from leadline.security.secret import Secret

_VALUE = rb"[\x01-\x2b\x2d-\x7f]++"
_PRINTABLE = rb"[\x21-\x2b\x2d-\x7e]++"
_BASE64 = rb"[a-zA-Z0-9/+]*+={0,2}"  # `_parsed` checks the length
_MOST_EXTENSIONS = 100  # there is one that means something
_EXTENSIONS = rb"(?:,[A-Za-z]+=" + _VALUE + rb"){0,%d}" % _MOST_EXTENSIONS

_CLIENT_FIRST = re.compile(
    rb"(?P<gs2>n,(?:a=(?P<authzid>" + SASL_NAME + rb"))?,)(?P<bare>(?:m=" + _VALUE + rb",)?"
    rb"n=(?P<name>" + SASL_NAME + rb"),r=(?P<nonce>" + _PRINTABLE + rb")(?P<extensions>" + _EXTENSIONS + rb"))"
)
_SERVER_FIRST = re.compile(
    rb"(?:m=" + _VALUE + rb",)?r=(?P<nonce>" + _PRINTABLE + rb"),s=(?P<salt>" + _BASE64 + rb")"
    rb",i=(?P<iterations>[0-9]{1,10})" + _EXTENSIONS
)
_CLIENT_FINAL = re.compile(
    rb"(?P<without_proof>c=(?P<channel>" + _BASE64 + rb"),r=(?P<nonce>" + _PRINTABLE + rb")" + _EXTENSIONS + rb")"
    rb",p=(?P<proof>" + _BASE64 + rb")"
)
_SERVER_FINAL = re.compile(rb"(?:e=(?P<error>" + _VALUE + rb"))|(?:v=(?P<signature>" + _BASE64 + rb"))" + _EXTENSIONS)
_NAMES, _IN_BASE64 = ("authzid", "name"), ("salt", "channel", "proof", "signature")  # groups of the patterns

OTHER_AUTHORIZATION_ID = "Authentication failed: Client requested an authorization id that is different from username"


@dataclass(frozen=True, slots=True)
class TokenCredential:
    """What a login by delegation token needs of the token."""

    owner: Principal
    credential: ScramCredential
    expires_ms: int


@dataclass(frozen=True, slots=True)
class ScramUsers:
    """The users of a mechanism. `decoy_key` makes the salts of names that do not exist: the same on all brokers."""

    credential_of: Callable[[str], ScramCredential | None]
    token_of: Callable[[str], TokenCredential | None]
    decoy_key: Secret
    forms: Callable[[], Collection[CredentialForm]] = lambda: ()  # of the credentials of users


class ScramExchange:
    """The server's side of one login."""

    def __init__(self, mechanism: ScramMechanism, users: ScramUsers, server_nonce: str) -> None:
        self._mechanism, self._users, self._server_nonce = mechanism, users, server_nonce.encode()
        self._first: _FirstMessages | None = None

    def evaluate(self, response: bytes, now_ms: int) -> Outcome:
        if self._first is None:
            return self._client_first(response, now_ms)
        return self._client_final(response, self._first)

    def _client_first(self, response: bytes, now_ms: int) -> Outcome:
        message = _parsed(_CLIENT_FIRST, response)
        if message is None:
            return Failed(reason="invalid SCRAM client first message")
        name = decoded(message["name"])
        if message["authzid"] is not None and decoded(message["authzid"]) != name:
            return Failed(OTHER_AUTHORIZATION_ID)
        login = self._login(name, _says_token(message["extensions"]), now_ms)
        nonce = message["nonce"] + self._server_nonce
        salt = base64.b64encode(login.credential.salt)
        challenge = b"r=%b,s=%b,i=%d" % (nonce, salt, login.credential.iterations)
        self._first = _FirstMessages(message["gs2"], nonce, message["bare"] + b"," + challenge, login)
        return Challenge(challenge)

    def _login(self, name: str, by_token: bool, now_ms: int) -> "_Login":
        if not by_token:
            decoy, credential = self._decoy(name, self._users.forms()), self._users.credential_of(name)
            if credential is None:
                return _Login(decoy, None, "no such user")
            if credential.iterations < MIN_ITERATIONS:
                return _Login(decoy, None, f"a credential with less than {MIN_ITERATIONS} iterations")
            return _Login(credential, Principal(USER_TYPE, name))
        decoy, token = self._decoy(name, ()), self._users.token_of(name)
        if token is None:
            return _Login(decoy, None, "no such delegation token")
        if token.expires_ms <= now_ms:
            return _Login(decoy, None, "the delegation token has expired")
        owner = Principal(token.owner.type, token.owner.name, token_authenticated=True)
        return _Login(token.credential, owner, expires_ms=token.expires_ms)

    def _decoy(self, name: str, forms: Collection[CredentialForm]) -> ScramCredential:
        """For a name that does not exist: a credential that matches no password, in one of the forms.

        Each form is as likely for a name as any other. A new one takes over some names; the others keep theirs.
        """
        digests = {form: self._digest(name, *form) for form in forms or (KAFKAS_FORM,)}
        form = max(digests, key=digests.__getitem__)
        salt = hashlib.shake_256(digests[form]).digest(RANDOM_BYTES if form.salt_bytes is None else form.salt_bytes)
        if form.salt_bytes is None:
            salt = random_text(salt).encode()
        keys = Secret(self._digest(name)[: hashlib.new(self._mechanism.hash).digest_size])
        return ScramCredential(salt, keys, keys, form.iterations)

    def _digest(self, name: str, *form: int | None) -> bytes:
        text = ":".join(map(str, (self._mechanism.value, *form, name)))
        return hmac.digest(self._users.decoy_key.reveal(), text.encode(), "sha512")

    def _client_final(self, response: bytes, first: "_FirstMessages") -> Outcome:
        message = _parsed(_CLIENT_FINAL, response)
        if message is None:
            return Failed(reason="invalid SCRAM client final message")
        credential, hash_name = first.login.credential, self._mechanism.hash
        auth_message = first.auth_message + b"," + message["without_proof"]
        signature = hmac.digest(credential.stored_key.reveal(), auth_message, hash_name)
        proof = base64.b64decode(message["proof"])
        stored_key = hashlib.new(hash_name, _xor(signature, proof)).digest()
        is_proven = hmac.compare_digest(stored_key, credential.stored_key.reveal()) and len(proof) == len(signature)
        if not is_proven or first.login.principal is None:
            return Failed(reason=first.login.refusal or "wrong password")
        client_nonce = first.nonce.removesuffix(self._server_nonce)
        if message["nonce"] not in (first.nonce, client_nonce + first.nonce):
            return Failed(reason="the nonce of client final is not the one of this exchange")
        if base64.b64decode(message["channel"]) != first.gs2:
            return Failed(reason="the channel binding of client final is not the one of client first")
        final = hmac.digest(credential.server_key.reveal(), auth_message, hash_name)
        return Authenticated(first.login.principal, b"v=" + base64.b64encode(final), first.login.expires_ms)


@dataclass(frozen=True, slots=True)
class _Login:
    credential: ScramCredential
    principal: Principal | None  # None: this login cannot succeed
    refusal: str = ""
    expires_ms: int | None = None


@dataclass(frozen=True, slots=True)
class _FirstMessages:
    gs2: bytes
    nonce: bytes  # of client and server
    auth_message: bytes  # as far as it goes
    login: _Login


class ScramClientState(Enum):
    FIRST = 1
    FINAL = 2
    DERIVATION = 3
    SIGNATURE = 4
    COMPLETE = 5


class ScramClientFailed(Exception):
    """The server fails to prove its identity, or refuses the login."""


@dataclass(frozen=True, slots=True)
class PasswordDerivation:
    """PBKDF2, which takes a thousandth of a second and more: `run` it in a thread."""

    mechanism: ScramMechanism
    password: Secret
    salt: bytes = field(repr=False)
    iterations: int

    def run(self) -> Secret:
        return salted_password(self.mechanism, self.password, self.salt, self.iterations)


class ScramClient:
    """The client's side: a client of our own, or the broker itself when it logs in to another.

    The answer to server first needs the salted password: `evaluate` returns its derivation, `resume` takes the result.
    `answer` is for a client that may block.
    """

    def __init__(
        self, mechanism: ScramMechanism, name: str, password: Secret, nonce: str, by_token: bool = False
    ) -> None:
        self._mechanism, self._password, self._nonce = mechanism, password, nonce.encode()
        extension = b",tokenauth=true" if by_token else b""
        self._bare = b"n=%b,r=%b%b" % (encoded(name), self._nonce, extension)
        self._server_first = self._without_proof = self._signature = b""
        self.state = ScramClientState.FIRST

    @property
    def is_complete(self) -> bool:
        return self.state is ScramClientState.COMPLETE

    def evaluate(self, challenge: bytes) -> bytes | PasswordDerivation:
        """The next message; empty once the server has proven itself. Raises ScramClientFailed."""
        if self.state is ScramClientState.FIRST:
            self.state = ScramClientState.FINAL
            return b"n,," + self._bare
        if self.state is ScramClientState.FINAL:
            return self._derivation(challenge)
        if self.state is ScramClientState.SIGNATURE:
            return self._verify(challenge)
        raise ScramClientFailed("a challenge after the login was complete")

    def answer(self, challenge: bytes) -> bytes:
        """As `evaluate`, with the derivation within."""
        step = self.evaluate(challenge)
        return self.resume(step.run()) if isinstance(step, PasswordDerivation) else step

    def _derivation(self, challenge: bytes) -> PasswordDerivation:
        message = _parsed(_SERVER_FIRST, challenge)
        if message is None:
            raise ScramClientFailed("invalid SCRAM server first message")
        if not message["nonce"].startswith(self._nonce) or message["nonce"] == self._nonce:
            raise ScramClientFailed("the server's nonce does not continue the client's")
        salt, iterations = base64.b64decode(message["salt"]), int(message["iterations"])
        if not MIN_ITERATIONS <= iterations <= MOST_CLIENT_ITERATIONS:
            raise ScramClientFailed(f"the server asks for iterations beyond {MIN_ITERATIONS}..{MOST_CLIENT_ITERATIONS}")
        self._server_first, self._without_proof = challenge, b"c=biws,r=" + message["nonce"]
        self.state = ScramClientState.DERIVATION
        return PasswordDerivation(self._mechanism, self._password, salt, iterations)

    def resume(self, salted: Secret, /) -> bytes:
        """Client final."""
        assert self.state is ScramClientState.DERIVATION
        auth_message = b",".join([self._bare, self._server_first, self._without_proof])
        key, hash_name = client_key(self._mechanism, salted).reveal(), self._mechanism.hash
        signature = hmac.digest(hashlib.new(hash_name, key).digest(), auth_message, hash_name)
        self._signature = hmac.digest(server_key(self._mechanism, salted).reveal(), auth_message, hash_name)
        self.state = ScramClientState.SIGNATURE
        return self._without_proof + b",p=" + base64.b64encode(_xor(key, signature))

    def _verify(self, challenge: bytes) -> bytes:
        message = _parsed(_SERVER_FINAL, challenge)
        if message is None:
            raise ScramClientFailed("invalid SCRAM server final message")
        if message["error"] is not None:
            raise ScramClientFailed(f"the server refuses the login: {message['error'].decode()}")
        if not hmac.compare_digest(base64.b64decode(message["signature"]), self._signature):
            raise ScramClientFailed("the server's signature is wrong: it does not know the password")
        self.state = ScramClientState.COMPLETE
        return b""


def _parsed(pattern: re.Pattern[bytes], message: bytes) -> re.Match[bytes] | None:
    """The pattern finds the parts in one pass; their own rules are checked afterwards, in one pass each."""
    match = pattern.fullmatch(message)
    if match is None:
        return None
    parts = match.groupdict(b"")
    are_names = all(is_escaped(parts.get(name, b"")) for name in _NAMES)
    return match if are_names and all(len(parts.get(name, b"")) % 4 == 0 for name in _IN_BASE64) else None


def _says_token(extensions: bytes) -> bool:
    pairs = dict(part.split(b"=", 1) for part in extensions.split(b",") if part)
    return pairs.get(b"tokenauth", b"").lower() == b"true"


def _xor(one: bytes, other: bytes) -> bytes:
    """The result is as long as the first; the caller must compare the lengths."""
    other = other[: len(one)].ljust(len(one), b"\0")
    return (int.from_bytes(one, "big") ^ int.from_bytes(other, "big")).to_bytes(len(one), "big")
