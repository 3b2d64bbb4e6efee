"""Access control lists of a node: looked up, changed, served as the Acls service, and turned into rights to topics.

Whether the caller may look or change is checked before. A refused change changes nothing; if the disk fails, a part
of a change may stand. Kafka's listener uses the same lists. `PrincipalTopicRights` turns the lists into one
principal's rights to topics, which go with each join, so that groups look nothing up.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from muster.coordinator.core.model.rights import NONE, RightsAnew, TopicNames, TopicRights
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import acl_service_pb2 as pb
from muster.coordinator.security.access_model import (
    ANYONE,
    WILDCARD,
    Acl,
    Identity,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
    parse_principal,
)
from muster.coordinator.security.acl_entries import MOST_ACLS, AclFilter, check_entry, find_entries, parse_acl_filter
from muster.coordinator.security.authorizer import ALLOWED_BY, AclAuthorizer, applies_to, find_deciding_entry
from muster.coordinator.security.state import AclKey, SecurityRecord
from muster.coordinator.server.security.security_store import SecurityStore, error_code_for
from muster.long_work import make_aside, run_in_answer_thread, sort_in_runs
from muster.storage.errors import StorageError

# The lists
# ---------

MOST_COMPARED: Final = 2_000
"""Entries times filters that are compared at once, in a millisecond or so; more of them are, in the thread for large
answers."""


class TooManyAcls(ValueError):
    """There is no room for more."""


class NodeAcls:
    """The lists of a SecurityStore. What is refused changes nothing; of what the disk fails, a part may stand."""

    def __init__(self, store: SecurityStore) -> None:
        self._store = store

    async def described(self, wanted: AclFilter) -> list[Acl]:
        (matching,) = await self._found([wanted])
        return matching

    async def create(self, acls: Sequence[Acl]) -> None:
        """Those that are there already stay. Raises TooManyAcls, StorageError."""

        async def made() -> None:
            there = self._store.state.acls
            fresh = [acl for acl in dict.fromkeys(acls) if acl not in there]
            if len(there) + len(fresh) > MOST_ACLS:
                raise TooManyAcls(
                    f"{len(there)} entries are there, and {len(fresh)} to come; expected at most {MOST_ACLS}"
                )
            await self._store.write_all([SecurityRecord(AclKey(acl), acl) for acl in fresh])

        await self._store.settled(made)

    async def delete(self, wanted: Sequence[AclFilter]) -> list[list[Acl]]:
        """Take away what each filter means, and tell it. Raises StorageError."""
        told: list[dict[Acl, None]] = [{} for _ in wanted]

        async def gone() -> None:
            matching = await self._found(wanted)
            for each, found_now in zip(told, matching, strict=True):
                each.update(dict.fromkeys(found_now))
            all_of_them = dict.fromkeys(acl for some in matching for acl in some)
            await self._store.write_all([SecurityRecord(AclKey(acl), None) for acl in all_of_them])

        await self._store.settled(gone)
        return [list(each) for each in told]

    async def _found(self, wanted: Sequence[AclFilter]) -> list[list[Acl]]:
        """What each filter means, in order."""
        there = self._store.state.acls
        if len(there) * sum(each.exact() is None for each in wanted) <= MOST_COMPARED:
            return [sort_in_runs(find_entries(there, each)) for each in wanted]
        copied = frozenset(there)
        return await run_in_answer_thread(lambda: [sort_in_runs(find_entries(copied, each)) for each in wanted])


# A principal's rights to topics
# ------------------------------

MOST_KEPT: Final = 100_000
"""Principals at their addresses; then those that were met first are forgotten, and have their rights with their next
heartbeat only."""


class PrincipalTopicRights:
    """On the node's loop. `tell` gives the groups what has changed."""

    def __init__(self, is_super: Callable[[Identity], bool], *, allow_if_no_acl_found: bool = False) -> None:
        self._is_super = is_super
        self._allow_if_none = allow_if_no_acl_found
        # By principal and address: who logs in again is another Identity each time, and the same somebody.
        self._kept: dict[tuple[Principal, str], TopicRights] = {}
        self._acls: dict[str, set[Acl]] = defaultdict(set)
        self._ruled: TopicNames | None = None
        self.tell: Callable[[RightsAnew], None] = lambda event: None
        self.moment = object()
        """See `TopicRightsSource`. Whoever was told in it is among those that are kept."""

    def of(self, who: Identity) -> TopicRights:
        """See `TopicRightsSource`."""
        whose = who.principal, who.host
        kept = self._kept.get(whose)
        if kept is None:
            if len(self._kept) >= MOST_KEPT:
                del self._kept[next(iter(self._kept))]
                self.moment = object()  # who is forgotten may still come, and is to be met again then
            kept = self._kept[whose] = self._made(who)
        who.told.moment, who.told.rights = self.moment, kept
        return kept

    def replace(self, acls: Iterable[Acl]) -> None:
        """These are all there are; who has other rights by that is told."""
        former = [acl for each in self._acls.values() for acl in each]
        self._acls.clear()
        self.change(former, acls)

    def change(self, gone: Iterable[Acl], come: Iterable[Acl]) -> None:
        """These have gone, and come: whom none of them names costs no look."""
        self.moment = object()
        concerned: set[str] = set()
        for acls, there in ((gone, False), (come, True)):
            for acl in acls:
                if acl.resource_type is ResourceType.TOPIC:
                    (self._acls[acl.principal].add if there else self._acls[acl.principal].discard)(acl)
                    concerned.add(acl.principal)
        if self._allow_if_none:
            self._ruled = topic_names_of(acl for each in self._acls.values() for acl in each)
        for principal in concerned:
            if not self._acls[principal]:
                del self._acls[principal]
        everybody = str(ANYONE) in concerned or self._allow_if_none
        anew = {}
        for whose, before in self._kept.items():
            if everybody or str(whose[0]) in concerned:
                now = self._made(Identity(*whose))
                if now != before:
                    self._kept[whose] = anew[now.who] = now
        if anew:
            self.tell(RightsAnew(anew))

    def _made(self, who: Identity) -> TopicRights:
        key = f"{who.principal}@{who.host}"
        if self._is_super(who):
            return TopicRights(key, read=TopicNames(every=True), describe=TopicNames(every=True))
        found = [acl for name in {str(who.principal), str(ANYONE)} for acl in self._acls.get(name, ())]
        acls = [acl for acl in found if applies_to(acl, who)]
        return TopicRights(
            key,
            read=allowed_names(acls, {Operation.READ, Operation.ALL}),
            never_read=denied_names(acls, Operation.READ),
            describe=allowed_names(acls, ALLOWED_BY[Operation.DESCRIBE]),
            never_describe=denied_names(acls, Operation.DESCRIBE),
            ruled=self._ruled,
        )


def allowed_names(acls: Iterable[Acl], by: Iterable[Operation]) -> TopicNames:
    return topic_names_of(acl for acl in acls if acl.permission is Permission.ALLOW and acl.operation in by)


def denied_names(acls: Iterable[Acl], operation: Operation) -> TopicNames:
    return topic_names_of(
        acl for acl in acls if acl.permission is Permission.DENY and acl.operation in (operation, Operation.ALL)
    )


def topic_names_of(acls: Iterable[Acl]) -> TopicNames:
    literal: set[str] = set()
    prefixes: set[str] = set()
    for acl in acls:
        (prefixes if acl.pattern is PatternType.PREFIXED else literal).add(acl.name)
    if not literal and not prefixes:
        return NONE
    every = WILDCARD in literal
    return TopicNames(frozenset(literal - {WILDCARD}), tuple(sorted(prefixes)), every)


# The Acls service
# ----------------

MOST_ENTRIES: Final = 1_000
"""Of one request."""
ROW: Final = 5
"""An entry takes so many times as long as a position does."""
NOWHERE: Final = "0.0.0.0"
"""An address from which nobody comes."""


class AclService:
    """The handlers."""

    def __init__(self, acls: NodeAcls, authorizer: AclAuthorizer, *, allow_if_no_acl_found: bool) -> None:
        self._acls = acls
        self._authorizer = authorizer
        self._allow_if_none = allow_if_no_acl_found

    async def describe_acls(self, request: pb.DescribeAclsRequest, call: object) -> pb.DescribeAclsResponse:
        try:
            found = await self._acls.described(filter_from_entry(request.filter))
        except ValueError as error:
            return pb.DescribeAclsResponse(**build_acl_refusal(error))
        return await make_aside(lambda: pb.DescribeAclsResponse(entries=map(build_acl_entry, found)), ROW * len(found))

    async def create_acls(self, request: pb.CreateAclsRequest, call: object) -> pb.CreateAclsResponse:
        try:
            check_entry_count(request.creations)
            await self._acls.create([acl_from_entry(entry) for entry in request.creations])
        except (ValueError, StorageError) as error:
            return pb.CreateAclsResponse(**build_acl_refusal(error))
        return pb.CreateAclsResponse()

    async def delete_acls(self, request: pb.DeleteAclsRequest, call: object) -> pb.DeleteAclsResponse:
        try:
            check_entry_count(request.filters)
            wanted = [filter_from_entry(each) for each in request.filters]
            if request.validate_only:
                found = [await self._acls.described(each) for each in wanted]
            else:
                found = await self._acls.delete(wanted)
        except (ValueError, StorageError) as error:
            return pb.DeleteAclsResponse(**build_acl_refusal(error))

        def answer() -> pb.DeleteAclsResponse:
            gone = dict.fromkeys(acl for each in found for acl in each)
            return pb.DeleteAclsResponse(entries=map(build_acl_entry, gone))

        return await make_aside(answer, ROW * sum(map(len, found)))

    async def check_acl(self, request: pb.CheckAclRequest, call: object) -> pb.CheckAclResponse:
        try:
            who = Identity(parse_principal(request.principal), request.host or NOWHERE)
            operation, kind = Operation(request.operation), ResourceType(request.resource_type)
        except ValueError as error:
            return pb.CheckAclResponse(**build_acl_refusal(error))
        name = request.resource_name
        allowed = self._authorizer.allows(who, operation, kind, name)
        if self._authorizer.is_super(who):
            return pb.CheckAclResponse(allowed=allowed, reason=f"{who.principal} is one of super.users")
        # The decision is made of few entries; which they are is looked for among all about this name.
        about = await self._acls.described(AclFilter(kind, PatternType.MATCH, name))
        entry, reason = find_deciding_entry(about, who, operation, allow_if_none=self._allow_if_none)
        answer = pb.CheckAclResponse(allowed=allowed, reason=reason)
        if entry is not None:
            answer.entry.CopyFrom(build_acl_entry(entry))
        return answer


def check_entry_count(entries: Any) -> None:
    if len(entries) > MOST_ENTRIES:
        raise ValueError(f"{len(entries)} entries in one request; expected at most {MOST_ENTRIES}")


def build_acl_refusal(error: Exception) -> dict[str, Any]:
    if isinstance(error, StorageError):
        return {"error_code": int(error_code_for(error)), "error_message": str(error)}
    code = ErrorCode.POLICY_VIOLATION if isinstance(error, TooManyAcls) else ErrorCode.INVALID_REQUEST
    return {"error_code": int(code), "error_message": str(error)}


def acl_from_entry(entry: pb.AclEntry) -> Acl:
    """Raises ValueError."""
    return check_entry(
        entry.resource_type,
        entry.pattern_type,
        entry.resource_name,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission_type,
    )


def filter_from_entry(entry: pb.AclEntry) -> AclFilter:
    """Raises ValueError."""
    return parse_acl_filter(
        entry.resource_type or ResourceType.ANY,
        entry.pattern_type or PatternType.ANY,
        entry.resource_name if entry.HasField("resource_name") else None,
        entry.principal if entry.HasField("principal") else None,
        entry.host if entry.HasField("host") else None,
        entry.operation or Operation.ANY,
        entry.permission_type or Permission.ANY,
    )


def build_acl_entry(acl: Acl) -> pb.AclEntry:
    return pb.AclEntry(
        resource_type=acl.resource_type,
        pattern_type=acl.pattern,
        resource_name=acl.name,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission,
    )
