"""What a broker shows of its authorizer's settings: super users, and who may use resources without ACLs.

Kafka counts both as sensitive: a response says whether they are set, and hides their values.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from leadline.cli.security_admin import SecurityAdmin
from leadline.errors import error_name
from leadline.security.acls import AclBinding
from leadline.security.authorizer import Authorizer
from leadline.security.principal import Principal, parse_super_users
from leadline.wire.messages import DescribeConfigsRequest, DescribeConfigsResponse

SUPER_USERS, ALLOW_EVERYONE = "super.users", "allow.everyone.if.no.acl.found"
BROKER = 4  # as a type of resources that have settings


@dataclass(frozen=True, slots=True)
class AuthorizerSettings:
    super_users: frozenset[Principal] | None = frozenset()  # None: set, and hidden
    allow_everyone: bool | None = False
    problem: str = ""  # why nothing at all can be seen

    def authorizer(self, bindings: "list[AclBinding]") -> Authorizer:
        """An authorizer that decides by these ACLs. A hidden setting counts as not set."""
        authorizer = Authorizer(self.super_users or (), self.allow_everyone or False)
        for pattern in {binding.pattern for binding in bindings}:
            authorizer.put(pattern, [binding.entry for binding in bindings if binding.pattern == pattern])
        return authorizer

    def blind_spots(self) -> Iterator[str]:
        """The settings that brokers hide, and that might change the decision."""
        if self.problem:
            yield f"{SUPER_USERS} and {ALLOW_EVERYONE} ({self.problem})"
            return
        if self.super_users is None:
            yield f"{SUPER_USERS} (set, and hidden by the brokers): they may do everything"
        if self.allow_everyone is None:
            yield f"{ALLOW_EVERYONE} (set, and hidden): it decides without ACLs"


def authorizer_settings(admin: SecurityAdmin) -> AuthorizerSettings:
    """The settings of the controller: they should be the same on all brokers."""
    controller = admin.client.controller()
    resource = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=BROKER,
        resource_name=str(admin.client.controller_id),
        configuration_keys=[SUPER_USERS, ALLOW_EVERYONE],
    )
    answer = controller.ask(DescribeConfigsRequest(resources=[resource]), DescribeConfigsResponse)
    for result in answer.results:
        if result.error_code:
            return AuthorizerSettings(None, None, error_name(result.error_code))
    configs = {config.name: config.value for result in answer.results for config in result.configs}
    super_users, allow_everyone = configs.get(SUPER_USERS, ""), configs.get(ALLOW_EVERYONE, "false")
    return AuthorizerSettings(
        None if super_users is None else parse_super_users(super_users),
        None if allow_everyone is None else allow_everyone.strip().lower() == "true",
    )
