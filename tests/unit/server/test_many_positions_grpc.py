"""A commit of very many positions by gRPC: one decision, and all that is long about it is done beside the loop."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.types import Cause, Limits, MemberPlan, Outcome, RebalanceEntry
from muster.coordinator.errors import ErrorCode
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.services import group_requests, group_responses
from muster.coordinator.server.services.group_coordinator import GroupCoordinator
from muster.long_work import AT_ONCE
from tests.support.group_service import group_service_context
from tests.support.kafka.door import OneShard

MANY = 4 * AT_ONCE
CALL = cast(Any, SimpleNamespace(peer_host="h"))


class Decided(OneShard):
    """Keeps what it was asked."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[events.Request] = []

    async def ask_shard(self, shard: int, event: events.Request, wanted: type[Any]) -> Any:
        self.asked.append(event)
        return await super().ask_shard(shard, event, wanted)


def coordinator(driver: Decided, partitions: int) -> GroupCoordinator:
    return GroupCoordinator(group_service_context(driver=driver, partitions=lambda: {"t": partitions}))


def commit_of(positions: int) -> pb.OffsetCommitRequest:
    rows = [pb.OffsetCommitPartition(partition_index=number, committed_offset=7) for number in range(positions)]
    return pb.OffsetCommitRequest(group_id="g", topics=[pb.OffsetCommitTopic(name="t", partitions=rows)])


@pytest.fixture
def beside(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bool]]:
    """What was done, and whether by a thread beside the loop's."""
    done: list[tuple[str, bool]] = []

    def watched(what: str, do: Callable[..., Any]) -> Callable[..., Any]:
        def watching(*args: Any, **named: Any) -> Any:
            done.append((what, threading.current_thread() is not threading.main_thread()))
            return do(*args, **named)

        return watching

    monkeypatch.setattr(group_requests, "parse_offset_commit", watched("read", group_requests.parse_offset_commit))
    separate = group_responses.separate_unknown_partitions
    monkeypatch.setattr(group_responses, "separate_unknown_partitions", watched("separated", separate))
    monkeypatch.setattr(
        group_responses,
        "build_checked_commit_response",
        watched("answered", group_responses.build_checked_commit_response),
    )
    return done


@pytest.mark.parametrize("missing", [0, 1, MANY])
def test_very_many_are_read_and_answered_beside_the_loop(beside: list[tuple[str, bool]], missing: int) -> None:
    driver = Decided()
    there = MANY - missing
    answer = asyncio.run(coordinator(driver, there).offset_commit(commit_of(MANY), CALL))
    assert beside == [("read", True), ("separated", True), ("answered", True)]
    codes = [row.error_code for topic in answer.topics for row in topic.partitions]
    assert codes == [ErrorCode.NONE] * there + [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * missing
    sizes = [len(event.offsets) for event in driver.asked if isinstance(event, events.OffsetCommit)]
    assert sizes == ([there] if there else [])


def test_few_are_not(beside: list[tuple[str, bool]]) -> None:
    answer = asyncio.run(coordinator(Decided(), 3).offset_commit(commit_of(3), CALL))
    assert beside == [("read", False), ("separated", False), ("answered", False)]
    assert [row.error_code for topic in answer.topics for row in topic.partitions] == [ErrorCode.NONE] * 3


def test_what_is_too_long_of_a_position_is_said_in_words() -> None:
    request = commit_of(MANY)
    request.topics[0].partitions[3].committed_metadata = "x" * (Limits().max_offset_metadata + 1)
    answer = asyncio.run(coordinator(Decided(), MANY).offset_commit(request, CALL))
    refused = [row for topic in answer.topics for row in topic.partitions if row.error_code]
    assert [row.partition_index for row in refused] == [3]
    assert "shorten it" in refused[0].error_message


# Explanations
# ------------


class Explained(OneShard):
    """A group with so many rebalances, of ten members each."""

    def __init__(self, rebalances: int) -> None:
        super().__init__()
        plans = tuple(MemberPlan(name, name, "h", None, (("t", (0,)),)) for name in "abcdefghij")
        told = RebalanceEntry(
            *(1, 1, 2, "consumer", "range", Cause.MEMBER_JOINED, "", "", "", "", "", Outcome.COMPLETED, 0, 0),
            members=plans,
        )
        self.reply = effects.ExplainReply(entries=(told,) * rebalances, stalls=(), takeovers=())

    async def ask_shard(self, shard: int, event: events.Request, wanted: type[Any]) -> Any:
        return self.reply


@pytest.mark.parametrize(("rebalances", "by_a_thread"), [(3, False), (AT_ONCE, True)])
def test_a_long_ledger_is_told_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, rebalances: int, by_a_thread: bool
) -> None:
    threads: list[threading.Thread] = []
    build = group_responses.build_explanation

    def watched(*args: Any, **named: Any) -> pb.ExplainGroupResponse:
        threads.append(threading.current_thread())
        return build(*args, **named)

    monkeypatch.setattr(group_responses, "build_explanation", watched)
    service = GroupCoordinator(group_service_context(driver=Explained(rebalances)))
    answer = asyncio.run(service.explain_group(pb.ExplainGroupRequest(group_id="g"), CALL))
    assert len(answer.rebalances) == rebalances
    assert [thread is not threading.main_thread() for thread in threads] == [by_a_thread]
