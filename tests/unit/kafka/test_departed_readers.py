"""Clients that fetch what their group has taken from them are noticed, and nobody else is."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from time import time
from typing import Any

import pytest

from muster.assignors.data.consumer_protocol import encode_assignment
from muster.coordinator.core.model.effects import ExplainReply, GroupChanged
from muster.coordinator.core.model.events import ExplainGroup, FetchedAfterLeaving
from muster.coordinator.core.model.types import Cause, Certainty, LateFetch, Outcome, PartitionMove, RebalanceEntry
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import ClientPeer, KafkaCall
from muster.coordinator.kafka.handlers import departed_readers
from muster.coordinator.kafka.handlers.departed_readers import MAX_WATCHED, WATCHED_MS, DepartedReaders
from muster.coordinator.runtime.shards import partition_for
from tests.support.kafka.asked import Asked
from tests.support.kafka.memory_node import SHARDS, MemoryNode, until
from tests.support.kafka.rights import ROOT

NOW_MS = 1_000_000


def entry(member: str = "b-1", number: int = 2, ended_ms: int = NOW_MS) -> RebalanceEntry:
    """The member left, and partition t-1 went to a-1."""
    return RebalanceEntry(
        number=number,
        previous_generation=1,
        generation=2,
        protocol_type="consumer",
        protocol_name="range",
        cause=Cause.MEMBER_LEFT,
        culprit=member,
        culprit_client_id=member[0],
        culprit_client_host="host",
        detail="it left",
        client_reason="",
        outcome=Outcome.COMPLETED,
        started_at_ms=ended_ms,
        ended_at_ms=ended_ms,
        moves=(PartitionMove("t", 1, member, "a-1", 0, "its owner left the group"),),
    )


class Watch:
    """The readers under test, their clock, and what they have reported."""

    def __init__(self, **options: bool) -> None:
        self.now_ms = NOW_MS
        self.found: list[FetchedAfterLeaving] = []
        self.readers = DepartedReaders(lambda: self.now_ms, self.found.append, **options)

    def notice(self, told: RebalanceEntry) -> None:
        self.readers.noticed(GroupChanged("g", "Stable", 2, told))

    def fetch(self, call: KafkaCall, *numbers: int) -> int:
        """How often that was reported."""
        parts = struct("FetchRequest.topics.partitions")
        topics = [struct("FetchRequest.topics")(topic="t", partitions=[parts(partition=each) for each in numbers])]
        before = len(self.found)
        if self.readers.by_names:
            self.readers.fetched(struct("FetchRequest")(topics=topics), call)
        return len(self.found) - before


def caller(client_id: str = "b", host: str = "host") -> KafkaCall:
    return KafkaCall(11, client_id, ClientPeer(host, asyncio.get_running_loop().create_future()))


def told(story: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    return lambda: asyncio.run(story())


@told
async def test_a_fetch_of_what_it_had_is_reported_after_a_second_and_then_ever_more_seldom() -> None:
    watch, call = Watch(), caller()
    assert watch.fetch(call, 1) == 0
    watch.notice(entry())
    for after_ms, reported in ((999, 0), (1_000, 1), (1_999, 0), (2_000, 1), (3_999, 0), (10_000, 1), (19_999, 0)):
        watch.now_ms = NOW_MS + after_ms
        assert watch.fetch(call, 0, 1) == reported, after_ms
    assert watch.found[0] == FetchedAfterLeaving("g", 2, "b-1", call.peer.number, (("t", 1),))
    assert watch.fetch(caller(), 1) == 1, "another connection has a time of its own"
    watch.now_ms = NOW_MS + WATCHED_MS
    assert watch.fetch(caller(), 1) == 0
    assert not watch.readers.by_names
    watch.notice(entry())
    assert not watch.readers.by_names, "an amended entry is as old as it was"


@told
async def test_other_partitions_and_other_names_are_none_of_its() -> None:
    watch = Watch()
    watch.notice(entry())
    watch.now_ms += 2_000
    assert [watch.fetch(caller(*names), 1) for names in (("c", "host"), ("b", "elsewhere"))] == [0, 0]
    assert watch.fetch(caller(), 0) == 0


@told
async def test_a_member_of_another_group_by_the_same_names_may_be_the_one_that_fetches() -> None:
    watch, other = Watch(), caller()
    watch.notice(entry())
    watch.now_ms += 2_000
    watch.readers.note_joined("other", other)
    other.peer.groups.add("other")
    assert watch.fetch(other, 1) == 0
    assert watch.fetch(caller(), 1) == 0
    other.peer.eof.set_result(None)
    await asyncio.sleep(0)
    assert watch.fetch(caller(), 1) == 1


@told
async def test_in_a_cluster_only_a_connection_of_the_group_counts() -> None:
    watch, joined = Watch(all_members_here=False), caller()
    watch.notice(entry())
    watch.now_ms += 2_000
    assert watch.fetch(caller(), 1) == 0
    joined.peer.groups.add("g")
    assert watch.fetch(joined, 1) == 1


@told
async def test_only_so_many_are_watched() -> None:
    watch = Watch()
    for number in range(MAX_WATCHED + 5):
        watch.notice(entry(f"{number}-1", number))
    assert sum(map(len, watch.readers.by_names.values())) == MAX_WATCHED


def test_a_member_of_a_group_that_was_loaded_goes_by_its_names_once_it_is_heard() -> None:
    """It joins nothing: its group is as it knows it."""

    async def story() -> None:
        async with MemoryNode({"t": 1}) as node:
            loaded = Asked(node.dispatch, ROOT)
            await loaded("Heartbeat", 3, group_id="other", generation_id=1, member_id="c-1")
            assert loaded.peer.groups == {"other"}
            lost = replace(entry(), culprit_client_id="tests", culprit_client_host="10.0.0.1")
            node.departed.noticed(GroupChanged("g", "Stable", 2, replace(lost, ended_at_ms=int(time() * 1000))))
            (reader,) = node.departed.by_names["tests", "10.0.0.1"]
            assert not node.departed.may_be(reader, Asked(node.dispatch, ROOT).peer)

    asyncio.run(story())


async def join_alone(ask: Asked) -> str:
    """The only member of group g, with partition t-0; returns its id."""
    asked: dict[str, Any] = {
        "group_id": "g",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 10_000,
        "protocol_type": "consumer",
        "protocols": [struct("JoinGroupRequest.protocols")(name="range", metadata=b"")],
    }
    member_id = (await ask("JoinGroup", 5, **asked)).member_id
    joined = await ask("JoinGroup", 5, **asked, member_id=member_id)
    share = struct("SyncGroupRequest.assignments")(member_id=member_id, assignment=encode_assignment({"t": (0,)}))
    said = {"group_id": "g", "generation_id": joined.generation_id, "member_id": member_id}
    await ask("SyncGroup", 3, **said, assignments=[share])
    return str(member_id)


@pytest.mark.parametrize("same", [True, False])
def test_a_member_that_left_and_reads_on_is_in_the_ledger(same: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(departed_readers, "FIRST_MS", 0)

    async def story() -> None:
        async with MemoryNode({"t": 1}) as node:
            ask = Asked(node.dispatch, ROOT)
            member_id = await join_alone(ask)
            await ask("LeaveGroup", 1, group_id="g", member_id=member_id)
            parts = [struct("FetchRequest.topics.partitions")(partition=0, partition_max_bytes=100)]
            topics = [struct("FetchRequest.topics")(topic="t", partitions=parts)]
            reads = ask if same else Asked(node.dispatch, ROOT)
            await until(lambda: bool(node.departed.by_names))
            await reads("Fetch", 11, replica_id=-1, topics=topics)
            found: tuple[LateFetch, ...] = ()
            while not found:
                asked = ExplainGroup(node.driver.next_id(), "g", 1, 0)
                reply = await node.driver.ask_shard(partition_for("g", SHARDS), asked, ExplainReply)
                found = reply.entries[0].late_fetches
            certainty = Certainty.RECORDED if same else Certainty.INFERRED
            assert [(each.member_id, each.topic, each.partitions) for each in found] == [(member_id, "t", (0,))]
            assert found[0].certainty is certainty

    asyncio.run(asyncio.wait_for(story(), 20))
