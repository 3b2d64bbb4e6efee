"""Kafka's words for access: principals, identities, operations, resource types, and entries of access control lists.

Operations, resource types, pattern types and permissions have Kafka's numbers (AclOperation, ResourceType, PatternType,
AclPermissionType); an entry is a KIP-11 and KIP-290 binding. `SUPPORTED_OPERATIONS` is Kafka's AclEntry: the operations
that exist on each resource type; only these, and ALL, can be granted.

A principal is what entries name, such as `User:alice` (KIP-11). An identity is a principal, the address it speaks from
and how it authenticated; one object for as long as nothing of it changes. A node with `authorizer=none` uses the
anonymous identity only.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from math import inf
from typing import Any, Final, NamedTuple

# Principals and identities
# -------------------------

USER = "User"
"""The only kind of principal that Kafka's own authenticators make."""


class Principal(NamedTuple):
    """Somebody, as access control lists name them: `User:alice` (KIP-11)."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal(USER, "ANONYMOUS")
"""Who has not said who they are."""

ANYONE = Principal(USER, "*")
"""Everybody, in an access control list."""


def parse_principal(text: str) -> Principal:
    """Raises ValueError.

    >>> parse_principal("User:CN=worker-1,O=Example")
    Principal(kind='User', name='CN=worker-1,O=Example')
    """
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ValueError(f"{text!r} is not a principal; expected KIND:NAME, such as User:alice")
    return Principal(kind, name)


def check_principal(text: str) -> str:
    """One that somebody may come as. Raises ValueError: what names nobody is a mistake, and bad where it denies.

    >>> check_principal("User:alice")
    'User:alice'
    """
    kind, name = parse_principal(text)
    if kind != USER and kind.strip().lower() == USER.lower():
        raise ValueError(f"{text!r} names nobody: kinds of principals are written as they are, {USER}:{name}")
    if name != name.strip():
        raise ValueError(f"{text!r} names nobody: expected no spaces before or behind the name")
    return text


@dataclass(slots=True)
class KnownTopicRights:
    """What somebody's rights to topics were when they were asked for last, and in which moment of the lists."""

    moment: object = None
    rights: Any = None
    """A `core.rights.Rights`."""


@dataclass(frozen=True, slots=True)
class Identity:
    """A principal, from where it speaks and how it has shown who it is. One object as long as nothing of it changes."""

    principal: Principal
    host: str
    """Its address, without the port."""
    mechanism: str = ""
    """Such as `SCRAM-SHA-256`, `mTLS`, `TOKEN`; empty for who has shown nothing."""
    until_s: float = inf
    """When it ends, by the monotonic clock: a token's end, or the next re-authentication."""
    token_id: str = ""
    """Of the API token by which it came, to be looked up when tokens are revoked."""
    cleared: dict[tuple[int, str], object] = field(default_factory=dict, init=False, repr=False, compare=False)
    """What it was found to have a right to, and in which moment of the lists; the doors' judges'."""
    told: KnownTopicRights = field(default_factory=KnownTopicRights, init=False, repr=False, compare=False)
    """Of this one only: whoever is made from it is asked for anew (`edge/listener_base.py`)."""

    @property
    def anonymous(self) -> bool:
        return self.principal == ANONYMOUS


UNAUTHENTICATED = Identity(ANONYMOUS, "")
"""Whoever asks, where nobody is asked who they are."""


# Operations, resources and entries
# ---------------------------------


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


# Operations of each resource type
# --------------------------------

SUPPORTED_OPERATIONS: Final[Mapping[ResourceType, frozenset[Operation]]] = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset(
        {
            Operation.READ,
            Operation.DELETE,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.DESCRIBE, Operation.WRITE, Operation.TWO_PHASE_COMMIT}),
    ResourceType.DELEGATION_TOKEN: frozenset({Operation.DESCRIBE}),
    ResourceType.USER: frozenset({Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS}),
}
