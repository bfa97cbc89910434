"""The operations that a client may perform on a resource, as Metadata, DescribeCluster and DescribeGroups report them.

An operation is a bit, at the place of its code. Without an authorizer a client may do everything that the resource has.
"""

from leadline.security.acls import SUPPORTED_OPERATIONS

NOT_REQUESTED = -(1 << 31)
ALL_OPERATIONS = {
    resource_type: sum(1 << operation for operation in operations)
    for resource_type, operations in SUPPORTED_OPERATIONS.items()
}
