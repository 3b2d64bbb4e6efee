"""Nodes that break one rule each: a world in which none is caught proves nothing."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from muster.client.members.member_types import MembershipState
from muster.coordinator.kafka_backend import nodes_group
from muster.coordinator.kafka_backend.shard_ownership.append_queues import AppendQueue
from muster.coordinator.kafka_backend.shard_ownership.client_transactions import (
    ClientWrite,
    ClientWrites,
    OpenTransactions,
)
from muster.coordinator.kafka_backend.shard_ownership.shard_acquisition import ShardAcquisition
from muster.coordinator.kafka_backend.shard_ownership.shard_log import (
    LogBatch,
    OwnerRecord,
    ShardRecord,
    ShardReplay,
    encode_owner_record,
)
from tests.sim.kafka_backend import node
from tests.sim.kafka_backend.for_clients import ForClients
from tests.sim.kafka_backend.world import World

Mutant = Callable[[], AbstractContextManager[Any]]


def instead(owner: Any, name: str, make: Callable[[Any], Any]) -> Mutant:
    """`make` is given what is there."""
    return lambda: patch.object(owner, name, make(getattr(owner, name)))


def writes_no_owner_record(honest: Any) -> Any:
    def own(self: ShardAcquisition, given: Any) -> None:
        honest(self, given)
        self._context.appends.open(self.shard, given.producer)
        self._upto = self._replay.position
        self._owner = self._replay.owner or OwnerRecord(1, 0, given.producer)
        self._replay.owner = self._owner
        self._check()

    return own


def reads_to_the_end_before(honest: Any) -> Any:
    def owned(self: ShardAcquisition, offset: int) -> None:
        self._replay.before, self._replay.owner = self._replay.owner, self._owner
        honest(self, self._replay.position - 1)

    return owned


def does_not_wait(honest: Any) -> Any:
    def wait(self: ShardAcquisition) -> None:
        self._replay.unfenced = False
        self._check()

    return wait


def counts_from_receipt(honest: Any) -> Any:
    def base_of(self: World, at: Any, sent_ms: int) -> int:
        return int(at.now_ms)

    return base_of


def applies_fenced_records(honest: Any) -> Any:
    def void(self: ShardReplay, records: Sequence[ShardRecord]) -> Sequence[ShardRecord]:
        return records

    return void


def ignores_markers(honest: Any) -> Any:
    def ended(self: ShardReplay, producer_id: int, *, committed: bool) -> Sequence[ShardRecord]:
        honest(self, producer_id, committed=committed)
        return ()

    return ended


def begins_at_one(honest: Any) -> Any:
    def init(self: AppendQueue, *args: Any) -> None:
        honest(self, *args)
        self.sequence = 1

    return init


def writes_its_owner_record_again(honest: Any) -> Any:
    """As the rules had it: the same key, at a later place."""

    def keep(self: ShardAcquisition) -> None:
        honest(self)
        assert self._owner is not None
        self._write([encode_owner_record(self._owner)])

    return keep


def does_not_join_again(honest: Any) -> Any:
    return lambda assignment, bid: 0


def reads_past_markers(honest: Any) -> Any:
    def take(self: OpenTransactions, batch: LogBatch) -> bool:
        return True if batch.marker is not None else honest(self, batch)

    return take


def follows_from_behind_it(honest: Any) -> Any:
    def heard(self: OpenTransactions, event: Any) -> str:
        why = honest(self, event)
        self._replay.position = max(self._replay.position, self._end) if self.open else self._replay.position
        return str(why)

    return heard


def guesses_where_sequences_stand(honest: Any) -> Any:
    return lambda self, producer_id, epoch: honest(self, producer_id, epoch) or 0


def keeps_what_a_late_epoch_asked_for(honest: Any) -> Any:
    def go(self: ClientWrites, write: ClientWrite) -> None:
        producer = write.client.producer
        if self._sequences.get(producer.id, (-1, 0))[0] > producer.epoch:
            self._sequences[producer.id] = producer.epoch, 0
        honest(self, write)

    return go


def begins_at_0_with_who_is_not_known(honest: Any) -> Any:
    return lambda self, event, end: honest(self, event, 0)


def does_not_wait_for_answers(honest: Any) -> Any:
    return lambda self, producer_id: False


def goes_past_what_nobody_knows(honest: Any) -> Any:
    return property(lambda self: bool(self._requests))


def takes_a_refusal_for_all_there_is(honest: Any) -> Any:
    def refused(self: ClientWrites, *args: Any) -> None:
        honest(self, *args)
        self.in_doubt = False

    return refused


def takes_the_next_transaction_along(honest: Any) -> Any:
    def ends(self: ForClients, store: Any, effect: Any) -> None:
        honest(self, store, replace(effect, offset=1 << 62))

    return ends


def does_not_look_for_late_writes(honest: Any) -> Any:
    def told(self: OpenTransactions, event: Any) -> str:
        honest(self, event)
        return ""

    return told


def answers_at_once(honest: Any) -> Any:
    def outcome(self: ForClients, effect: Any) -> None:
        held, said = self.stores[effect.shard].held, self.stores[effect.shard].tokens[effect.token][3]
        honest(self, effect)
        held.pop()
        said(effect.code)

    return outcome


MUTANTS: Mapping[str, Mutant] = {
    "no owner record": instead(ShardAcquisition, "_own", writes_no_owner_record),
    "replay to the end as it was before the owner record": instead(ShardAcquisition, "_owned", reads_to_the_end_before),
    "F6's wait left out": instead(ShardAcquisition, "_wait", does_not_wait),
    "lease from receipt": instead(World, "base_of", counts_from_receipt),
    "lease between join and sync": instead(node, "LEASED", lambda honest: frozenset(MembershipState)),
    "voids applied": instead(ShardReplay, "_skip_fenced", applies_fenced_records),
    "marker ignored": instead(ShardReplay, "_ended", ignores_markers),
    "marker passed over": instead(OpenTransactions, "_replay_batch", reads_past_markers),
    "follows from behind a client's positions": instead(OpenTransactions, "heard", follows_from_behind_it),
    "a new owner begins its clients' sequences anew": instead(ClientWrites, "_sequence", guesses_where_sequences_stand),
    "who is not known begins at 0": instead(ClientWrites, "apply_description", begins_at_0_with_who_is_not_known),
    "a late word of an epoch that is over counts": instead(ClientWrites, "go", keeps_what_a_late_epoch_asked_for),
    "a marker does not wait for what is in front of it": instead(
        ClientWrites, "may_be_there", does_not_wait_for_answers
    ),
    "what may be in the log is gone past": instead(ClientWrites, "under_way", goes_past_what_nobody_knows),
    "a refusal is all that is looked at": instead(ClientWrites, "_refused", takes_a_refusal_for_all_there_is),
    "a marker ends the next transaction, too": instead(ForClients, "ends", takes_the_next_transaction_along),
    "nobody looks for what an owner before wrote late": instead(
        OpenTransactions, "_apply_description", does_not_look_for_late_writes
    ),
    "a client is answered before what was decided is in the log": instead(ForClients, "_txn_outcome", answers_at_once),
    "sequence from 1": instead(AppendQueue, "__init__", begins_at_one),
    "the owner record itself is refreshed": instead(ShardAcquisition, "_keep", writes_its_owner_record_again),
    "a node that came back does not join again": instead(nodes_group, "joins_again_ms", does_not_join_again),
}
