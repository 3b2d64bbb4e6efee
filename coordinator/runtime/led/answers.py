"""What may be told of a shard that other nodes could lead: only what is committed, and only while nobody else does."""

from collections.abc import Callable

from muster.coordinator.core import events
from muster.coordinator.core.effects import Reply
from muster.coordinator.core.events import Event
from muster.coordinator.core.value import value
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.answers import Answers, excuse
from muster.coordinator.runtime.led.authority import Authority
from muster.coordinator.runtime.metrics import Metrics
from muster.coordinator.runtime.refusals import refusal
from muster.coordinator.runtime.slot import Held, Notices, Replies, ShardStatus, Slot

AWAY = ErrorCode.COORDINATOR_NOT_AVAILABLE

TOO_LATE = (
    "the coordinator could not make sure within offsets.commit.timeout.ms that enough nodes have what this rests on; "
    "it may come to be yet, try again"
)
NOT_SURE = "the coordinator is not sure at the moment to be the only one, try again later"


def away(kind: type[Event], why: str) -> Reply:
    """Who asks for positions looks for the coordinator anew: consumers of Kafka's libraries (aiokafka, kafka-python)
    take 15 there for the end of all, and 16 in their stride."""
    return refusal(kind, ErrorCode.NOT_COORDINATOR if kind is events.OffsetFetch else AWAY, why)


@value
class HeldSince(Held):
    """since_ms: when it was decided."""

    since_ms: int


class LedAnswers(Answers):
    """Answers wait for `Engine.committed`, and for the authority's leave, which is asked for when they go."""

    def __init__(self, metrics: Metrics, authority: Authority, clock_ms: Callable[[], int]) -> None:
        """clock_ms: the engine's time, as it was told last."""
        super().__init__(metrics)
        self._authority = authority
        self._clock_ms = clock_ms

    def tell(self, slot: Slot, replies: Replies, notices: Notices) -> None:
        position = slot.position
        if not slot.held and position <= slot.durable and self._authority.may_answer(slot.index):
            self.release(slot, replies, notices)
        else:
            slot.held.append(HeldSince(position, replies, notices, self._clock_ms()))
            self._metrics.held += len(replies)

    def reached(self, slot: Slot, position: int) -> None:
        slot.durable = max(slot.durable, position)
        self.go(slot)

    def go(self, slot: Slot) -> None:
        """Tell what may be told by now, in order."""
        if not slot.held or slot.held[0].position > slot.durable or not self._authority.may_answer(slot.index):
            return
        while slot.held and slot.held[0].position <= slot.durable:
            held = slot.held.popleft()
            self._metrics.held -= len(held.replies)
            self.release(slot, held.replies, held.notices)

    def give_up(self, slot: Slot, until_ms: int) -> bool:
        """Who has waited since `until_ms` or longer hears that it takes too long (CL-G3). Whether there was anybody.

        What is told to watchers has time."""
        late = False
        for at, held in enumerate(slot.held):
            if not isinstance(held, HeldSince) or held.since_ms > until_ms:
                break
            if not held.replies:
                continue
            late = True
            self._metrics.held -= len(held.replies)
            for request_id, _ in held.replies:
                request = slot.unanswered.pop(request_id, None)
                if request is not None:
                    self.answer(type(request), request_id, away(type(request), TOO_LATE))
            slot.held[at] = HeldSince(held.position, (), held.notices, held.since_ms)
        while slot.held and not slot.held[0].replies and not slot.held[0].notices:
            slot.held.popleft()
        return late

    def excuse(self, slot: Slot, kind: type[Event]) -> Reply:
        """While it is loaded nobody is told that all is well: another may still answer for the shard (CL-G5)."""
        if slot.status is ShardStatus.LOADING and kind is events.Heartbeat:
            return refusal(kind, AWAY)
        if slot.status is ShardStatus.UNLOADED and self._authority.leads(slot.index):
            return away(kind, NOT_SURE)
        return excuse(slot, kind)
