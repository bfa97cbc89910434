"""The ACLs of nodes: Kafka's, permission for permission."""

import pytest
from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from leadline.coordination.tree import Create
from leadline.coordination.zookeeper.access import acl_of
from leadline.coordination.zookeeper.requests import Chroot

OWNER, OWNER_AND_READERS = CREATOR_ALL_ACL, [*CREATOR_ALL_ACL, *READ_ACL_UNSAFE]


@pytest.mark.parametrize(
    ("path", "acl"),
    [
        ("/controller", OWNER_AND_READERS),
        ("/brokers/topics/t/partitions/0/state", OWNER_AND_READERS),
        ("/config", OWNER_AND_READERS),
        ("/config/topics/t", OWNER_AND_READERS),
        ("/config/clients", OWNER_AND_READERS),
        ("/kafka-acl/Topic/t", OWNER_AND_READERS),
        ("/delegation_token", OWNER_AND_READERS),
        ("/delegation_token/token_changes", OWNER_AND_READERS),
        ("/config/users", OWNER),
        ("/config/users/alice/clients/c", OWNER),
        ("/config/brokers/0", OWNER),
        ("/delegation_token/tokens", OWNER),
        ("/delegation_token/tokens/x", OWNER),
        ("/consumers", OPEN_ACL_UNSAFE),
        ("/consumers/group", OWNER_AND_READERS),
    ],
)
def test_with_set_acl_a_node_is_its_creators_and_what_holds_secrets_is_read_by_nobody_else(
    path: str, acl: list[object]
) -> None:
    assert acl_of(path, True) == acl
    assert acl_of(path, False) == OPEN_ACL_UNSAFE
    assert Chroot("/kafka", True).write(Create(path)).acl == acl
