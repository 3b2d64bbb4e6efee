"""Decisions as Kafka's StandardAuthorizer makes them: what is denied is denied, what nobody allows is not allowed.

An allowed READ, WRITE, DELETE or ALTER allows DESCRIBE, ALTER_CONFIGS allows DESCRIBE_CONFIGS. Denials imply nothing.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Final, Protocol, TypeAlias

from muster.coordinator.security.acl.model import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.identity import ANYONE, Identity, Principal

ALLOWED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}
"""Which allowed operations allow these; any other is allowed by itself and by ALL."""

MOST_KEPT: Final = 100_000
"""Decisions that are kept; then all of them are forgotten."""

Asked: TypeAlias = tuple[Principal, str, Operation, ResourceType, str]


class Authorizer(Protocol):
    """Who may do what, as the doors ask."""

    def allows(self, who: Identity, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether this is allowed now. Asked again for every request: rights change under a connection."""


class AclAuthorizer:
    """Decides by lists. `replace` them whenever they change: decisions are kept until then."""

    def __init__(self, super_users: Iterable[Principal] = (), *, allow_if_no_acl_found: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_no_acl_found
        self._kept: dict[Asked, bool] = {}
        self.replace(())

    def replace(self, acls: Iterable[Acl]) -> None:
        """These are all there are, from now on."""
        self._literal: dict[tuple[ResourceType, str], list[Acl]] = defaultdict(list)
        self._prefixed: dict[tuple[ResourceType, str], list[Acl]] = defaultdict(list)
        lengths: dict[ResourceType, set[int]] = defaultdict(set)
        for acl in acls:
            if acl.pattern is PatternType.PREFIXED:
                self._prefixed[acl.resource_type, acl.name].append(acl)
                lengths[acl.resource_type].add(len(acl.name))
            else:
                self._literal[acl.resource_type, acl.name].append(acl)
        self._lengths = {kind: sorted(found) for kind, found in lengths.items()}
        self._kept.clear()

    def allows(self, who: Identity, operation: Operation, kind: ResourceType, name: str) -> bool:
        """See `Authorizer.allows`."""
        asked = (who.principal, who.host, operation, kind, name)
        kept = self._kept.get(asked)
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                self._kept.clear()
            kept = self._kept[asked] = self._decide(who, operation, kind, name)
        return kept

    def is_super(self, who: Identity) -> bool:
        return who.principal in self._super_users

    def _decide(self, who: Identity, operation: Operation, kind: ResourceType, name: str) -> bool:
        if self.is_super(who):
            return True
        allowed = found = False
        by = ALLOWED_BY.get(operation, frozenset({operation, Operation.ALL}))
        for acl in self._naming(kind, name):
            found = True
            if not concerns(acl, who):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return False
            elif acl.operation in by:
                allowed = True
        return allowed or (self._allow_if_none and not found)

    def _naming(self, kind: ResourceType, name: str) -> Iterator[Acl]:
        """Every entry for a resource of this name."""
        yield from self._literal.get((kind, name), ())
        if name != WILDCARD:
            yield from self._literal.get((kind, WILDCARD), ())
        for length in self._lengths.get(kind, ()):
            if length > len(name):
                break
            yield from self._prefixed.get((kind, name[:length]), ())


def concerns(acl: Acl, who: Identity) -> bool:
    return acl.principal in (str(who.principal), str(ANYONE)) and acl.host in (WILDCARD, who.host)
