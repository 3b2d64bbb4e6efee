"""What may be told of a shard that other nodes could lead: only what is committed, and only while nobody else does."""

from collections.abc import Callable

from muster.coordinator.core.model import core_events
from muster.coordinator.core.model.core_events import Event
from muster.coordinator.core.model.effects import Reply
from muster.coordinator.core.model.value import frozen_value
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.answers import Answers, loading_excuse
from muster.coordinator.runtime.authority import LeaseAuthority
from muster.coordinator.runtime.metrics import Metrics
from muster.coordinator.runtime.refusals import refusal_of
from muster.coordinator.runtime.slot import HeldAnswers, Notices, Replies, ShardSlot, ShardStatus

AWAY_CODE = ErrorCode.COORDINATOR_NOT_AVAILABLE

TOO_LATE = (
    "the coordinator could not make sure within offsets.commit.timeout.ms that enough nodes have what this rests on; "
    "it may come to be yet, try again"
)
NOT_SURE = "the coordinator is not sure at the moment to be the only one, try again later"


def away_answer(kind: type[Event], why: str) -> Reply:
    """Who asks for positions looks for the coordinator anew: consumers of Kafka's libraries (aiokafka, kafka-python)
    take 15 there for the end of all, and 16 in their stride."""
    return refusal_of(kind, ErrorCode.NOT_COORDINATOR if kind is core_events.OffsetFetch else AWAY_CODE, why)


@frozen_value
class HeldAnswersSince(HeldAnswers):
    """since_ms: when it was decided."""

    since_ms: int


class LeasedAnswers(Answers):
    """Answers wait for `Engine.committed`, and for the authority's leave, which is asked for when they go."""

    def __init__(self, metrics: Metrics, authority: LeaseAuthority, clock_ms: Callable[[], int]) -> None:
        """clock_ms: the engine's time, as it was told last."""
        super().__init__(metrics)
        self._authority = authority
        self._clock_ms = clock_ms

    def tell(self, slot: ShardSlot, replies: Replies, notices: Notices) -> None:
        position = slot.position
        if not slot.held and position <= slot.durable and self._authority.may_answer(slot.index):
            self.release(slot, replies, notices)
        else:
            slot.held.append(HeldAnswersSince(position, replies, notices, self._clock_ms()))
            self._metrics.held += len(replies)

    def reached(self, slot: ShardSlot, position: int) -> None:
        slot.durable = max(slot.durable, position)
        self.go(slot)

    def go(self, slot: ShardSlot) -> None:
        """Tell what may be told by now, in order."""
        if not slot.held or slot.held[0].position > slot.durable or not self._authority.may_answer(slot.index):
            return
        while slot.held and slot.held[0].position <= slot.durable:
            held = slot.held.popleft()
            self._metrics.held -= len(held.replies)
            self.release(slot, held.replies, held.notices)

    def give_up(self, slot: ShardSlot, until_ms: int) -> bool:
        """Who has waited since `until_ms` or longer hears that it takes too long (CL-G3). Whether there was anybody.

        What is told to watchers has time."""
        late = False
        for at, held in enumerate(slot.held):
            if not isinstance(held, HeldAnswersSince) or held.since_ms > until_ms:
                break
            if not held.replies:
                continue
            late = True
            self._metrics.held -= len(held.replies)
            for request_id, _ in held.replies:
                request = slot.unanswered.pop(request_id, None)
                if request is not None:
                    self.answer(type(request), request_id, away_answer(type(request), TOO_LATE))
            slot.held[at] = HeldAnswersSince(held.position, (), held.notices, held.since_ms)
        while slot.held and not slot.held[0].replies and not slot.held[0].notices:
            slot.held.popleft()
        return late

    def excuse(self, slot: ShardSlot, kind: type[Event]) -> Reply:
        """While it is loaded nobody is told that all is well: another may still answer for the shard (CL-G5)."""
        if slot.status is ShardStatus.LOADING and kind is core_events.Heartbeat:
            return refusal_of(kind, AWAY_CODE)
        if slot.status is ShardStatus.UNLOADED and self._authority.leads(slot.index):
            return away_answer(kind, NOT_SURE)
        return loading_excuse(slot, kind)
