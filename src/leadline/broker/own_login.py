"""The login of this broker to other ones, as the JAAS line of a mechanism says: its options username and password.

They stand beside the users of the listener, in the same line. `tokenauth` makes them the id and the HMAC of a
delegation token, as in Kafka.
"""

from collections.abc import Callable

from leadline.config.values import InvalidSetting
from leadline.runtime.ports import Chance
from leadline.security.jaas import LoginModule
from leadline.security.plain import PLAIN
from leadline.security.sasl_client_authenticator import SaslClientAuthenticator, password_exchange
from leadline.security.scram_credentials import SCRAM_MECHANISMS
from leadline.security.secret import Secret

OWN_MECHANISMS = (PLAIN, *SCRAM_MECHANISMS)
_NOTHING = Secret(b"")

NewLogin = Callable[[], SaslClientAuthenticator]


def own_login(setting: str, mechanism: str, module: LoginModule | None, chance: Chance) -> NewLogin:
    """`setting`: the name of the JAAS line. Raises InvalidSetting."""
    if mechanism not in OWN_MECHANISMS:
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

    def new_login() -> SaslClientAuthenticator:
        exchange = password_exchange(mechanism, name, password, chance.secret_bytes, by_token=by_token)
        return SaslClientAuthenticator(mechanism, exchange)

    return new_login
