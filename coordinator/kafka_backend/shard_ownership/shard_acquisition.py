"""One shard that is assigned to this node, until the node serves it and until it gives the shard up (KB-F3, KB-F6,
KB-S7).

`Stage` says where the shard stands. Each step is retried after a back-off for as long as the shard is assigned to
the node. Reading goes on without a lease; without one nothing is begun or written.
"""

from collections.abc import Callable

from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ef
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.shard_ownership.append_queues import (
    AppendFailure,
    AppendsBroken,
    BatchAcknowledged,
    back_off_ms,
)
from muster.coordinator.kafka_backend.shard_ownership.client_transactions import OpenTransactions
from muster.coordinator.kafka_backend.shard_ownership.events_and_effects import TakeoverCause
from muster.coordinator.kafka_backend.shard_ownership.lease import READING, SERVING, OwnershipContext, Stage
from muster.coordinator.kafka_backend.shard_ownership.shard_assignment import ShardAssignment
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    KEPT_KEY,
    NEVER,
    NewRecord,
    OwnerRecord,
    RepairPass,
    RetryReason,
    ShardReplay,
    encode_owner_record,
)

# The cause of a take-over (KB-F9)
# --------------------------------


def cause_of(before: OwnerRecord | None, node: int, instance: str, assignment: ShardAssignment) -> TakeoverCause:
    """node, instance: of whoever has it now. before: who had it; None: nobody."""
    if before is None:
        return TakeoverCause.FIRST
    if before.node == node:
        return TakeoverCause.FENCED if before.instance == instance else TakeoverCause.NODE_RESTARTED
    there = assignment.nodes.get(before.node)
    if there is None:
        return TakeoverCause.NODE_LOST
    return TakeoverCause.NODE_DRAINING if there.draining else TakeoverCause.NODE_JOINED


OFFSET_OUT_OF_RANGE = 1
LOOK_AGAIN_MS = 5_000
"""How often a log that has lost something is looked at again."""

SHORT_GAP_MS = 2_000
"""CL-G6: for so long a shard is kept without a lease."""


class ShardAcquisition:
    """One shard. Its `stage` says where it stands."""

    def __init__(self, shard: int, context: OwnershipContext) -> None:
        self.shard = shard
        self.stage = Stage.READ
        self.following: OpenTransactions | None = None
        self._context = context
        self._assigned_ms = context.now_ms
        self._assignment = context.assignment
        self.lost = ""
        """Why nothing may be served from its log; "": it may, as far as is known."""
        self._reset_replay()

    def _reset_replay(self) -> None:
        self._replay = ShardReplay()
        self._truth: RepairPass | None = None
        self._owner: OwnerRecord | None = None
        self._applied = False
        self._upto = 0
        self._request = 0
        self._tries = 0
        self._proof_ms = NEVER
        self.trouble: RetryReason | None = None
        """Why its step is tried again."""
        self._then: Callable[[], None] | None = None
        self._then_ms = NEVER
        self._owned_ms = self._wait_ms = 0
        self._repaired = 0
        self._refresh_ms: int | None = None
        self._gap_ms: int | None = None
        self._start = 0
        if self._context.topic_lost:
            self._wait_for_operator(0)
        else:
            self._read()

    # What is heard.

    def heard(self, event: ev.ShardAnswer) -> None:
        """An answer; one that nobody waits for is dropped."""
        if self.following is not None:
            self._handle_transaction_answer(self.following, event)
        if event.request != self._request or isinstance(event, ev.ProducerDescribed | ev.ClientBatchAnswered):
            return
        self._request = 0
        self.trouble = ev.retry_reason_of(event)
        if isinstance(event, ev.LogFetched):
            self._fetched(event)
        elif isinstance(event, ev.LoadFinished):
            self._serve()
        elif isinstance(event, ev.RequestWithoutAnswer) or event.code:
            self._again()
        elif isinstance(event, ev.LogEndFound):
            self._tries, self._upto = 0, event.offset
            self._fetch()
        else:
            self._tries = 0
            self._own(event)

    def outcome(self, outcome: BatchAcknowledged | AppendsBroken) -> None:
        """What became of something that the shard wrote."""
        if isinstance(outcome, AppendsBroken):
            self._broken(outcome)
            return
        why = self._context.losses.acked(self.shard, outcome.offset, len(outcome.batch.records), outcome.start)
        if why:
            self._lose(why)
            return
        if self.stage is Stage.OWN:
            self._owned(outcome.offset)
        elif outcome.batch.position and self.stage in SERVING:
            self._context.out.append(ef.ReleaseAnswers(self.shard, outcome.batch.position))
        if self.following is not None and outcome.offset >= 0:
            self.following.acked(outcome.offset + len(outcome.batch.records))
        if self.stage is Stage.REPAIR and self._context.appends.is_empty(self.shard):
            self._finish()

    def _handle_transaction_answer(self, following: OpenTransactions, event: ev.ShardAnswer) -> None:
        """KB-E3, KB-E4. Whoever reads on may find that somebody else owns the shard (KB-F5)."""
        if isinstance(event, ev.ProducerInitialized | ev.LogEndFound | ev.LoadFinished):
            return
        if why := following.heard(event):
            self._drop(why, again=True)
        elif not self._is_newest():
            self._drop(f"node {self._other()} has written a newer owner record", other=self._replay.owner)
            self._proof_ms = self._context.now_ms

    def advance_stage(self) -> None:
        """Time went by, or the lease came or went."""
        context = self._context
        if self.stage in SERVING:
            self._look_at_lease()
        if self.following is not None and (why := self.following.advance_writes()):
            self._drop(why, again=True)
        if self.stage is Stage.SERVE and self._refresh_ms is not None and self._refresh_ms <= context.now_ms:
            self._keep()
        if self._then is not None and self._then_ms <= context.now_ms and self._is_allowed():
            then, self._then = self._then, None
            then()

    def wish(self) -> int | None:
        own, beside = self._wish(), None if self.following is None else self.following.wish()
        return own if beside is None or (own is not None and own < beside) else beside

    def _wish(self) -> int | None:
        if self.stage is Stage.SERVE and self._gap_ms is not None:
            return self._gap_ms + SHORT_GAP_MS
        if self._then is not None:
            return self._then_ms if self._is_allowed() else None
        return self._refresh_ms if self.stage is Stage.SERVE else None

    def _is_allowed(self) -> bool:
        """Whether what comes next may be done. Who was fenced asks the nodes' group first whether the shard is still
        his: two that fence each other serve nobody."""
        context = self._context
        if context.topic_lost or (self._proof_ms != NEVER and context.lease.base_ms <= self._proof_ms):
            return False
        return context.may_write or self.stage in READING

    # Reading.

    def _read(self) -> None:
        self.stage = Stage.READ
        self._ask_end()

    def _ask_end(self) -> None:
        self._request = self._context.number()
        self._context.out.append(ef.FindLogEnd(self.shard, self._request))

    def _fetch(self) -> None:
        """The next part of what is wanted; on to the next stage where there is nothing more."""
        at = self._truth.replay.position if self._truth is not None else self._replay.position
        if at >= self._upto:
            self._read_all()
            return
        self._request = self._context.number()
        self._context.out.append(ef.FetchLog(self.shard, self._request, at, self._upto))

    def _fetched(self, event: ev.LogFetched) -> None:
        if event.code == OFFSET_OUT_OF_RANGE:
            self._out_of_range(event.start_offset)
        elif event.code:
            self._again()
        elif self._truth is not None:
            before = self._truth.replay.position
            self._truth.replay_batches(event.batches)
            self._goes_on(self._truth.replay, before, event.next_offset)
        else:
            before = self._replay.position
            records = self._replay.take_all(event.batches)
            if records:
                self._context.out.append(ef.ApplyRecords(self.shard, records, not self._applied))
                self._applied = True
            self._goes_on(self._replay, before, event.next_offset)

    def _goes_on(self, replay: ShardReplay, before: int, next_offset: int) -> None:
        replay.position = max(replay.position, next_offset)
        if replay.position > before:
            self._tries = 0
            self._fetch()
        else:
            self._again()

    def _out_of_range(self, start: int) -> None:
        replay = self._truth.replay if self._truth is not None else self._replay
        if self.stage is not Stage.READ and start > self._start:
            self._drop("its log was cut while it was read", again=True)
        elif replay.position < start:
            self._start = replay.position = start
            self._fetch()
        else:
            # The log is shorter than it was: what was read may never have been.
            self._drop("its log is shorter than it was", again=True)

    def _read_all(self) -> None:
        if self.stage is Stage.READ:
            why = self._context.losses.read(self.shard, self._start, self._upto, self._replay.accepted)
            if why:
                self._lose(why)
            else:
                self.lost = ""
                self._init()
        elif self.stage is Stage.TRUTH:
            self._repair()
        elif not self._is_newest():
            self._proof_ms = self._context.now_ms
            self._later(self._init)
        elif self.stage is Stage.CATCH and self._replay.unfenced:
            self._wait()
        else:
            self._check()

    def _is_newest(self) -> bool:
        """KB-F3: whether the newest owner record is ours."""
        return self._replay.owner == self._owner

    def _other(self) -> int:
        return self._replay.owner.node if self._replay.owner is not None else -1

    # Owning.

    def _init(self) -> None:
        """KB-F3. Without a lease nobody's producer is touched: another may be the owner by now."""
        self.stage = Stage.INIT
        if not self._context.may_write:
            self._then, self._then_ms = self._init, NEVER
            return
        self._request = self._context.number()
        self._context.out.append(ef.InitProducer(self.shard, self._request))

    def _own(self, given: ev.ProducerInitialized) -> None:
        context, before = self._context, self._replay.owner
        settings = context.settings
        self.stage = Stage.OWN
        self._owner = OwnerRecord(
            before.turn + 1 if before is not None else 1,
            settings.node,
            given.producer,
            settings.instance,
            settings.address,
            settings.kafka,
            settings.wall_ms + context.now_ms,
        )
        record = encode_owner_record(self._owner)
        context.appends.open(self.shard, given.producer)
        context.appends.append(self.shard, [record], len(record[0]) + len(record[1] or b""))

    def _owned(self, offset: int) -> None:
        """KB-F4: the log counts up to here, and nothing of the one before comes after it."""
        self.stage = Stage.CATCH
        self._owned_ms = self._context.now_ms
        self._upto = offset + 1 if offset >= 0 else -1
        if offset >= 0:
            self._fetch()
        else:
            self._ask_end()

    def _wait(self) -> None:
        """KB-F6: what the one before, or one before him, sent while he had a lease may come in for as long."""
        self.stage = Stage.WAIT
        self._then, self._then_ms = self._behind, self._owned_ms + self._context.settings.session_timeout_ms

    def _behind(self) -> None:
        self.stage = Stage.BEHIND
        self._wait_ms = self._context.now_ms - self._owned_ms
        self._ask_end()

    # KB-S7.

    def _check(self) -> None:
        keys = self._replay.must_repair()
        if not keys:
            self._repair()
            return
        self.stage = Stage.TRUTH
        self._truth = RepairPass(keys, 0, self._replay.position)
        self._upto = self._replay.position
        self._fetch()

    def _repair(self) -> None:
        """Each key as it should be, then away with the owner records before, oldest first: as long as one stands, so
        must those behind it."""
        assert self._owner is not None
        appends, truth, turn = self._context.appends, self._truth, self._owner.turn
        self.stage, self._truth = Stage.REPAIR, None
        if truth is not None:
            self._repaired = len(truth.values)
            self._write([(key, value, None) for key, value in truth.values.items()])
            self._write([(key, None, None) for before, key in self._replay.owners if before < turn])
        if self._replay.unfenced:
            self._write([(KEPT_KEY, b"settled", None)])
        if appends.is_empty(self.shard):
            self._finish()

    def _write(self, records: list[NewRecord]) -> None:
        if records:
            size = sum(len(key) + len(value or b"") for key, value, _ in records)
            self._context.appends.append(self.shard, records, size, alone=True)

    def _keep(self) -> None:
        """KB-F6: brokers forget a producer that writes nothing."""
        self._refresh_ms = self._context.now_ms + self._context.settings.owner_refresh_ms
        self._write([(KEPT_KEY, b"kept", None)])

    # Serving.

    def _finish(self) -> None:
        self.stage = Stage.FINISH
        self._request = self._context.number()
        self._context.out.append(ef.FinishLoad(self.shard, self._request))

    def _serve(self) -> None:
        assert self._owner is not None
        context, replay = self._context, self._replay
        self.stage = Stage.SERVE
        self._refresh_ms = context.now_ms + context.settings.owner_refresh_ms
        report = ef.AcquisitionReport(
            self._owner,
            replay.before,
            cause_of(replay.before, context.settings.node, context.settings.instance, self._assignment),
            self._assigned_ms,
            self._owned_ms,
            context.now_ms,
            replay.fenced_records,
            self._repaired,
            self._wait_ms,
            tuple(replay.pending),
            context.gave_up.pop(self.shard, ""),
        )
        self.following = OpenTransactions(self.shard, context, replay)
        context.out.append(ef.ServeShard(self.shard, report))

    def _look_at_lease(self) -> None:
        context = self._context
        if context.may_write:
            self._gap_ms = None
            return
        if self._gap_ms is None:
            until_ms = context.lease.until_ms
            self._gap_ms = context.now_ms if until_ms == NEVER else until_ms
        if self.stage is Stage.SERVE and context.now_ms - self._gap_ms >= SHORT_GAP_MS:
            self._drop("the lease is over", again=True)

    # Ends.

    def leave(self) -> None:
        """KB-F8. `is_gone` tells when it is done."""
        if self.stage is Stage.SERVE:
            self._context.out.append(ef.RefuseRequests(self.shard))
            self.stage = Stage.LEAVE

    @property
    def may_let_go(self) -> bool:
        """KB-F8: nothing is to be waited for any more before the shard is let go of."""
        if self.stage is not Stage.LEAVE or not self._context.may_write:
            return True
        writes = self.following is not None and not self.following.writes.is_empty
        return not writes and self._context.appends.is_empty(self.shard)

    def end(self, why: str) -> None:
        """The shard is not this node's any more."""
        self._forget(why, again=False, other=None)

    def lose_topic(self) -> None:
        """The whole topic is not what it was: `OwnershipContext.topic_lost`. Begins anew once it is."""
        self._forget(self._context.topic_lost, again=True, other=None)
        self._wait_for_operator(0)

    def _lose(self, why: str) -> None:
        """KB-H1: nothing is made anew by itself."""
        leaving = self.stage is Stage.LEAVE
        self._forget(why, again=not leaving, other=None)
        if not leaving:
            self.lost = why
            self._wait_for_operator(LOOK_AGAIN_MS)

    def _wait_for_operator(self, ms: int) -> None:
        self.stage = Stage.LOST
        self._then, self._then_ms = self._restart, self._context.now_ms + ms

    def _broken(self, broken: AppendsBroken) -> None:
        why = broken.why.value if not broken.code else f"{broken.why.value} (code {broken.code})"
        fenced_ms = self._context.now_ms if broken.why is AppendFailure.FENCED else NEVER
        if self.stage in (Stage.OWN, Stage.REPAIR) and broken.why is not AppendFailure.TOO_LARGE:
            # Nobody was served: what was read holds, and the next turn begins.
            self._context.appends.close(self.shard)
            self._later(self._catch_up)
        else:
            self._drop(why, again=True)
        self._proof_ms = max(self._proof_ms, fenced_ms)

    def _catch_up(self) -> None:
        """Who took the turn that we wanted?"""
        self._truth = None
        self._read()

    def _drop(self, why: str, *, again: bool = True, other: OwnerRecord | None = None) -> None:
        """KB-F5, KB-A4: the one path by which a shard that was served goes. It is taken anew while it is dealt to
        us."""
        leaving = self.stage is Stage.LEAVE
        self._forget(why, again=again and not leaving, other=other)
        if leaving:
            return  # nothing to wait for: who revokes sees that it may go
        self._tries += 1
        self._then, self._then_ms = (
            self._restart,
            self._context.now_ms + back_off_ms(self._context.settings.limits, self._tries),
        )

    def _restart(self) -> None:
        tries, proof_ms = self._tries, self._proof_ms
        self._assigned_ms, self._assignment = self._context.now_ms, self._context.assignment
        self._reset_replay()
        self._tries, self._proof_ms = tries, proof_ms

    def _forget(self, why: str, *, again: bool, other: OwnerRecord | None) -> None:
        self._context.appends.close(self.shard)
        self.following = None
        self._request, self._then = 0, None
        if self.stage in SERVING:
            self._context.gave_up[self.shard] = why
        if self._applied or self.stage in SERVING or self.stage is Stage.FINISH:
            self._context.out.append(ef.UnloadShard(self.shard, why, again, other))
        self._applied = False
        if self.stage in SERVING or self.stage is Stage.FINISH:
            self.stage = Stage.INIT

    def _again(self) -> None:
        """The step that failed, after a while."""
        if self.stage is Stage.INIT:
            self._later(self._init)
        elif self.stage is Stage.FINISH:
            self._drop("it could not be loaded")
        elif self.stage in (Stage.READ, Stage.BEHIND) or (self.stage is Stage.CATCH and self._upto < 0):
            self._later(self._ask_end)
        else:
            self._later(self._fetch)

    def _later(self, step: Callable[[], None]) -> None:
        self._tries += 1
        self._then = step
        self._then_ms = self._context.now_ms + back_off_ms(self._context.settings.limits, self._tries)
