"""The settings of delegation tokens. There are tokens only if there is a secret that they are signed with.

Pure: a table.
"""

from dataclasses import dataclass

from leadline.config.checks import at_least
from leadline.config.settings import Importance, Settings, setting
from leadline.config.values import DAY_MS, ConfigType, Password

LONG, PASSWORD = ConfigType.LONG, ConfigType.PASSWORD


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class DelegationTokenConfig(Settings):
    __slots__ = ()

    delegation_token_secret_key: Password | None = setting(
        None, PASSWORD, "the secret that delegation tokens are signed with; the same on all brokers; none: no tokens"
    )
    delegation_token_master_key: Password | None = setting(None, PASSWORD, "the older name of that secret")
    delegation_token_max_lifetime_ms: int = setting(7 * DAY_MS, LONG, "how long a token may be renewed", at_least(1))
    delegation_token_expiry_time_ms: int = setting(
        DAY_MS, LONG, "how long a token is valid before it is renewed", at_least(1)
    )
    delegation_token_expiry_check_interval_ms: int = setting(
        3_600_000, LONG, "interval between checks for expired tokens", at_least(1), importance=Importance.LOW
    )
