"""DescribeUserScramCredentials and AlterUserScramCredentials: who may log in by SCRAM.

A request carries salt and salted password, never the password. One bad entry of a user fails all entries of that user,
and none of another's.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from functools import partial

from leadline.api.context import Context
from leadline.api.kraft import NOT_CONTROLLER
from leadline.errors import (
    DuplicateResource,
    NotController,
    ResourceNotFound,
    UnacceptableCredential,
    UnknownServerError,
    UnsupportedSaslMechanism,
    WireError,
)
from leadline.security.client_quotas import QuotaEntity
from leadline.security.scram_credentials import (
    MAX_ITERATIONS,
    MIN_ITERATIONS,
    ScramMechanism,
    credential_of,
    credential_text,
)
from leadline.security.scram_users import ScramUserCredentials
from leadline.security.secret import Secret
from leadline.wire.messages import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Altered = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
_Described = DescribeUserScramCredentialsResponse.DescribeUserScramCredentialsResult

EMPTY_NAME = "Username must not be empty"

_MECHANISMS = {mechanism.value: mechanism for mechanism in ScramMechanism}


def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, ctx: Context
) -> DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials, v0. No users, or none named: all that have a credential."""
    if (refusal := ctx.refused("cluster")) is not None:
        refused = _Described(error_code=refusal.code, error_message=str(refusal))
        return DescribeUserScramCredentialsResponse(
            error_code=refusal.code, error_message=str(refusal), results=[refused] * len(request.users or ())
        )
    credentials = ctx.services.scram_users
    names = Counter(user.name for user in request.users or ()) or Counter(credentials.users)
    return DescribeUserScramCredentialsResponse(
        results=[_described(name, count, credentials) for name, count in names.items()]
    )


def _described(name: str, count: int, credentials: ScramUserCredentials) -> _Described:
    by_mechanism = credentials.mechanisms_of(name)
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _Described(user=name, error_code=DuplicateResource.code, error_message=message)
    if not by_mechanism:
        message = f"Attempt to describe a user credential that does not exist: {name}" if name else EMPTY_NAME
        return _Described(user=name, error_code=ResourceNotFound.code, error_message=message)
    return _Described(
        user=name,
        credential_infos=[
            DescribeUserScramCredentialsResponse.CredentialInfo(
                mechanism=mechanism.value, iterations=credential.iterations
            )
            for mechanism, credential in by_mechanism.items()
        ],
    )


async def alter_user_scram_credentials(
    request: AlterUserScramCredentialsRequest, ctx: Context
) -> AlterUserScramCredentialsResponse:
    """AlterUserScramCredentials, v0."""
    entries = defaultdict[str, list[_Deletion | _Upsertion]](list)
    for deletion in request.deletions:
        entries[deletion.name].append(deletion)
    for upsertion in request.upsertions:
        entries[upsertion.name].append(upsertion)
    refusal = ctx.refused("cluster") if ctx.services.controller.is_active else NotController(NOT_CONTROLLER)
    if refusal is not None:
        return AlterUserScramCredentialsResponse(results=[_failed(user, refusal) for user in entries])
    store = ctx.services.client_configs
    failures = _failures(request, ctx.services.scram_users)
    results = [_failed(user, error) for user, error in failures.items()]
    for user in [user for user in entries if user not in failures]:
        try:
            await store.alter(QuotaEntity(user), partial(_altered, entries[user]))
        except WireError as error:
            failures[user] = error
            results.append(_failed(user, error))
    results += [_Altered(user=user) for user in entries if user not in failures]
    return AlterUserScramCredentialsResponse(results=results)


def _failed(user: str, error: WireError) -> _Altered:
    return _Altered(user=user, error_code=error.code, error_message=str(error))


def _failures(request: AlterUserScramCredentialsRequest, credentials: ScramUserCredentials) -> dict[str, WireError]:
    """Errors by user, in Kafka's order: illegal changes, users named twice, missing credentials."""
    entries: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    failures: dict[str, WireError] = {}
    counts = Counter((entry.name, entry.mechanism) for entry in entries)
    checks: Iterable[tuple[Iterable[_Deletion | _Upsertion], Callable[[_Deletion | _Upsertion], WireError | None]]] = (
        (entries, _illegality),
        (entries, lambda entry: _twice() if counts[entry.name, entry.mechanism] > 1 else None),
        (request.deletions, lambda entry: _absence(entry, credentials)),
    )
    for subjects, check in checks:
        checked = [(entry.name, check(entry)) for entry in subjects if entry.name not in failures]
        failures |= {user: error for user, error in checked if error is not None}  # the last one counts, as in Kafka
    return failures


def _illegality(entry: _Deletion | _Upsertion) -> WireError | None:
    if not entry.name:
        return UnacceptableCredential(EMPTY_NAME)
    if entry.mechanism not in _MECHANISMS:
        return UnsupportedSaslMechanism("Unknown SCRAM mechanism")
    if isinstance(entry, _Upsertion) and entry.iterations < MIN_ITERATIONS:
        return UnacceptableCredential("Too few iterations")
    if isinstance(entry, _Upsertion) and entry.iterations > MAX_ITERATIONS:
        return UnacceptableCredential("Too many iterations")
    return None


def _twice() -> WireError:
    return DuplicateResource("A user credential cannot be altered twice in the same request")


def _absence(entry: _Deletion | _Upsertion, credentials: ScramUserCredentials) -> WireError | None:
    if _MECHANISMS[entry.mechanism] in credentials.mechanisms_of(entry.name):
        return None
    return ResourceNotFound("Attempt to delete a user credential that does not exist")


def _altered(entries: list[_Deletion | _Upsertion], config: Mapping[str, str]) -> dict[str, str]:
    """The settings of a user afterwards; quotas stay."""
    after = dict(config)
    for entry in entries:
        mechanism = _MECHANISMS[entry.mechanism]
        if isinstance(entry, _Upsertion):
            if not entry.salted_password:
                raise UnknownServerError(
                    UnknownServerError.default_message
                )  # as in Kafka, whose HMAC takes no empty key
            salt, salted = bytes(entry.salt), Secret(bytes(entry.salted_password))
            after[mechanism.mechanism_name] = credential_text(credential_of(mechanism, salted, salt, entry.iterations))
        else:
            after.pop(mechanism.mechanism_name, None)
    return after
