"""The groups of one offsets partition: `step` decides, `apply_record` makes facts true. Pure."""

from collections import Counter
from collections.abc import Mapping

from muster.coordinator.core.central.group import CentralGroup
from muster.coordinator.core.classic import liveness
from muster.coordinator.core.classic.group import ClassicGroup
from muster.coordinator.core.consumer.group import ConsumerGroup
from muster.coordinator.core.control.trials import canary
from muster.coordinator.core.groups.state import ShardState, Step, apply_record
from muster.coordinator.core.handlers import HANDLERS, hear
from muster.coordinator.core.kinds.kinds import FACTS
from muster.coordinator.core.model.core_events import Event
from muster.coordinator.core.model.core_records import Record
from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.ledger import GroupLedger
from muster.coordinator.core.model.refusals import add_refusal
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.core.model.types import Limits, TimerKey
from muster.coordinator.core.quiet import leaves_no_record
from muster.coordinator.core.requests import offsets, session_streams
from muster.coordinator.core.requests.sweeps import check_not_being_deleted
from muster.coordinator.errors import CoordinatorError


class Shard:
    """One offsets partition. `index` is its number, for messages only.

    >>> from muster.coordinator.core.model.core_events import Heartbeat
    >>> shard = Shard(Limits(), 0)
    >>> effects = shard.step(Heartbeat(7, "g", "a", None, 1), now_ms=0)
    >>> effects.replies[0][1].code.name
    'UNKNOWN_MEMBER_ID'
    """

    __slots__ = ("index", "state")

    def __init__(self, limits: Limits, index: int) -> None:
        self.index = index
        self.state = ShardState(limits, FACTS)

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        """The classic ones, by id."""
        return {group.id: group for group in self.state.all_of(ClassicGroup)}

    @property
    def consumer_groups(self) -> dict[str, ConsumerGroup]:
        return {group.id: group for group in self.state.all_of(ConsumerGroup)}

    @property
    def central_groups(self) -> dict[str, CentralGroup]:
        return {group.id: group for group in self.state.all_of(CentralGroup)}

    @property
    def ledgers(self) -> dict[str, GroupLedger]:
        return self.state.ledgers

    @property
    def deadlines(self) -> Mapping[TimerKey, int]:
        """When each timer is due, ms. There is no other place where that is kept."""
        return self.state.deadlines

    def apply(self, record: Record) -> None:
        """Make a recorded fact true again (replay)."""
        apply_record(self.state, record)

    def committed_to(self) -> Counter[tuple[str, bytes]]:
        """How many positions there are of each topic, by name and id. It looks at all: for whoever replays."""
        return offsets.count_committed(self.state.offsets)

    def beat(self, group_id: str, member_id: str, generation: int, rights: Rights, now_ms: int) -> bool:
        """Take the heartbeat of a dynamic classic member if all is well: its session ends later now.

        The short way for the most frequent request; `step` decides the same. False: nothing was done, `step` it.
        """
        group = self.state.groups.get(group_id)
        if not isinstance(group, ClassicGroup):
            return False
        return liveness.take_steady_heartbeat(group, member_id, generation, rights, self.state, now_ms)

    def writes_nothing(self, event: Event) -> bool:
        """Whether a request can be told in advance to leave no record."""
        return leaves_no_record(event, self.state)

    def knows(self, group_id: str, member_id: str | None) -> bool:
        """Whether there is such a group, and such a member in it (None: whoever)."""
        group = self.state.groups.get(group_id)
        return group is not None and (member_id is None or member_id in group.members)

    def step(self, event: Event, now_ms: int) -> Effects:
        """Decide what an event means. A refusal is one reply and changes nothing."""
        step = Step(self.state, now_ms)
        try:
            if self.state.going:
                check_not_being_deleted(event, self.state)
            HANDLERS[type(event)](event, step)
        except CoordinatorError as refusal:
            assert not step.out.decided, "a request was refused after something had been decided"
            return add_refusal(event, refusal)
        session_streams.tell_listeners(hear, step)
        if self.state.canaries and canary.watch_canaries(step):
            session_streams.tell_listeners(hear, step)
        return step.out
