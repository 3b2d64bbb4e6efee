"""Which entries a filter means, as Kafka's AclBindingFilter (KIP-290)."""

from collections.abc import Collection
from typing import NamedTuple

from muster.coordinator.security.model import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType


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
    """Those that are meant, in order."""
    one = wanted.exact()
    if one is not None:
        return [one] if one in acls else []
    return sorted(filter(wanted.matches, acls))


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
