"""The login of this broker to others, by the options username and password of a mechanism's JAAS line.

They stand beside the users of the listener, in the same line. `tokenauth` makes them the id and the HMAC of a
delegation token, as in Kafka. By OAUTHBEARER a broker shows a token (`oauth_tokens`), by GSSAPI a ticket
(`kerberos_logins`).
"""

from collections.abc import Callable

from leadline.config.values import InvalidSetting
from leadline.runtime.ports import Chance
from leadline.security.gssapi import GSSAPI
from leadline.security.jaas import LoginModule
from leadline.security.oauthbearer import OAUTHBEARER
from leadline.security.plain import PLAIN
from leadline.security.sasl_client_authenticator import SaslClientAuthenticator, password_exchange
from leadline.security.scram_credentials import SCRAM_MECHANISMS
from leadline.security.secret import Secret

_WITH_PASSWORD = (PLAIN, *SCRAM_MECHANISMS)
OWN_MECHANISMS = (*_WITH_PASSWORD, OAUTHBEARER, GSSAPI)
_NOTHING = Secret(b"")

NewLogin = Callable[[str], SaslClientAuthenticator]  # to a host


def own_login(setting: str, mechanism: str, module: LoginModule | None, chance: Chance) -> NewLogin:
    """`setting`: the name of the JAAS line. Raises InvalidSetting."""
    if mechanism not in _WITH_PASSWORD:
        raise InvalidSetting(
            f"sasl.mechanism.inter.broker.protocol={mechanism}: not supported: brokers log in to each other by "
            f"{', '.join(OWN_MECHANISMS)}"
        )
    options = {} if module is None else module.options
    name, password = options.get("username", _NOTHING).reveal_text(), options.get("password", _NOTHING)
    if not name or not password:
        raise InvalidSetting(
            f"{setting}: username and password are missing, by which this broker logs in to the others "
            f"(sasl.mechanism.inter.broker.protocol={mechanism})"
        )
    by_token = options.get("tokenauth", _NOTHING).reveal().lower() == b"true"

    def new_login(host: str) -> SaslClientAuthenticator:
        exchange = password_exchange(mechanism, name, password, chance.secret_bytes, by_token=by_token)
        return SaslClientAuthenticator(mechanism, exchange)

    return new_login
