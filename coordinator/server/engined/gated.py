"""The engine of a node whose state is in somebody's Kafka: what it refuses unread.

A shard that is about to move takes nothing new (F8), and one with too much under way nothing that would add to it (A3).
"""

from collections.abc import Sequence
from typing import Any, Final, Protocol

from muster.coordinator.core import events
from muster.coordinator.core.effects import Reply
from muster.coordinator.core.events import Event, TurnedAway
from muster.coordinator.core.records import Record
from muster.coordinator.core.refusals import refusal_reply
from muster.coordinator.engine.state_log import StateLog
from muster.coordinator.engine.writing import TooLarge
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.led.authority import Authority
from muster.coordinator.runtime.led.engine import LedEngine
from muster.coordinator.runtime.led.stepper import LedStepper
from muster.coordinator.runtime.ports import Entry
from muster.coordinator.runtime.refusals import is_request
from muster.coordinator.runtime.slot import ShardStatus, Slot

MOVES: Final = "the group's shard is about to be another node's; look the coordinator up again"
FULL: Final = (
    "more waits for the upstream to acknowledge it than engine.kafka.max.unacked.bytes.per.shard; nothing was done, "
    "try again shortly"
)

MAY_BE_LARGE: Final = (events.JoinGroup, events.SyncGroup, events.ConsumerHeartbeat, events.OffsetCommit)
"""Requests that a record which is too large may be of."""


class GatedStepper(LedStepper):
    """Tells those whose group's record has no room in the log that it is theirs (S3). The shard goes all the same: what
    was decided is in memory, and nowhere else."""

    def _keep(
        self, slot: Slot, records: Sequence[Record], groups: Sequence[Entry], ledger: Sequence[Entry], now_ms: int
    ) -> None:
        try:
            if isinstance(self._log, StateLog):
                self._log.check_room(slot.index, groups)
        except TooLarge as error:
            self._tell(slot, error)
        super()._keep(slot, records, groups, ledger, now_ms)

    def _tell(self, slot: Slot, error: TooLarge) -> None:
        for request_id, request in list(slot.unanswered.items()):
            if isinstance(request, MAY_BE_LARGE) and request.group_id in error.groups:
                del slot.unanswered[request_id]
                refusal = refusal_reply(request, ErrorCode.GROUP_MAX_SIZE_REACHED, str(error))
                self.answers.answer(type(request), request_id, refusal)


class Gate(Authority, Protocol):
    """An `Authority` that is asked before something is stepped, too."""

    def takes(self, shard: int) -> bool:
        """Whether new requests of the shard are this node's to decide."""

    def has_room(self, shard: int) -> bool:
        """Whether more may be decided for the shard by now."""


class GatedEngine(LedEngine):
    """See `LedEngine`."""

    _authority: Gate
    steps = GatedStepper

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
