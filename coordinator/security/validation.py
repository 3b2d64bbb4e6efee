"""What may be an entry of the lists: as Kafka's brokers and its tool check it, and nothing that could never apply."""

from ipaddress import ip_address
from typing import Final

from muster.coordinator.security.identity import check_principal
from muster.coordinator.security.model import (
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from muster.coordinator.security.supported import SUPPORTED_OPERATIONS

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
