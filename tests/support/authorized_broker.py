"""A broker in memory with an authorizer. `root` may do everything; others have what a test gives them."""

from collections.abc import Awaitable, Callable

from leadline.security.acls import (
    CLUSTER_NAME,
    AccessControlEntry,
    AclBinding,
    AclOperation,
    AclPermission,
    ResourcePattern,
    ResourceType,
)
from leadline.security.authorizer import Authorizer
from leadline.security.principal import Principal
from tests.support.in_memory_broker import InMemoryClient, run

AUTHORIZER = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:root",
}
ROOT, ALICE = Principal("User", "root"), Principal("User", "alice")
ALLOW, DENY = AclPermission.ALLOW, AclPermission.DENY


class AuthorizedBroker:
    def __init__(self, root: InMemoryClient) -> None:
        self.root = root
        self.broker = root.broker
        root.client.principal = ROOT

    @property
    def authorizer(self) -> Authorizer:
        assert self.broker.services.acls is not None
        return self.broker.services.acls.authorizer

    def client(self, principal: Principal = ALICE) -> InMemoryClient:
        """A new connection."""
        client = InMemoryClient(self.broker)
        client.client.principal = principal
        return client

    def put(self, *bindings: AclBinding) -> None:
        """In force at once, without a detour over the tree."""
        for pattern, entry in bindings:
            self.authorizer.put(pattern, (*self.authorizer.entries(pattern), entry))

    def remove_all(self) -> None:
        for pattern in self.authorizer.patterns():
            self.authorizer.put(pattern, ())


def rule(
    operation: AclOperation,
    resource_type: ResourceType,
    name: str = CLUSTER_NAME,
    permission: AclPermission = ALLOW,
    principal: Principal = ALICE,
) -> AclBinding:
    return AclBinding(
        ResourcePattern(resource_type, name), AccessControlEntry(str(principal), "*", operation, permission)
    )


def run_authorized(test: Callable[[AuthorizedBroker], Awaitable[None]], **settings: str) -> None:
    async def main(client: InMemoryClient) -> None:
        await test(AuthorizedBroker(client))

    run(main, **{name.replace(".", "_"): value for name, value in AUTHORIZER.items()} | settings)
