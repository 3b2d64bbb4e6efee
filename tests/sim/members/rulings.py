"""Who may read what, changed at random while faults are on: with each request of a member, and as the lists change.

It draws from chance of its own, so that runs without it are as they were.
"""

from dataclasses import replace
from random import Random
from typing import Any, Protocol

from muster.coordinator.core.model.events import ConsumerHeartbeat, Heartbeat, JoinGroup, SessionHeartbeat
from muster.coordinator.core.model.rights import RightsAnew, TopicNames, TopicRights
from tests.sim.world import World


class Told(Protocol):
    """The node."""

    topics: dict[str, int]

    def tell_rights(self, event: RightsAnew) -> None: ...


class Rulings:
    """The lists, as the edge of the node knows them."""

    def __init__(self, world: World, node: Told) -> None:
        self._world = world
        self._node = node
        self._rng = Random(f"{world.seed} rights")
        self._known: dict[str, TopicRights] = {}
        self._free = False
        """All may read everything."""

    def with_rights(self, request: Any, who: str) -> Any:
        """The request as the edge hands it on, which knows who has sent it."""
        if isinstance(request, SessionHeartbeat):
            return replace(request, heartbeat=self.with_rights(request.heartbeat, who))
        if isinstance(request, Heartbeat):
            return replace(request, rights=self._of(who))
        if isinstance(request, JoinGroup | ConsumerHeartbeat):
            return replace(request, rights=self._of(request.client_id or request.member_id))
        return request

    def change(self) -> None:
        """Somebody may read other topics from now on."""
        if self._known:
            who = self._rng.choice(sorted(self._known))
            self._known[who] = self._drawn(who)
            self._world.census["rights changed"] += 1
            self._tell(who)

    def allow_everything(self) -> None:
        self._free = True
        for who in sorted(self._known):
            self._known[who] = everything(who)
        self._tell(*self._known)

    def _of(self, who: str) -> TopicRights:
        if who not in self._known:
            self._known[who] = self._drawn(who)
        return self._known[who]

    def _drawn(self, who: str) -> TopicRights:
        if self._free or self._rng.random() < 0.4:
            return everything(who)
        topics = sorted(self._node.topics)
        some = TopicNames(frozenset(topic for topic in topics if self._rng.random() < 0.6))
        return TopicRights(who, read=some, describe=some)

    def _tell(self, *who: str) -> None:
        self._world.trace(f"rights of {', '.join(who)} are others")
        self._node.tell_rights(RightsAnew({each: self._known[each] for each in who}))


def everything(who: str) -> TopicRights:
    return TopicRights(who, read=TopicNames(every=True), describe=TopicNames(every=True))
