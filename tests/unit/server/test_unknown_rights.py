"""While nobody knows who may do what, members are refused unread: that is no silence of theirs."""

from itertools import count
from typing import Any

import pytest

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription
from muster.coordinator.core.model.effects import ConsumerHeartbeatReply, HeartbeatReply, JoinReply
from muster.coordinator.core.model.events import (
    ConsumerHeartbeat,
    Heartbeat,
    JoinGroup,
    Request,
    SyncGroup,
    TopicsChanged,
)
from muster.coordinator.core.model.types import Limits, Protocol
from muster.coordinator.errors import ErrorCode
from muster.coordinator.server.kafka_backend.gated_engine import GatedEngine
from tests.fakes.memory_group_log import MemoryGroupLog
from tests.unit.server.test_gated_engine import Everybody

ids = count(1)
SESSION_MS = 10_000


class Stage:
    """One shard on a clock of its own; time goes by in quarters of a second, and it is looked at who waits."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.doubts = ""
        self.authority = Everybody()
        limits = Limits(initial_rebalance_delay_ms=0)
        self.engine = GatedEngine(MemoryGroupLog(1), 1, limits, authority=self.authority)
        self.engine.doubts = lambda: self.doubts
        self.engine.submit_all(TopicsChanged({"orders": 2}, ids={"orders": b"1" * 16}))
        self.engine.load_shard(0, 0)

    def ask(self, request: Request) -> Any:
        self.engine.submit(0, request)
        return self.turn()[request.request_id]

    def turn(self) -> dict[int, Any]:
        self.engine.turn(self.now_ms)
        self.engine.flush_job()
        self.engine.committed(0, self.authority.position, self.now_ms)
        self.engine.late(self.now_ms)
        return dict(self.engine.take_released().replies)

    def passes(self, ms: int, *says: Any) -> list[Any]:
        """With each second what the members say; what they hear."""
        heard: list[Any] = []
        until_ms = self.now_ms + ms
        while self.now_ms < until_ms:
            self.now_ms += 250
            self.turn()
            heard += [self.ask(say()) for say in says if self.now_ms % 1_000 == 0]
        return heard


def join(member: str) -> JoinGroup:
    offer = (Protocol("range", encode_subscription(Subscription(1, ("orders",)))),)
    number = next(ids)
    return JoinGroup(number, "g", member, None, "c", "/h", SESSION_MS, 30_000, "consumer", offer, f"new{number}")


def joined(stage: Stage) -> str:
    """A classic member that has its share."""
    member: str = stage.ask(join("")).member_id
    told = stage.ask(join(member))
    assert isinstance(told, JoinReply)
    assert told.code is ErrorCode.NONE, told
    sync = SyncGroup(next(ids), "g", member, None, told.generation, "consumer", "range", ((member, b"s"),))
    assert stage.ask(sync).code is ErrorCode.NONE
    return member


@pytest.mark.parametrize("doubts_ms", [30_000, 600_000])
def test_a_classic_member_that_went_on_saying_that_it_lives_is_there_when_it_is_over(doubts_ms: int) -> None:
    stage = Stage()
    member = joined(stage)

    def beat() -> Heartbeat:
        return Heartbeat(next(ids), "g", member, None, 1)

    stage.doubts = "it has not been read for 31 s"
    for told in stage.passes(doubts_ms, beat):
        assert isinstance(told, HeartbeatReply)
        assert told.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
    stage.doubts = ""
    assert [told.code for told in stage.passes(3_000, beat)] == [ErrorCode.NONE] * 3


def test_who_said_nothing_meanwhile_has_its_session_yet_and_no_more_than_that() -> None:
    stage = Stage()
    member = joined(stage)
    stage.doubts = "it has not been read for 31 s"
    stage.passes(60_000)
    stage.doubts = ""
    stage.passes(SESSION_MS - 1_000)
    assert stage.ask(Heartbeat(next(ids), "g", member, None, 1)).code is ErrorCode.NONE
    stage.passes(SESSION_MS + 1_000)
    assert stage.ask(Heartbeat(next(ids), "g", member, None, 1)).code is ErrorCode.UNKNOWN_MEMBER_ID


def test_nor_is_who_could_not_join_again_put_out_of_a_group_that_waits_for_it() -> None:
    stage = Stage()
    first = joined(stage)
    waits = join(stage.ask(join("")).member_id)
    stage.engine.submit(0, waits)
    assert stage.turn() == {}, "it waits for the other one"
    stage.doubts = "it has not been read for 31 s"
    told = stage.passes(90_000, lambda: join(first))
    assert {each.code for each in told} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    stage.doubts = ""
    comes = join(first)
    stage.engine.submit(0, comes)
    heard = stage.turn()
    assert {request: (each.code, each.generation) for request, each in heard.items()} == {
        waits.request_id: (ErrorCode.NONE, 2),
        comes.request_id: (ErrorCode.NONE, 2),
    }


def test_a_member_of_kip_848_is_there_when_it_is_over() -> None:
    stage = Stage()
    asked = ConsumerHeartbeat(next(ids), "k", "m", 0, rebalance_timeout_ms=60_000, topic_names=("orders",), owned={})
    told = stage.ask(asked)
    assert isinstance(told, ConsumerHeartbeatReply)
    epoch = told.member_epoch

    def beat() -> ConsumerHeartbeat:
        return ConsumerHeartbeat(next(ids), "k", "m", epoch, owned=told.assignment)

    stage.doubts = "it has not been read for 31 s"
    stage.passes(300_000, beat)
    stage.doubts = ""
    assert stage.ask(beat()).code is ErrorCode.NONE
