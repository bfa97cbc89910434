"""The settings of the authorizer, which decides what each principal may do.

Pure: a table.
"""

from dataclasses import dataclass

from leadline.config.checks import anything
from leadline.config.settings import Importance, Settings, setting
from leadline.config.values import ConfigType

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"  # its ACLs are in ZooKeeper, or in the embedded tree


@dataclass(frozen=True, kw_only=True, init=False, repr=False, eq=False)
class AuthorizerConfig(Settings):
    """Settings of the authorizer. Kafka passes the last two to it unchecked."""

    __slots__ = ()

    authorizer_class_name: str = setting(
        "",
        ConfigType.STRING,
        "class that authorizes requests; empty: all requests are allowed",
        anything,
        importance=Importance.LOW,
        supported_values=(ACL_AUTHORIZER,),
        why=f"Java classes cannot be loaded; set {ACL_AUTHORIZER}, or leave it out",
    )
    super_users: str = setting(
        "",
        ConfigType.STRING,
        "users whose requests are always allowed, separated by semicolons",
        not_in_kafka=True,
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, ConfigType.BOOLEAN, "whether requests for a resource without any ACL are allowed", not_in_kafka=True
    )
