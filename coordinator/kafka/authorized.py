"""Authorized operations (KIP-430). There are no ACLs here: whoever asks may do all that Kafka lists for the kind."""

from typing import Final

READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = range(3, 9)
CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = range(9, 13)

OPERATIONS_NOT_REQUESTED: Final = -(1 << 31)


def operation_bits(*operations: int) -> int:
    """Kafka's form of a set of operations.

    >>> operation_bits(READ, DELETE)
    72
    """
    return sum(1 << operation for operation in operations)


GROUP_OPERATIONS: Final = operation_bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
TOPIC_OPERATIONS: Final = operation_bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS)
CLUSTER_OPERATIONS: Final = operation_bits(
    CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE
)
