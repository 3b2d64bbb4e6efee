"""The engine of a node whose state is in somebody's Kafka: what it refuses unread, and what no load drops.

A shard that is about to move takes nothing new (F8), and one with too much under way nothing that would add to it (A3).
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeAlias

from muster.coordinator.core.effects import Reply
from muster.coordinator.core.events import Event, TurnedAway
from muster.coordinator.core.refusals import refusal_reply
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.led.authority import Authority
from muster.coordinator.runtime.led.engine import LedEngine
from muster.coordinator.runtime.loading.loads import LoadJob
from muster.coordinator.runtime.refusals import is_request
from muster.coordinator.runtime.slot import ShardStatus, Slot

MOVES: Final = "the group's shard is about to be another node's; look the coordinator up again"
FULL: Final = (
    "more waits for the upstream to acknowledge it than engine.kafka.max.unacked.bytes.per.shard; nothing was done, "
    "try again shortly"
)

CommittedTo: TypeAlias = Mapping[tuple[str, bytes], int]
"""How many positions there are, by topic and its id."""


class Gate(Authority, Protocol):
    """An `Authority` that is asked before something is stepped, too."""

    def takes(self, shard: int) -> bool:
        """Whether new requests of the shard are this node's to decide."""

    def has_room(self, shard: int) -> bool:
        """Whether more may be decided for the shard by now."""


class GatedEngine(LedEngine):
    """See `LedEngine`. on_committed_to: hears of each load to which topics it has positions.

    A load drops none of them: that this node was told of no such topic is no proof that it is gone (T4).
    """

    _authority: Gate

    def __init__(
        self,
        *args: Any,
        authority: Gate,
        on_committed_to: Callable[[CommittedTo], None] = lambda committed_to: None,
        **kwargs: Any,
    ) -> None:
        self._on_committed_to = on_committed_to
        super().__init__(*args, authority=authority, **kwargs)

    def settled(self, shard: int) -> bool:
        """One that is dealt to this node is taken first, and loaded then."""
        status = self._slots[shard].status
        return status is ShardStatus.ACTIVE or (status is ShardStatus.UNLOADED and not self._authority.leads(shard))

    def submit(self, shard: int, event: Event) -> bool:
        slot = self._slots[shard]
        if is_request(event) and slot.status is ShardStatus.ACTIVE:
            refusal = self._refusal(slot, event)
            if refusal is not None:
                self._answers.answer(type(event), event.request_id, refusal)
                self._inbox.append((slot, slot.life, TurnedAway(event)))
                return True
        return super().submit(shard, event)

    def _refusal(self, slot: Slot, event: Any) -> Reply | None:
        if not self._authority.takes(slot.index):
            return refusal_reply(event, ErrorCode.NOT_COORDINATOR, MOVES)
        if self._authority.has_room(slot.index) or slot.core is None or slot.core.writes_nothing(event):
            return None
        return refusal_reply(event, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, FULL)

    def loaded(self, job: LoadJob, now_ms: int) -> None:
        committed_to, job.report.committed_to = job.report.committed_to, {}
        super().loaded(job, now_ms)
        if committed_to:
            self._on_committed_to(committed_to)
