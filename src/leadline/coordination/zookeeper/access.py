"""How ZooKeeper is reached and how its nodes are protected: TLS, a login, and Kafka's ACLs.

without zookeeper.set.acl every client may do everything with a node
with it, only the user that created a node may change it, and every client may read it
nodes with secrets are for that user alone: settings of users and of brokers, delegation tokens
/consumers stays open: old consumers write there
"""

import ssl
from dataclasses import dataclass
from typing import Any

from kazoo.security import CREATOR_ALL_ACL, OPEN_ACL_UNSAFE, READ_ACL_UNSAFE

from leadline.coordination.zookeeper.digest_md5 import DigestLogin

OPEN = "/consumers"
SENSITIVE = ("/config/users", "/config/brokers", "/delegation_token/tokens")


@dataclass(frozen=True, slots=True)
class ZooKeeperAccess:
    tls: ssl.SSLContext | None = None  # None: the connection is plain
    login: DigestLogin | None = None  # None: no user, or the certificate's owner
    set_acl: bool = False


PLAIN_ACCESS = ZooKeeperAccess()


def acl_of(path: str, set_acl: bool) -> list[Any]:
    """The ACL of a new node, in the form of kazoo. Its creator is the session's user, by SASL or certificate."""
    if not set_acl or path == OPEN:
        return list(OPEN_ACL_UNSAFE)
    return [*CREATOR_ALL_ACL, *(() if path.startswith(SENSITIVE) else READ_ACL_UNSAFE)]
