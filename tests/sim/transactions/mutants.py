"""Nodes, logs and machines that break one rule each; a checker that catches none proves nothing."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from muster.coordinator.transactions import ends
from muster.coordinator.transactions.effects import EndTxnReply, OrphanVerdict, SendMarkers
from muster.coordinator.transactions.ends import MEANING_BY_STATE, EndMeaning, decide_end
from muster.coordinator.transactions.events import EndTxn, TopicsDeleted, TransactionsLoaded
from muster.coordinator.transactions.records import LAST_EPOCH, NO_PRODUCER_ID, TransactionState
from muster.coordinator.transactions.shard import TransactionShard
from muster.coordinator.transactions.state import TransactionalId, TransactionStep, apply_transaction, find_id
from tests.sim.transactions.group_mutants import GROUP_MUTANTS, GROUP_SOUND
from tests.sim.transactions.logs import DataBatch, Guard, KnownProducer, LogModel, MarkerBatch
from tests.sim.transactions.node import HeldAnswer, Node, Produce
from tests.sim.transactions.world import DEFAULTS, Options

# Logs
# ----


class NoGate(LogModel):
    """First batches are appended without a guard."""

    def may_open(self, batch: DataBatch, guard: Guard | None) -> bool:
        return True


class LastingGuard(LogModel):
    """A guard is kept over a marker."""

    def void_guards(self, producer_id: int, marker: MarkerBatch | None) -> None:
        if marker is None:
            super().void_guards(producer_id, marker)


class EqualEpoch(LogModel):
    """A marker of level 2 with the log's own epoch ends an open transaction."""

    def takes_epoch(self, marker: MarkerBatch, known: KnownProducer) -> bool:
        return marker.epoch >= known.epoch


class StableByWatermark(LogModel):
    """The last stable offset is the high watermark."""

    def stable(self) -> int:
        return self.durable


# Nodes
# -----


class HastyMarkers(Node):
    """TX-C3: markers leave before the decision is durable."""

    def may_leave(self, held: HeldAnswer) -> bool:
        return isinstance(held.said, SendMarkers) or super().may_leave(held)


class HastyAnswers(Node):
    """TX-C3: answers leave before what they rest on is durable."""

    def may_leave(self, held: HeldAnswer) -> bool:
        return not isinstance(held.said, SendMarkers) or super().may_leave(held)


class HastyComplete(Node):
    """TX-C10: markers count before they are flushed."""

    def after_marker(self) -> None:
        marked, self.marked = self.marked, []
        for _, _, sent, place in marked:
            self.report(sent, place, 0)


class UngatedNode(Node):
    """Nobody asks whether a partition is in the transaction."""

    log_class = NoGate

    def produce(self, request: Produce, answered: Callable[[Any], None]) -> None:
        self.append_data(request, None, answered)


class LastingLeave(Node):
    """TX-L12: a shard that is lost leaves the guards that it has let in."""

    voids_guards = False


class DeafWriter(Node):
    """TX-C15: a marker is written though its topic was deleted, and made again, while it waited."""

    def is_void(self, sent: SendMarkers, place: tuple[str, int], to: LogModel | None) -> bool:
        return sent.life != self.life


class OrphanAborter(Node):
    """TX-C14: an open transaction that no record names is aborted, whatever the coordinator says."""

    def settle_orphan(self, log: LogModel, producer_id: int, epoch: int, reply: Any) -> None:
        if reply.verdict is not OrphanVerdict.TAKEN:
            super().settle_orphan(log, producer_id, epoch, reply)
            return
        log.append_marker(MarkerBatch(producer_id, epoch, False, self.coordinator_epoch, 0))


def node_with(log: type[LogModel] = LogModel, shard: type[TransactionShard] = TransactionShard) -> type[Node]:
    return type(f"{log.__name__}{shard.__name__}Node", (Node,), {"log_class": log, "shard_class": shard})


# Machines
# --------


class StuckEpochShard(TransactionShard):
    """TX-C7: an end of level 2 does not raise the epoch."""

    def _handle(self, event: Any, step: TransactionStep) -> None:
        if isinstance(event, EndTxn) and event.level >= 2:
            known = find_id(event.transactional_id, step.state)
            meaning = ends.meaning_of_raised(event, known)
            if meaning is EndMeaning.DECIDE:
                stored = known.stored
                decide_end(known, event.commit, stored.epoch, 2, event.fresh_id, step)
                step.reply(event.request_id, EndTxnReply(producer_id=stored.producer_id, epoch=stored.epoch))
                return
        super()._handle(event, step)


class StateAloneShard(TransactionShard):
    """TX-C7: a repeated EndTxn of level 2 is told by the state alone."""

    def _handle(self, event: Any, step: TransactionStep) -> None:
        if isinstance(event, EndTxn) and event.level >= 2:
            known = step.state.ids.get(event.transactional_id)
            if known is not None and event.epoch == known.stored.epoch - 1 and not known.stored.state.prepared:
                meaning = MEANING_BY_STATE[known.stored.state, event.commit]
                if meaning is EndMeaning.DECIDE:
                    event = replace(event, epoch=known.stored.epoch)
        super()._handle(event, step)


class GivenFenceShard(TransactionShard):
    """TX-C5: a fenced producer may ask for the epoch that fenced it."""

    def _handle(self, event: Any, step: TransactionStep) -> None:
        for known in self.state.ids.values():
            if known.fencing:
                known.fencing, known.last_epoch = False, known.stored.epoch - 1
        super()._handle(event, step)


class ForgottenIdShard(TransactionShard):
    """TX-C6: the next producer id is in no record, it is only remembered until the transaction is complete."""

    def step(self, event: Any, now_ms: int) -> Any:
        out = super().step(event, now_ms)
        for number, record in enumerate(out.records):
            if getattr(record, "next_producer_id", NO_PRODUCER_ID) != NO_PRODUCER_ID:
                out.records[number] = replace(record, next_producer_id=NO_PRODUCER_ID)
                known: TransactionalId = self.state.ids[record.transactional_id]
                if known.stored.state.prepared:
                    apply_transaction(self.state, out.records[number])
        return out


class DeafTimerShard(TransactionShard):
    """TX-C13: timeouts run on while nobody can be heard."""

    def _handle(self, event: Any, step: TransactionStep) -> None:
        super()._handle(event, step)
        if isinstance(event, TransactionsLoaded):
            for name, known in self.state.ids.items():
                if known.stored.state is TransactionState.ONGOING:
                    step.arm(("timeout", name), max(known.stored.started_ms + known.stored.timeout_ms, step.now_ms))


class PlainAbortShard(TransactionShard):
    """TX-C9: an abort by the coordinator keeps the epoch."""

    def step(self, event: Any, now_ms: int) -> Any:
        out = super().step(event, now_ms)
        for number, record in enumerate(out.records):
            known = self.state.ids.get(record.transactional_id)
            if (
                known is not None
                and known.stored is record
                and record.state is TransactionState.PREPARE_ABORT
                and known.cause.name != "CLIENT"
                and record.epoch < LAST_EPOCH
            ):
                kept = replace(record, epoch=record.epoch - 1, client_level=0)
                out.records[number] = known.stored = kept
                out.notices = [
                    replace(each, epoch=kept.epoch, level=0) if isinstance(each, SendMarkers) else each
                    for each in out.notices
                ]
        return out


class GoneForGoodShard(TransactionShard):
    """TX-C15: what was deleted once gets no marker, whoever has written into it since."""

    def _handle(self, event: Any, step: TransactionStep) -> None:
        if isinstance(event, TopicsDeleted):
            event = replace(event, present=frozenset())
        super()._handle(event, step)


OLD_CLIENTS = replace(DEFAULTS, levels=(0,))
NEW_CLIENTS = replace(DEFAULTS, levels=(2,))
UNORDERED = replace(NEW_CLIENTS, newest_connection=False)
BUSY_TOPICS = replace(OLD_CLIENTS, busy_topics=True)
LATE_MARKERS = replace(NEW_CLIENTS, late_markers=True, lower_level=False)

MUTANTS: dict[str, Options] = {
    "marker before the durable decision": replace(DEFAULTS, node=HastyMarkers),
    "answer before the durable record": replace(DEFAULTS, node=HastyAnswers),
    "complete before the durable markers": replace(DEFAULTS, node=HastyComplete),
    "markers of an earlier life": replace(OLD_CLIENTS, late_markers=True),
    "leave given by a shard that is lost": replace(NEW_CLIENTS, node=LastingLeave),
    "marker that nobody waits for": replace(BUSY_TOPICS, node=DeafWriter),
    "partition that is there again gets no marker": replace(BUSY_TOPICS, node=node_with(shard=GoneForGoodShard)),
    "orphans are aborted": replace(DEFAULTS, node=OrphanAborter),
    "no gate": replace(OLD_CLIENTS, node=UngatedNode),
    "guard kept over a marker": replace(OLD_CLIENTS, node=node_with(LastingGuard)),
    "equal marker epoch ends a transaction": replace(LATE_MARKERS, node=node_with(EqualEpoch)),
    "stable is the watermark": replace(DEFAULTS, node=node_with(StableByWatermark)),
    "epoch not raised": replace(NEW_CLIENTS, node=node_with(shard=StuckEpochShard)),
    "repeated end told by the state": replace(UNORDERED, node=node_with(shard=StateAloneShard)),
    "the fence is given to a client": replace(DEFAULTS, node=node_with(shard=GivenFenceShard)),
    "next producer id in no record": replace(DEFAULTS, node=node_with(shard=ForgottenIdShard)),
    "timeout while nobody is heard": replace(DEFAULTS, node=node_with(shard=DeafTimerShard)),
    "abort keeps the epoch": replace(DEFAULTS, node=node_with(shard=PlainAbortShard)),
    "overtaken requests are performed": replace(OLD_CLIENTS, newest_connection=False),
    **GROUP_MUTANTS,
}
"""What is broken, and the run that shows it."""

SOUND: dict[str, Options] = {
    "all faults": DEFAULTS,
    "level 0": OLD_CLIENTS,
    "level 2": NEW_CLIENTS,
    "reigns": replace(DEFAULTS, reigns=True, late_markers=True),
    "level 2, unordered": UNORDERED,
    "level 2, late markers": LATE_MARKERS,
    "busy topics": replace(BUSY_TOPICS, levels=(0, 2)),
    **GROUP_SOUND,
}
"""Runs in which nothing is broken."""
