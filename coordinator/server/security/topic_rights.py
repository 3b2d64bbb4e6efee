"""The lists as one principal's rights to topics: what goes with each join, so that the groups look nothing up."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from typing import Final

from muster.coordinator.core.model.rights import NONE, RightsAnew, TopicNames, TopicRights
from muster.coordinator.security.authorizer import ALLOWED_BY, applies_to
from muster.coordinator.security.identity import ANYONE, Identity, Principal
from muster.coordinator.security.model import WILDCARD, Acl, Operation, PatternType, Permission, ResourceType

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
        """See `RightsOf`. Whoever was told in it is among those that are kept."""

    def of(self, who: Identity) -> TopicRights:
        """See `RightsOf`."""
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
