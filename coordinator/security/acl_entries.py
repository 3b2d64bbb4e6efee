"""Filters over entries of access control lists (Kafka's AclBindingFilter, KIP-290), and validation of new entries.

A new entry is checked as Kafka's brokers and its tool check it; an entry that could never apply is refused.
"""

from collections.abc import Collection
from ipaddress import ip_address
from typing import Final, NamedTuple

from muster.coordinator.security.access_model import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    check_principal,
)

# Filters
# -------


class AclFilter(NamedTuple):
    """None, and ANY, mean all there are."""

    resource_type: ResourceType = ResourceType.ANY
    pattern: PatternType = PatternType.ANY
    """MATCH: whatever is about a resource of this name."""
    name: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._about(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _about(self, acl: Acl) -> bool:
        if self.pattern not in (PatternType.ANY, PatternType.MATCH, acl.pattern):
            return False
        if self.name in (None, acl.name):
            return True
        if self.name is None or self.pattern is not PatternType.MATCH:
            return False
        return acl.name == WILDCARD if acl.pattern is PatternType.LITERAL else self.name.startswith(acl.name)

    def exact(self) -> Acl | None:
        """The one entry that can be meant; None where there may be several."""
        if self.name is None or self.principal is None or self.host is None:
            return None
        if ResourceType.ANY is self.resource_type or Operation.ANY is self.operation:
            return None
        if self.pattern not in (PatternType.LITERAL, PatternType.PREFIXED) or self.permission is Permission.ANY:
            return None
        return Acl(
            self.resource_type,
            self.pattern,
            self.name,
            self.principal,
            self.host,
            self.operation,
            self.permission,
        )


def find_entries(acls: Collection[Acl], wanted: AclFilter) -> list[Acl]:
    """Those that are meant, in any order."""
    one = wanted.exact()
    if one is not None:
        return [one] if one in acls else []
    return list(filter(wanted.matches, acls))


def parse_acl_filter(
    resource_type: int,
    pattern: int,
    name: str | None,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> AclFilter:
    """From Kafka's numbers. Raises ValueError for one that Kafka does not have, or has as unknown."""
    if 0 in (resource_type, pattern, operation, permission):
        raise ValueError("the filter contains UNKNOWN elements; expected ANY for what does not matter")
    return AclFilter(
        ResourceType(resource_type),
        PatternType(pattern),
        name,
        principal,
        host,
        Operation(operation),
        Permission(permission),
    )


# Validation
# ----------

MOST_ACLS: Final = 100_000
"""Entries of a node's lists."""

MOST_CHARACTERS: Final = 4_096
"""Of a name, or a principal."""


def check_entry(
    resource_type: int, pattern: int, name: str, principal: str, host: str, operation: int, permission: int
) -> Acl:
    """The entry that Kafka's numbers and words mean. Raises ValueError: which value is wrong, and what was expected."""
    kind = parse_resource_type(resource_type)
    if pattern not in (PatternType.LITERAL, PatternType.PREFIXED):
        raise ValueError(f"pattern type {pattern}; expected {PatternType.LITERAL:d} (LITERAL) or 4 (PREFIXED)")
    if permission not in (Permission.ALLOW, Permission.DENY):
        raise ValueError(f"permission {permission}; expected 3 (ALLOW) or 2 (DENY)")
    check_resource_name(kind, PatternType(pattern), name)
    if len(principal) > MOST_CHARACTERS:
        raise ValueError(f"the principal has {len(principal)} characters; expected at most {MOST_CHARACTERS}")
    check_principal(principal)
    return Acl(
        kind,
        PatternType(pattern),
        name,
        principal,
        normalize_address(host),
        parse_operation(kind, operation),
        Permission(permission),
    )


def parse_resource_type(number: int) -> ResourceType:
    if number not in SUPPORTED_OPERATIONS:
        kinds = ", ".join(f"{kind:d} ({kind.name})" for kind in SUPPORTED_OPERATIONS)
        raise ValueError(f"resource type {number}; expected one of {kinds}")
    return ResourceType(number)


def check_resource_name(kind: ResourceType, pattern: PatternType, name: str) -> None:
    if not name:
        raise ValueError("the resource has no name; expected one, or * for all")
    if len(name) > MOST_CHARACTERS:
        raise ValueError(f"the resource's name has {len(name)} characters; expected at most {MOST_CHARACTERS}")
    if kind is ResourceType.CLUSTER and (name != CLUSTER_NAME or pattern is not PatternType.LITERAL):
        raise ValueError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}, as LITERAL")


def parse_operation(kind: ResourceType, number: int) -> Operation:
    if number != Operation.ALL and number not in SUPPORTED_OPERATIONS[kind]:
        told = Operation(number).name if number in set(Operation) else str(number)
        allowed = ", ".join(sorted(each.name for each in SUPPORTED_OPERATIONS[kind]))
        raise ValueError(f"operation {told}; on {kind.name} there are ALL, {allowed}")
    return Operation(number)


def normalize_address(host: str) -> str:
    """As a connection's address is written, so that the two can be compared."""
    if host == WILDCARD:
        return host
    try:
        return str(ip_address(host))
    except ValueError:
        raise ValueError(
            f"host {host[:300]!r}; expected an IP address, or * for all: names are not looked up"
        ) from None
