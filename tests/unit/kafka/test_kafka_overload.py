"""What clients hear when the node itself takes no more: codes after which every one of them comes again."""

import asyncio
import weakref
from collections.abc import Sequence
from functools import partial
from typing import Any

import pytest

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.edge.large_answers import MAX_GROUPS_PER_TURN
from muster.coordinator.errors import ErrorCode, NodeShuttingDown, Overloaded
from muster.coordinator.kafka.codec.codec import decode_frame, struct
from muster.coordinator.kafka.dispatch import ClientPeer, DeferredAnswer, EncodedAnswer, KafkaCall
from muster.coordinator.kafka.handlers.group_requests import GroupRequests, PendingGroupReply
from muster.coordinator.kafka.handlers.handlers import GroupHandlers
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint
from muster.coordinator.kafka.handlers.offset_commit_reader import make_commit
from muster.storage.errors import UnknownTopicOrPartition


class FullDriver:
    """A node that refuses everything for one reason."""

    def __init__(self, why: Overloaded | NodeShuttingDown) -> None:
        self.why = why

    def next_id(self) -> int:
        return 1

    async def ask_shard(self, shard: int, event: events.Request, wanted: type[Any]) -> Any:
        raise self.why

    async def ask_all(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Any]) -> list[Any]:
        raise self.why

    def begin_request(self, shard: int, event: events.Request, waiter: PendingGroupReply[Any]) -> None:
        raise self.why

    def forget(self, shard: int, event: events.Request) -> None:
        raise AssertionError("nothing was taken, so there is nothing to forget")

    def beat(self, shard: int, group_id: str, member_id: str, generation: int, rights: Rights) -> bool:
        return False


class ClosingDriver(FullDriver):
    """Takes the request, and is closed before it is answered."""

    def begin_request(self, shard: int, event: events.Request, waiter: PendingGroupReply[Any]) -> None:
        waiter.set_exception(self.why)


REQUESTS = {
    "JoinGroup": {"group_id": "g", "session_timeout_ms": 10_000},
    "SyncGroup": {"group_id": "g"},
    "LeaveGroup": {"group_id": "g"},
    "ListGroups": {},
    "OffsetDelete": {"group_id": "g"},
    "ConsumerGroupHeartbeat": {"group_id": "g"},
    "Heartbeat": {"group_id": "g", "member_id": "m"},
}


def gone(topic: str, partition: int) -> tuple[int, int]:
    """The span of a log whose directory somebody took away."""
    raise UnknownTopicOrPartition(f"{topic}-{partition} is not there.")


def answered(driver: FullDriver, name: str, version: int = 0, **fields: object) -> Any:
    async def story() -> Any:
        handlers = GroupHandlers(
            driver,
            shards=4,
            endpoint=lambda: AdvertisedEndpoint(1, "h", 1),
            partitions=lambda: {"t": 1},
            log_span=gone,
        )
        call = KafkaCall(version, "c", ClientPeer("h", asyncio.get_running_loop().create_future()))
        method = "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name).lstrip("_")
        request = struct(f"{name}Request")(**REQUESTS.get(name, {}) | fields)
        if name == "OffsetCommit":
            request = make_commit(request)
        if hasattr(handlers, f"{method}_now"):
            answer = getattr(handlers, f"{method}_now")(request, call)
            return answer.respond() if isinstance(answer, DeferredAnswer) else answer
        return await getattr(handlers, method)(request, call)

    return asyncio.run(story())


@pytest.mark.parametrize("name", list(REQUESTS))
def test_a_full_node_sends_clients_back_later(name: str) -> None:
    response = answered(FullDriver(Overloaded("full")), name)
    assert response.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


@pytest.mark.parametrize("name", [name for name in REQUESTS if name != "ListGroups"])
def test_a_node_that_stops_sends_clients_to_look_for_another(name: str) -> None:
    assert answered(FullDriver(NodeShuttingDown()), name).error_code == ErrorCode.NOT_COORDINATOR


def test_the_coordinator_of_many_groups_is_told_once_for_each() -> None:
    def told(*keys: str) -> list[str]:
        response = answered(FullDriver(Overloaded("full")), "FindCoordinator", 4, coordinator_keys=list(keys))
        return [row.key for row in response.coordinators]

    assert told("b", "a", "b") == ["b", "a"]
    assert len(told(*map(str, range(20_000)))) == 20_000


class CountingDriver(FullDriver):
    """Refuses everything, and knows how much was asked at once."""

    def __init__(self) -> None:
        super().__init__(NodeShuttingDown())
        self.asked: list[int] = []

    async def ask_all(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Any]) -> list[Any]:
        self.asked.append(len(questions))
        raise self.why


ABOUT_GROUPS = [
    ("DescribeGroups", "groups", "groups"),
    ("ConsumerGroupDescribe", "group_ids", "groups"),
    ("DeleteGroups", "groups_names", "results"),
]


@pytest.mark.parametrize(("name", "asked", "told"), ABOUT_GROUPS)
def test_a_tool_that_asks_about_very_many_groups_hears_of_each_and_holds_up_nobody(
    name: str, asked: str, told: str
) -> None:
    driver, names = CountingDriver(), [str(number) for number in range(20_500)]
    answer = answered(driver, name, **{asked: names})
    assert isinstance(answer, EncodedAnswer), "its bytes are made beside the loop"
    rows = getattr(decode_frame(f"{name}Response", 0, b"".join(answer.body)), told)
    assert [row.group_id for row in rows] == names
    assert max(driver.asked) <= MAX_GROUPS_PER_TURN, "whoever else the node serves has turns in between"


class LargeGroupDriver(FullDriver):
    """One group, with very many members or very many partitions."""

    def __init__(self, reply: effects.DescribeReply | effects.DescribeConsumerReply) -> None:
        super().__init__(NodeShuttingDown())
        self._reply = reply

    async def ask_all(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Any]) -> list[Any]:
        return [self._reply]


def consumer_view(partitions: int) -> effects.ConsumerMemberView:
    shares = {b"t" * 16: dict.fromkeys(range(partitions), 1)}
    return effects.ConsumerMemberView(
        member_id="m",
        instance_id=None,
        rack_id=None,
        client_id="c",
        client_host="h",
        topic_names=("t",),
        topic_regex=None,
        epoch=1,
        state="stable",
        assigned=shares,
        revoking={},
        target={b"t" * 16: frozenset(range(partitions))},
        classic=False,
    )


LARGE_GROUPS = [
    (
        "DescribeGroups",
        "groups",
        effects.DescribeReply(members=(effects.DescribedMember("m", None, "c", "h", b"", b""),) * 1_000),
    ),
    ("ConsumerGroupDescribe", "group_ids", effects.DescribeConsumerReply(members=(consumer_view(1),) * 1_000)),
    ("ConsumerGroupDescribe", "group_ids", effects.DescribeConsumerReply(members=(consumer_view(20_000),))),
]


@pytest.mark.parametrize(("name", "asked", "reply"), LARGE_GROUPS)
def test_the_description_of_one_very_large_group_is_made_beside_the_loop(
    name: str, asked: str, reply: effects.DescribeReply | effects.DescribeConsumerReply
) -> None:
    """Members, and the partitions they have, count as much as the groups that a request names."""
    answer = answered(LargeGroupDriver(reply), name, **{asked: ["g"]})
    assert isinstance(answer, EncodedAnswer)
    (row,) = decode_frame(f"{name}Response", 0, b"".join(answer.body)).groups
    assert len(row.members) == len(reply.members)


def test_a_node_that_stops_meanwhile_says_the_same() -> None:
    assert answered(ClosingDriver(NodeShuttingDown()), "Heartbeat").error_code == ErrorCode.NOT_COORDINATOR


def test_a_reset_to_the_beginning_of_a_log_that_cannot_be_read_is_refused() -> None:
    row = struct("OffsetCommitRequest.topics.partitions")(partition_index=0, committed_offset=-2)
    asked = [struct("OffsetCommitRequest.topics")(name="t", partitions=[row])]
    answer = answered(FullDriver(NodeShuttingDown()), "OffsetCommit", 8, group_id="g", topics=asked)
    (topic,) = decode_frame("OffsetCommitResponse", 8, b"".join(answer.body)).topics
    assert topic.partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class PatientDriver(FullDriver):
    """Takes every request and answers when it is told to."""

    def __init__(self) -> None:
        super().__init__(NodeShuttingDown())
        self.waiting: list[PendingGroupReply[Any]] = []
        self.forgotten: list[events.Request] = []

    def begin_request(self, shard: int, event: events.Request, waiter: PendingGroupReply[Any]) -> None:
        self.waiting.append(waiter)

    def forget(self, shard: int, event: events.Request) -> None:
        self.forgotten.append(event)


def asked(driver: PatientDriver) -> DeferredAnswer:
    groups = GroupRequests(driver, 4)
    later = groups.begin_request(
        "g", lambda: events.Heartbeat(1, "g", "m", None, 1), effects.HeartbeatReply, lambda r: r.code
    )
    assert isinstance(later, DeferredAnswer)
    return later


def test_a_client_that_is_gone_is_forgotten_once_and_hears_nothing() -> None:
    driver = PatientDriver()
    heard: list[object] = []
    later = asked(driver)
    later.then(lambda: heard.append(later.respond()))
    later.cancel()
    later.cancel()
    assert [event.request_id for event in driver.forgotten] == [1]
    assert driver.waiting[0].done()
    assert heard == []


def test_what_is_answered_is_heard_once_and_not_forgotten_any_more() -> None:
    driver = PatientDriver()
    heard: list[object] = []
    later = asked(driver)
    later.then(lambda: heard.append(later.respond()))
    driver.waiting[0].set_result(effects.HeartbeatReply(ErrorCode.REBALANCE_IN_PROGRESS))
    later.cancel()
    assert heard == [ErrorCode.REBALANCE_IN_PROGRESS]
    assert driver.forgotten == []


class Mark:
    """Something that a callback holds."""


def test_an_answered_request_lets_go_of_whom_it_told() -> None:
    """Its connection and it know each other while it waits; a circle that stayed would cost more than the request."""
    driver, mark = PatientDriver(), Mark()
    later = asked(driver)
    later.then(partial(id, mark))
    held = weakref.ref(mark)
    del mark
    assert held() is not None
    driver.waiting[0].set_result(effects.HeartbeatReply())
    assert held() is None
