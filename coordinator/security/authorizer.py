"""Decides by access control lists as Kafka's StandardAuthorizer does, and explains its decisions.

A denial wins; without an allowance nothing is allowed. An allowed READ, WRITE, DELETE or ALTER implies DESCRIBE, and
ALTER_CONFIGS implies DESCRIBE_CONFIGS; denials imply nothing. Decisions are kept until an entry changes.

`find_deciding_entry` names the entry that decides, for `muster acls check`. `describe_missing_right` tells a caller
that may know of the resource which right is missing, and the command that grants it.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from shlex import quote
from typing import Final, Protocol, TypeAlias

from muster.coordinator.security.access_model import (
    ANYONE,
    CLUSTER_NAME,
    WILDCARD,
    Acl,
    Identity,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)

# Decisions
# ---------

ALLOWED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}
"""Which allowed operations allow these; any other is allowed by itself and by ALL."""

MAX_KEPT_DECISIONS: Final = 100_000
"""Decisions that are kept; then all of them are forgotten."""

MAX_KEPT_NAME_CHARS: Final = 256
"""Of a name that a decision is kept for: names are the client's, and those of topics and groups are shorter."""

MAX_KEPT_NAME_SETS: Final = 1_000
"""Of who asks about very many."""

UNUSED_NAME: Final = "hardcode"
"""Kafka's word for a name that nobody uses, by which whoever may do everything is known."""

DecisionKey: TypeAlias = tuple[Principal, str, int, str | None]
"""By whom, from where, operation and type of resource in one number (an Enum's hash costs a call), and its name."""


MAX_CLEARED_NAMES: Final = 1_000
"""Names that one identity is known to have a right to, for as long as no list changes."""


def remember_allowed(who: Identity, right: object, name: str, moment: object) -> None:
    """Keep that somebody was allowed this in a moment of the lists: a heartbeat feels every call that it takes to ask.

    It is found by the right's id, which costs less than its hash: rights are rows of a table.
    """
    if len(name) > MAX_KEPT_NAME_CHARS:
        return
    if len(who.cleared) >= MAX_CLEARED_NAMES:
        who.cleared.clear()
    who.cleared[id(right), name] = moment


class Authorizer(Protocol):
    """Who may do what, as the doors ask. From any thread."""

    @property
    def moment(self) -> object:
        """Another object as soon as anything may be decided otherwise: what was allowed under this one still is."""

    def allows(self, who: Identity, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether this is allowed now. Asked again for every request: rights change under a connection."""

    def allows_any(self, who: Identity, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is a name of a resource with which this is allowed (KIP-679)."""

    def allows_every(self, who: Identity, operation: Operation, kind: ResourceType) -> bool:
        """Whether this is known to be allowed with every name: nothing of that kind is hidden."""

    def allowed_names(self, who: Identity, operation: Operation, kind: ResourceType) -> Callable[[str], bool]:
        """What `allows` says of each name, now: for who asks about very many. Nothing of it is kept."""

    def is_super(self, who: Identity) -> bool:
        """Whether everything is allowed."""


IndexKey: TypeAlias = tuple[object, ...]
"""By what entries are found: a table's word, the type of resource, and a name, or somebody's."""

LITERAL, PREFIXED, BY_PRINCIPAL = "literal", "prefixed", "of principal"


class AclIndex:
    """The entries of one moment, and what was decided by them. Whoever still asks old ones keeps nothing for others."""

    __slots__ = ("_lengths", "_table", "kept", "names")

    def __init__(self) -> None:
        self._table: dict[IndexKey, list[Acl]] = {}
        self._lengths: dict[ResourceType, Counter[int]] = {}
        """How many prefixes there are of each length."""
        self.kept: dict[DecisionKey, bool] = {}
        self.names: dict[DecisionKey, tuple[NameSet, NameSet]] = {}

    def changed(self, gone: Iterable[Acl], come: Iterable[Acl]) -> "AclIndex":
        """Those of the next moment. It takes the time of a look at each list that changes, however many there are."""
        after = AclIndex()
        after._table = dict(self._table)
        after._lengths = {kind: Counter(lengths) for kind, lengths in self._lengths.items()}
        left, new = index_entries(gone), index_entries(dict.fromkeys(come))
        for place in {**left, **new}:
            touched = {*left.get(place, ()), *new.get(place, ())}
            before = self._table.get(place, ())
            after._put(place, [acl for acl in before if acl not in touched] + new.get(place, []))
        return after

    def _put(self, place: IndexKey, acls: list[Acl]) -> None:
        table, kind, name = place
        if table == PREFIXED:
            assert isinstance(kind, ResourceType)
            assert isinstance(name, str)
            lengths = self._lengths.setdefault(kind, Counter())
            lengths[len(name)] += bool(acls) - (place in self._table)
            if not lengths[len(name)]:
                del lengths[len(name)]
        if acls:
            self._table[place] = acls
        else:
            self._table.pop(place, None)

    def naming(self, kind: ResourceType, name: str) -> Iterator[Acl]:
        """Every entry for a resource of this name."""
        yield from self._table.get((LITERAL, kind, name), ())
        if name != WILDCARD:
            yield from self._table.get((LITERAL, kind, WILDCARD), ())
        for length in self._lengths.get(kind, ()):
            yield from self._table.get((PREFIXED, kind, name[:length]), ()) if length <= len(name) else ()

    def of_principals(self, kind: ResourceType, *principals: str) -> list[Acl]:
        """Every entry about the type of resource that names one of these."""
        return [acl for who in principals for acl in self._table.get((BY_PRINCIPAL, kind, who), ())]


def index_entries(acls: Iterable[Acl]) -> dict[IndexKey, list[Acl]]:
    """Each twice: by whom it is about, and by what."""
    found: dict[IndexKey, list[Acl]] = defaultdict(list)
    for acl in acls:
        table = PREFIXED if acl.pattern is PatternType.PREFIXED else LITERAL
        found[table, acl.resource_type, acl.name].append(acl)
        found[BY_PRINCIPAL, acl.resource_type, acl.principal].append(acl)
    return found


class NameSet:
    """All the names that some entries are about."""

    __slots__ = ("_beginnings", "_literal", "has_every")

    def __init__(self, acls: Iterable[Acl]) -> None:
        entries = list(acls)
        self._beginnings = tuple({acl.name for acl in entries if acl.pattern is PatternType.PREFIXED})
        self._literal = frozenset(acl.name for acl in entries if acl.pattern is PatternType.LITERAL)
        self.has_every = WILDCARD in self._literal

    @property
    def is_empty(self) -> bool:
        return not (self._beginnings or self._literal)

    def __contains__(self, name: str) -> bool:
        return self.has_every or name in self._literal or name.startswith(self._beginnings)


class AclAuthorizer:
    """Decides by lists. `replace` or `change` them whenever they change: decisions are kept until then."""

    def __init__(self, super_users: Iterable[Principal] = (), *, allow_if_no_acl_found: bool = False) -> None:
        self._super_users = frozenset(super_users)
        self._allow_if_none = allow_if_no_acl_found
        self._lists = self.moment = AclIndex()

    def replace(self, acls: Iterable[Acl]) -> None:
        """These are all there are, from now on."""
        self._lists = self.moment = AclIndex().changed((), acls)

    def change(self, gone: Iterable[Acl], come: Iterable[Acl]) -> None:
        """From now on those are no more, and these are, whether or not they were."""
        self._lists = self.moment = self._lists.changed(gone, come)

    def allows(self, who: Identity, operation: Operation, kind: ResourceType, name: str) -> bool:
        """See `Authorizer.allows`."""
        lists = self._lists
        asked = (who.principal, who.host, operation << 8 | kind, name)
        kept = lists.kept.get(asked)
        if kept is None:
            kept = self._decide(lists, who, operation, kind, name)
            if len(name) <= MAX_KEPT_NAME_CHARS:
                if len(lists.kept) >= MAX_KEPT_DECISIONS:
                    lists.kept.clear()
                lists.kept[asked] = kept
        return kept

    def allows_any(self, who: Identity, operation: Operation, kind: ResourceType) -> bool:
        """As Kafka: by an allowance that no denial covers as a whole. See `Authorizer.allows_any`."""
        lists = self._lists
        asked = (who.principal, who.host, operation << 8 | kind, None)
        kept = lists.kept.get(asked)
        if kept is None:
            kept = lists.kept[asked] = self._decide(lists, who, operation, kind, UNUSED_NAME) or self._decide_any(
                lists, who, operation, kind
            )
        return kept

    def allows_every(self, who: Identity, operation: Operation, kind: ResourceType) -> bool:
        """See `Authorizer.allows_every`."""
        if self.is_super(who):
            return True
        allow, deny = self._kept_names(self._lists, who, operation, kind)
        return allow.has_every and deny.is_empty

    def allowed_names(self, who: Identity, operation: Operation, kind: ResourceType) -> Callable[[str], bool]:
        """See `Authorizer.allowed_names`."""
        lists = self._lists
        if self.is_super(who):
            return lambda name: True
        if self._allow_if_none:
            return lambda name: self._decide(lists, who, operation, kind, name)
        allow, deny = self._kept_names(lists, who, operation, kind)
        return lambda name: name in allow and name not in deny

    def _kept_names(
        self, lists: AclIndex, who: Identity, operation: Operation, kind: ResourceType
    ) -> tuple[NameSet, NameSet]:
        asked = (who.principal, who.host, operation << 8 | kind, None)
        names = lists.names.get(asked)
        if names is None:
            if len(lists.names) >= MAX_KEPT_NAME_SETS:
                lists.names.clear()
            names = lists.names[asked] = self._names(lists, who, operation, kind)
        return names

    @staticmethod
    def _names(lists: AclIndex, who: Identity, operation: Operation, kind: ResourceType) -> tuple[NameSet, NameSet]:
        """Those that are allowed, and those that are denied."""
        mine = [acl for acl in lists.of_principals(kind, *{str(who.principal), str(ANYONE)}) if applies_to(acl, who)]
        by = ALLOWED_BY.get(operation, frozenset({operation, Operation.ALL}))
        allow = NameSet(acl for acl in mine if acl.permission is Permission.ALLOW and acl.operation in by)
        taken = frozenset({operation, Operation.ALL})
        deny = NameSet(acl for acl in mine if acl.permission is Permission.DENY and acl.operation in taken)
        return allow, deny

    def is_super(self, who: Identity) -> bool:
        return who.principal in self._super_users

    def _decide_any(self, lists: AclIndex, who: Identity, operation: Operation, kind: ResourceType) -> bool:
        entries = lists.of_principals(kind, *{str(who.principal), str(ANYONE)})
        mine = [acl for acl in entries if applies_to(acl, who) and acl.operation in (operation, Operation.ALL)]
        denied = {acl[:3] for acl in mine if acl.permission is Permission.DENY}
        if (kind, PatternType.LITERAL, WILDCARD) in denied:
            return False
        return any(acl.permission is Permission.ALLOW and not is_denied(acl, denied) for acl in mine)

    def _decide(self, lists: AclIndex, who: Identity, operation: Operation, kind: ResourceType, name: str) -> bool:
        if self.is_super(who):
            return True
        allowed = found = False
        by = ALLOWED_BY.get(operation, frozenset({operation, Operation.ALL}))
        for acl in lists.naming(kind, name):
            found = True
            if not applies_to(acl, who):
                continue
            if acl.permission is Permission.DENY:
                if acl.operation in (operation, Operation.ALL):
                    return False
            elif acl.operation in by:
                allowed = True
        return allowed or (self._allow_if_none and not found)


def applies_to(acl: Acl, who: Identity) -> bool:
    return acl.principal in (str(who.principal), str(ANYONE)) and acl.host in (WILDCARD, who.host)


def is_denied(acl: Acl, denied: Set[tuple[object, ...]]) -> bool:
    """Whether a denial takes all that this entry allows."""
    kind, pattern, name = acl[:3]
    if (kind, pattern, name) in denied:
        return True
    if name == WILDCARD and pattern is PatternType.LITERAL:
        return False
    return any((kind, PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


# Why a decision was made
# -----------------------


def find_deciding_entry(
    about: Sequence[Acl], who: Identity, operation: Operation, *, allow_if_none: bool = False
) -> tuple[Acl | None, str]:
    """`about` are all entries for the resource; the one that decides, and why, in one sentence."""
    mine = [acl for acl in about if applies_to(acl, who)]
    for acl in mine:
        if acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL):
            return acl, f"no: {describe_entry(acl)}, and what is denied is denied"
    by = ALLOWED_BY.get(operation, frozenset({operation, Operation.ALL}))
    for acl in mine:
        if acl.permission is Permission.ALLOW and acl.operation in by:
            implied = f", which allows {operation.name}" if acl.operation is not operation else ""
            return acl, f"yes: {describe_entry(acl)}{implied}"
    if not about and allow_if_none:
        return None, "yes: no entry names it, and allow.everyone.if.no.acl.found is true"
    if not about:
        return None, "no: no entry names it"
    return (
        None,
        f"no: of {len(about)} entries about it, none allows {operation.name} to {who.principal} from {who.host}",
    )


def describe_entry(acl: Acl) -> str:
    """
    >>> about = ResourceType.TOPIC, PatternType.PREFIXED, "or"
    >>> describe_entry(Acl(*about, "User:bob", "*", Operation.READ, Permission.ALLOW))
    "User:bob is allowed READ on TOPIC 'or...' from anywhere"
    """
    what = "allowed" if acl.permission is Permission.ALLOW else "denied"
    name = f"'{acl.name}...'" if acl.pattern is PatternType.PREFIXED else f"'{acl.name}'"
    of = acl.resource_type.name if acl.resource_type is ResourceType.CLUSTER else f"{acl.resource_type.name} {name}"
    where = "from anywhere" if acl.host == "*" else f"from {acl.host}"
    return f"{acl.principal} is {what} {acl.operation.name} on {of} {where}"


# Refusals in words
# -----------------

RESOURCE_FLAGS = {
    ResourceType.TOPIC: "--topic",
    ResourceType.GROUP: "--group",
    ResourceType.TRANSACTIONAL_ID: "--transactional-id",
    ResourceType.USER: "--user-principal",
}
MAX_SHOWN_NAME_CHARS = 300
"""Of a name that is told back."""


def describe_missing_right(who: Identity, operation: Operation, kind: ResourceType, name: str) -> str:
    """
    >>> from muster.coordinator.security.access_model import Identity, Principal
    >>> describe_missing_right(Identity(Principal("User", "bob"), "10.0.0.7"), Operation.READ, ResourceType.GROUP,
    ... "billing")
    "User:bob at 10.0.0.7 lacks READ on GROUP 'billing'; \
muster acls add --allow-principal User:bob --operation READ --group billing"
    """
    shown = name if len(name) <= MAX_SHOWN_NAME_CHARS else name[:MAX_SHOWN_NAME_CHARS] + "..."
    what = "CLUSTER" if kind is ResourceType.CLUSTER and name == CLUSTER_NAME else f"{kind.name} {shown!r}"
    return (
        f"{who.principal} at {who.host} lacks {operation.name} on {what}; {grant_command(who, operation, kind, shown)}"
    )


def grant_command(who: Identity, operation: Operation, kind: ResourceType, name: str) -> str:
    """The command by which an administrator gives it."""
    of = "--cluster" if kind is ResourceType.CLUSTER else f"{RESOURCE_FLAGS.get(kind, '--topic')} {quote(name)}"
    return f"muster acls add --allow-principal {quote(str(who.principal))} --operation {operation.name} {of}"
