"""The operations that a client may perform on a resource, as Metadata, DescribeCluster and DescribeGroups report them.

An operation is a bit, at the place of its code: read 3, write 4, create 5, delete 6, alter 7, describe 8,
cluster action 9, describe configs 10, alter configs 11, idempotent write 12. Without an authorizer a client may do
everything that the resource has.
"""

NOT_REQUESTED = -(1 << 31)
ALL_CLUSTER_OPERATIONS = 0b1_1111_1010_0000
ALL_TOPIC_OPERATIONS = 0b1101_1111_1000
ALL_GROUP_OPERATIONS = 0b1_0100_1000
