"""Kafka's words for rights, with Kafka's numbers (AclOperation, ResourceType, PatternType, AclPermissionType)."""

from enum import IntEnum
from typing import NamedTuple


class Operation(IntEnum):
    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The one resource of the type CLUSTER."""

WILDCARD = "*"
"""As a literal name: every resource of the type. As a host: every address."""


class Acl(NamedTuple):
    """One entry of the lists: who may, or may not, do what, from where (KIP-11, KIP-290)."""

    resource_type: ResourceType
    pattern: PatternType
    """LITERAL or PREFIXED."""
    name: str
    principal: str
    """`User:alice`, `User:*`."""
    host: str
    """An address, or `*`."""
    operation: Operation
    permission: Permission
