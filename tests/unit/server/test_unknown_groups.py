"""KB-M2: whose requests wait until it is known whether the upstream has their group, and what is kept of that."""

from itertools import count

from muster.coordinator.core.model.effects import OffsetCommitReply, OffsetFetchReply
from muster.coordinator.core.model.events import DeleteGroup, OffsetCommit, OffsetDelete, OffsetFetch, TopicsChanged
from muster.coordinator.core.model.types import CommittedOffset, Limits
from muster.coordinator.edge.request_limits import name_operator
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka_backend.offset_migration import ADOPTED
from muster.coordinator.kafka_backend.shard_ownership.shard_log import ShardRecordRead
from muster.coordinator.kafka_backend.state_log import SETTLED, StateLog
from muster.coordinator.runtime.leased import LeasedEngine
from muster.coordinator.server.kafka_backend.gated_engine import AdoptionVerdict, GatedEngine
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.support.led_bench import HeldAuthority

ids = count(1)
GONE = ErrorCode.NOT_COORDINATOR


class Gate(HeldAuthority):
    position = 0

    def wrote(self, shard: int, position: int) -> None:
        self.position = position

    def takes(self, shard: int) -> bool:
        return True

    def has_room(self, shard: int) -> bool:
        return True


class Upstream:
    """Knows of groups what a test has told."""

    def __init__(self) -> None:
        self.said: dict[str, AdoptionVerdict] = {}
        self.looked: list[str] = []
        self.gone: list[str] = []
        self.by_hand: list[str] = []

    def verdict_of(self, shard: int, group: str) -> AdoptionVerdict | None:
        return self.said.get(group)

    def look_up_group(self, shard: int, group: str) -> None:
        self.looked.append(group)

    def deleted(self, shard: int, group: str, by: str) -> None:
        self.gone.append(group)

    def adopted(self, shard: int, group: str) -> None:
        self.by_hand.append(group)


class Stage:
    def __init__(self) -> None:
        self.gate, self.upstream = Gate(), Upstream()
        self.engine = GatedEngine(MemoryGroupLog(1), 1, Limits(), authority=self.gate)
        self.engine.newcomers = self.upstream
        self.engine.submit_all(TopicsChanged({"t": 1}, ids={"t": b"t" * 16}))
        self.engine.load_shard(0, 0)
        self.told()

    def told(self) -> dict[int, ErrorCode]:
        self.engine.turn(0)
        self.engine.committed(0, self.gate.position, 0)
        replies = dict(self.engine.take_released().replies)
        assert all(isinstance(reply, OffsetFetchReply | OffsetCommitReply) for reply in replies.values())
        return {number: reply.code for number, reply in replies.items()}  # type: ignore[union-attr]

    def fetch(self, group: str) -> int:
        event = OffsetFetch(next(ids), group, None)
        assert self.engine.submit(0, event)
        return event.request_id

    def commit(self, group: str) -> int:
        event = OffsetCommit(next(ids), group, "", None, -1, {("t", 0): CommittedOffset(7)})
        assert self.engine.submit(0, event)
        return event.request_id


def test_who_asks_for_a_group_that_is_not_known_waits_and_nobody_else_does() -> None:
    stage = Stage()
    first, second, adopting = stage.fetch("g"), stage.fetch("g"), stage.commit("g")
    stage.upstream.said["h"] = AdoptionVerdict(ErrorCode.NONE)
    other = stage.fetch("h")
    assert stage.upstream.looked == ["g"]
    assert stage.told() == {adopting: ErrorCode.NONE, other: ErrorCode.NONE}, "what adopts it must not wait for itself"
    stage.upstream.said["g"] = AdoptionVerdict(ErrorCode.NONE)
    stage.engine.release_group(0, "g")
    assert stage.told() == {first: ErrorCode.NONE, second: ErrorCode.NONE}
    assert stage.upstream.looked == ["g"]


def test_a_group_that_is_refused_is_so_for_who_waited_and_for_who_comes_later() -> None:
    stage = Stage()
    waited = stage.fetch("g")
    stage.upstream.said["g"] = AdoptionVerdict(ErrorCode.COORDINATOR_NOT_AVAILABLE, "somebody reads in it")
    stage.engine.release_group(0, "g")
    later = stage.fetch("g")
    assert stage.told() == dict.fromkeys((waited, later), ErrorCode.COORDINATOR_NOT_AVAILABLE)


def test_who_waits_in_a_shard_that_is_lost_hears_so() -> None:
    stage = Stage()
    waited = stage.fetch("g")
    stage.engine.leave(0, "another has it", 1)
    stage.upstream.said["g"] = AdoptionVerdict(ErrorCode.NONE)
    stage.engine.release_group(0, "g")
    assert stage.told() == {waited: GONE}


def test_what_is_deleted_is_told_and_a_led_engine_knows_nothing_of_all_this() -> None:
    stage = Stage()
    stage.engine.submit(0, DeleteGroup(next(ids), "g"))
    assert stage.upstream.gone == ["g"]
    assert not hasattr(LeasedEngine, "newcomers")


def test_m1_what_was_adopted_by_hand_and_whose_positions_were_taken_away_is_told() -> None:
    """Else the group would be taken over once more, with what the upstream still has of it, when these are gone."""
    stage = Stage()
    at = {("t", 0): CommittedOffset(7)}
    who = name_operator("127.0.0.1", ADOPTED)
    stage.engine.submit(0, OffsetCommit(next(ids), "g", "", None, -1, at, operator=who, by_tool=True))
    stage.engine.submit(0, OffsetCommit(next(ids), "h", "", None, -1, at, operator=name_operator("::1", "a mistake")))
    stage.engine.submit(0, OffsetDelete(next(ids), "i", (("t", 0),)))
    assert (stage.upstream.by_hand, stage.upstream.gone) == (["g"], ["i"])


# -- what is kept of it -------------------------------------------------------------------------------------------


def test_settled_groups_are_written_with_the_next_turn_and_read_again() -> None:
    log = StateLog(1 << 20)
    log.settle(0, "g")
    log.settle(0, "g")
    log.settle(0, "h")
    log.unsettle(0, "h")
    assert log.turn(0) == []
    log.append(0, [(b"\0\1k", b"v", -1)], [], 0)
    written = log.turn(0)
    assert written == [
        (b"\0\1k", b"v", -1),
        (SETTLED + b"g", b"1", -1),
        (SETTLED + b"h", b"1", -1),
        (SETTLED + b"h", None, -1),
    ]
    anew = StateLog(1 << 20)
    anew.begin_shard(0)
    anew.hold(0, [ShardRecordRead(key, value, offset) for offset, (key, value, _) in enumerate(written)])
    anew.ready(0)
    assert [record.key for record in anew.read_groups(0)] == [b"\0\1k"], "the engine hears nothing of it"  # type: ignore[union-attr]
    assert (anew.is_settled(0, "g"), anew.is_settled(0, "h"), anew.is_settled(1, "g")) == (True, False, False)
    anew.let_go(0)
    assert anew.is_settled(0, "g")
    anew.begin_shard(0)
    assert not anew.is_settled(0, "g"), "whoever has the shard next reads it"
