"""4. Replaying the log gives the live hard state, and a stable group is what its record says.

Every append is decoded from its bytes into a mirror, whose touched groups must equal the live ones; every load starts
the mirror anew from the whole log.
"""

from collections.abc import Iterator, Sequence

from muster.coordinator.core.model.effects import Effects
from muster.coordinator.core.model.events import Event
from muster.coordinator.core.model.records import (
    NumbersPassed,
    OwnRecord,
    Record,
    StallForgotten,
    StallRecorded,
    TakeoverForgotten,
    TakeoverRecorded,
)
from muster.coordinator.core.model.types import GroupState
from muster.coordinator.core.shard import Shard
from muster.coordinator.runtime.kafka_records import decode_group
from muster.coordinator.runtime.own_records import decode_ledger
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord, SkippedRecord
from tests.sim.watch import Checker
from tests.sim.world import World

OF_NO_GROUP = (StallRecorded, StallForgotten, TakeoverRecorded, TakeoverForgotten, NumbersPassed)
"""Facts of no group."""

BESIDE = ("settings", "canaries", "holds", "fences", "balanced")
"""What a shard's state has of a group beside the group, by name."""


class ReplayEqualsLive(Checker):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.mirrors: dict[int, Shard] = {}
        self.unwritten: dict[int, set[str]] = {}
        """Of each shard whose explanations found no room in the log; until the next load. "": the node's own."""

    def unexplained(self, shard: int, ledger: Sequence[KeyValue]) -> None:
        self.unwritten.setdefault(shard, set()).update(group_of(decode_ledger(stored)) for stored in ledger)

    def replayed(self, shard: int, core: Shard) -> None:
        mirror = self.mirrors[shard] = Shard(self.node.limits, shard)
        self.unwritten.pop(shard, None)
        for record in self._kept(shard):
            mirror.apply(record)
        # Where the disk gave nothing of the ledger, explanations are missing, and nothing else may be.
        for record in () if shard in self.node.log.unread else self._explained(shard):
            mirror.apply(record)
        equal = mirror.ledgers == core.ledgers and mirror.state.stalls == core.state.stalls
        equal = equal and mirror.state.farewells == core.state.farewells
        equal = equal and all(getattr(mirror.state, what) == getattr(core.state, what) for what in BESIDE)
        if not equal or hard_groups(mirror) != hard_groups(core):
            self.fail(f"shard {shard} was loaded, but its state is not what its log says")

    def _kept(self, shard: int) -> Iterator[Record]:
        """What the groups' records say. Where some say nothing, each key's newest alone: what it does not say, an older
        one does not say instead, nor did it before.
        """
        part = self.node.log.parts[shard, "groups"]
        written = [stored for batch in part.batches for stored in batch]
        newest = {stored.key: stored.offset for stored in written}
        for stored in written:
            if (part.senseless and newest[stored.key] != stored.offset) or stored.offset in part.senseless:
                continue
            record = decode_group(stored)
            if not isinstance(record, SkippedRecord):
                yield record

    def _explained(self, shard: int) -> Iterator[Record]:
        """What the ledger still says: of each key the newest record that lies where it can be read."""
        part = self.node.log.parts[shard, "ledger"]
        newest = {
            stored.key: stored for batch in part.batches for stored in batch if stored.offset not in part.unreadable
        }
        for stored in sorted(newest.values(), key=lambda stored: stored.offset):
            try:
                record = decode_ledger(stored)
            except MalformedRecord:
                continue
            if not isinstance(record, SkippedRecord | OwnRecord):
                yield record

    def appended(self, shard: int, groups: Sequence[KeyValue], ledger: Sequence[KeyValue]) -> None:
        live, mirror = self.node.live_shard(shard), self.mirrors.get(shard)
        if live is None or mirror is None:
            return
        # Hard facts in the ledger are tombstones for what an older version left there; the simulator has no such log.
        explained = [record for record in map(decode_ledger, ledger) if not isinstance(record, OwnRecord)]
        decoded = [*map(decode_group, groups), *explained]
        records: list[Record] = [record for record in decoded if not isinstance(record, SkippedRecord)]
        for record in records:
            mirror.apply(record)
        behind = self.node.engine.undrafted(shard)
        written = {record.group_id for record in records if not isinstance(record, OF_NO_GROUP)}
        for group_id in sorted(written - {group_of(record) for record in behind}):
            self._compare(group_id, live, mirror)
            self._compare_ledger(group_id, live, mirror)
        if "" in self.unwritten.get(shard, ()) or any(isinstance(record, OF_NO_GROUP) for record in behind):
            return
        if live.state.stalls != mirror.state.stalls:
            self.fail(f"the log knows the stalls {mirror.state.stalls}, the live shard {live.state.stalls}")
        if live.state.numbers_passed != mirror.state.numbers_passed:
            known, told = live.state.numbers_passed, mirror.state.numbers_passed
            self.fail(f"the log says that {told} numbers have been passed, the live shard {known}")

    def _compare(self, group_id: str, live: Shard, mirror: Shard) -> None:
        hard, replayed = hard_group(live, group_id), hard_group(mirror, group_id)
        if hard != replayed:
            self.fail(f"the log of {group_id} says {replayed}, the live group says {hard}")
        for what in BESIDE:
            here, logged = getattr(live.state, what).get(group_id), getattr(mirror.state, what).get(group_id)
            if here != logged:
                self.fail(f"the log says of the {what} of {group_id} {logged}, the live shard says {here}")

    def _compare_ledger(self, group_id: str, live: Shard, mirror: Shard) -> None:
        if group_id in self.unwritten.get(live.index, ()):
            return
        if live.ledgers.get(group_id) != mirror.ledgers.get(group_id):
            self.fail(f"the ledger of {group_id} is not what its log says")

    def stepped(self, shard: int, core: Shard, event: Event, effects: Effects) -> None:
        group = core.groups.get(getattr(event, "group_id", ""))
        if group is None or group.state is not GroupState.STABLE:
            return
        record, stored = group.record(0), group.stored
        said = stored and (stored.generation, stored.leader, [(m.member_id, m.assignment) for m in stored.members])
        if said != (record.generation, record.leader, [(m.member_id, m.assignment) for m in record.members]):
            self.fail(f"{group.id} is stable, but its record says {said} and the group is {record}")


def group_of(record: object) -> str:
    """Whose explanation it is; empty: the node's."""
    return str(getattr(record, "group_id", ""))


def hard_groups(shard: Shard) -> dict[str, object]:
    """Of every group that the log has something of: a simple one whose last position was deleted is but a name."""
    kinds = (shard.groups, shard.consumer_groups, shard.central_groups)
    found = {group_id: hard_group(shard, group_id) for kind in kinds for group_id in kind}
    return {group_id: hard for group_id, hard in found.items() if hard != NOTHING}


def hard_shard(shard: Shard) -> dict[str, object]:
    """All that a replay has to give back."""
    state = shard.state
    of_the_node = (state.stalls, state.takeovers, state.numbers_passed, state.losses_mended, state.farewells)
    beside = {what: getattr(state, what) for what in BESIDE}
    waiting = {"waiting": what_waits(shard)}
    return {"groups": hard_groups(shard), "ledgers": shard.ledgers, "node": of_the_node, **beside, **waiting}


def what_waits(shard: Shard) -> list[tuple[object, ...]]:
    """The positions of open transactions, those of each place in the order of the log: producer, group, partition,
    position."""
    found = [
        (group_id, place, one.at, producer_id, one.value)
        for producer_id, groups in shard.state.pending.of.items()
        for group_id, waiting in groups.items()
        for place in waiting.values
        for one in waiting.of_place(place)
    ]
    ordered = sorted(found, key=lambda one: one[:3])
    return [(producer_id, group_id, place, value) for group_id, place, _, producer_id, value in ordered]


NOTHING = (None, None, None, None)


def hard_group(shard: Shard, group_id: str) -> object:
    """What the log has to hold of it; a KIP-848 group's soft progress does not take part in comparisons."""
    classic = shard.groups.get(group_id)
    offsets = shard.state.offsets.get(group_id) or None
    central = shard.central_groups.get(group_id)
    return (classic.stored if classic else None, shard.consumer_groups.get(group_id), central, offsets)
