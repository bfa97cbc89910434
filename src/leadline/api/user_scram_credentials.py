"""DescribeUserScramCredentials and AlterUserScramCredentials: who may log in by SCRAM.

A request carries salt and salted password, never the password. One bad entry of a user fails all entries of that user,
and none of another's.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial

from leadline.api.context import Context
from leadline.errors import (
    DuplicateResource,
    NotController,
    ResourceNotFound,
    UnacceptableCredential,
    UnsupportedSaslMechanism,
    WireError,
)
from leadline.model import NONE
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

NOT_CONTROLLER = "This is not the correct controller for this cluster."

_MECHANISMS = {mechanism.value: mechanism for mechanism in ScramMechanism}


def describe_user_scram_credentials(
    request: DescribeUserScramCredentialsRequest, ctx: Context
) -> DescribeUserScramCredentialsResponse:
    """DescribeUserScramCredentials, v0. No users, or none named: all that have a credential."""
    if (refusal := ctx.refused("cluster")) is not None:
        return DescribeUserScramCredentialsResponse(error_code=refusal.code, error_message=str(refusal))
    credentials = ctx.services.scram_users
    names = [user.name for user in request.users or ()]
    return DescribeUserScramCredentialsResponse(
        results=[_described(name, names.count(name), credentials) for name in dict.fromkeys(names)]
        or [_described(name, 1, credentials) for name in credentials.users]
    )


def _described(name: str, count: int, credentials: ScramUserCredentials) -> _Described:
    by_mechanism = credentials.mechanisms_of(name)
    if count > 1:
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
        return _Described(user=name, error_code=DuplicateResource.code, error_message=message)
    if not by_mechanism:
        message = f"Attempt to describe a user credential that does not exist: {name}"
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
    entries: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    users = list(dict.fromkeys(entry.name for entry in entries))
    refusal = ctx.refused("cluster") if ctx.services.controller.is_active else NotController(NOT_CONTROLLER)
    if refusal is not None:
        return AlterUserScramCredentialsResponse(results=[_failed(user, refusal) for user in sorted(users)])
    store = ctx.services.client_configs
    assert store is not None, "a broker that serves requests has it"
    failures = _failures(request, ctx.services.scram_users)
    results = [_failed(user, error) for user, error in failures.items()]
    for user in users:
        if user not in failures:
            change = partial(_altered, [entry for entry in entries if entry.name == user])
            try:
                await store.alter(QuotaEntity(user), change)
            except WireError as error:
                results.append(_failed(user, error))
    failed = {result.user for result in results}
    results += [_Altered(user=user, error_code=NONE) for user in users if user not in failed]
    return AlterUserScramCredentialsResponse(results=results)


def _failed(user: str, error: WireError) -> _Altered:
    return _Altered(user=user, error_code=error.code, error_message=str(error))


def _failures(request: AlterUserScramCredentialsRequest, credentials: ScramUserCredentials) -> dict[str, WireError]:
    """By user, in Kafka's order: what is illegal, what is named twice, what is not there."""
    entries: list[_Deletion | _Upsertion] = [*request.deletions, *request.upsertions]
    failures: dict[str, WireError] = {}
    named = [(entry.name, entry.mechanism) for entry in entries]
    checks: Iterable[tuple[Iterable[_Deletion | _Upsertion], Callable[[_Deletion | _Upsertion], WireError | None]]] = (
        (entries, _illegality),
        (entries, lambda entry: _twice() if named.count((entry.name, entry.mechanism)) > 1 else None),
        (request.deletions, lambda entry: _absence(entry, credentials)),
    )
    for subjects, check in checks:
        for entry in subjects:
            if entry.name not in failures and (error := check(entry)) is not None:
                failures[entry.name] = error
    return failures


def _illegality(entry: _Deletion | _Upsertion) -> WireError | None:
    if not entry.name:
        return UnacceptableCredential("Username must not be empty")
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
            salt, salted = bytes(entry.salt), Secret(bytes(entry.salted_password))
            after[mechanism.mechanism_name] = credential_text(credential_of(mechanism, salted, salt, entry.iterations))
        else:
            after.pop(mechanism.mechanism_name, None)
    return after
