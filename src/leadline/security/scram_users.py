"""The SCRAM credentials of users, from their nodes.

a text that is no credential is logged, and its user cannot log in by that mechanism
the forms of a mechanism are those of the credentials by which a user can log in
"""

import logging
from collections import Counter
from collections.abc import Mapping

from leadline.security.client_quotas import QuotaEntity
from leadline.security.quota_nodes import ConfigEntity
from leadline.security.scram_credentials import (
    MIN_ITERATIONS,
    SCRAM_MECHANISMS,
    CredentialForm,
    InvalidCredential,
    ScramCredential,
    ScramMechanism,
    parse_credential,
)

log = logging.getLogger(__name__)


class ScramUserCredentials:
    def __init__(self) -> None:
        self._by_user: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        self._forms: dict[ScramMechanism, Counter[CredentialForm]] = {
            mechanism: Counter() for mechanism in ScramMechanism
        }

    def put(self, entity: ConfigEntity, config: Mapping[str, str]) -> None:
        """The settings of an entity. Only a user by itself has credentials: neither a default nor a client id."""
        if not isinstance(entity, QuotaEntity) or not isinstance(entity.user, str) or entity.client_id is not None:
            return
        self._count_forms(self._by_user.pop(entity.user, {}), -1)
        credentials = dict(_credentials(entity.user, config))
        if credentials:
            self._by_user[entity.user] = credentials
            self._count_forms(credentials, 1)

    def _count_forms(self, credentials: Mapping[ScramMechanism, ScramCredential], change: int) -> None:
        for mechanism, credential in credentials.items():
            forms, form = self._forms[mechanism], CredentialForm.of(credential)
            forms[form] += change
            if not forms[form]:
                del forms[form]

    def credential_of(self, mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        return self._by_user.get(user, {}).get(mechanism)

    def mechanisms_of(self, user: str) -> Mapping[ScramMechanism, ScramCredential]:
        return self._by_user.get(user, {})

    def forms_of(self, mechanism: ScramMechanism) -> list[CredentialForm]:
        """Those that logins by this mechanism show."""
        return [form for form in self._forms[mechanism] if form.iterations >= MIN_ITERATIONS]

    @property
    def users(self) -> list[str]:
        """All users with a credential, sorted by name."""
        return sorted(self._by_user)


def _credentials(user: str, config: Mapping[str, str]) -> list[tuple[ScramMechanism, ScramCredential]]:
    credentials = []
    for name, mechanism in SCRAM_MECHANISMS.items():
        if name in config:
            try:
                credentials.append((mechanism, parse_credential(config[name])))
            except InvalidCredential as error:
                log.error("ignoring an unreadable %s credential of user %s: %s", name, user, error)
    return credentials
