"""Members and operators of a cluster whose coordinators move (CL-K3, CL-K4), against nodes that do as the test says."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from muster.client.aio import AsyncAdmin, AsyncConsumer
from muster.client.calls import leaders as leading
from muster.client.calls.topic_calls import list_offsets
from muster.client.errors import GroupNotFound, Refused, UnknownTopic
from muster.client.membership import member_driver
from muster.client.membership.member_driver import build_member_settings
from muster.client.types import TopicPartition
from tests.support.scripted.cluster import ScriptedCluster
from tests.support.scripted.groups import NO_COORDINATOR
from tests.support.scripted.node import BROKEN
from tests.unit.client.cluster.test_following_leaders import batch, consumer, play, producer, quick, read, send, until

__all__ = ["quick"]


def member(cluster: ScriptedCluster, **more: Any) -> AsyncConsumer:
    given = {
        "group_id": "g",
        "group_protocol": "consumer",
        "group_membership": "poll",
        "enable_auto_commit": False,
    }
    return consumer(cluster, **(given | more))


def admin(cluster: ScriptedCluster, through: int = 1) -> AsyncAdmin:
    return AsyncAdmin(bootstrap_servers=cluster.nodes[through].address, retry_backoff_ms=5, reconnect_backoff_ms=10)


def beats(cluster: ScriptedCluster, *nodes: int) -> int:
    return len(cluster.calls("ConsumerGroupHeartbeat", *nodes))


@pytest.mark.parametrize("how", ["told", "dead", "nobody for a while", "silent"])
def test_a_member_follows_its_coordinator_without_joining_again(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-K3, CL-K4: 16, a broken connection, 15 and silence; it goes on with its partitions, under its id and epoch."""
    if how == "silent":
        monkeypatch.setattr(leading.PartitionLeaders, "heartbeat_ms", lambda *given: 60)

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        cluster.coordinators["g"] = 3
        lost: list[Any] = []
        async with member(cluster) as reader, producer(cluster) as writer:
            await reader.subscribe(["t"], **dict.fromkeys(("on_revoke", "on_lost"), lambda *said: lost.append(said)))
            await send(writer, "t", b"a")
            assert await read(reader, 1) == [b"a"]
            was = reader.consumer_group_metadata()
            if how == "dead":
                await cluster.nodes[3].die()
            if how == "silent":
                cluster.nodes[3].awake.clear()
            if how == "nobody for a while":
                cluster.coordinators["g"] = None
                looked = len(cluster.calls("FindCoordinator"))
                await until(lambda: len(cluster.calls("FindCoordinator")) > looked + 1)
                await send(writer, "t", b"b")
                assert await read(reader, 1) == [b"b"]
            cluster.coordinators["g"] = 1
            await until(lambda: beats(cluster, 1) > 2)
            await send(writer, "t", b"c")
            assert await read(reader, 1) == [b"c"]
            await reader.commit()
            assert reader.consumer_group_metadata() == was
            assert (lost, dict(cluster.joins)) == ([], {was.member_id: 1})
            assert cluster.committed[("g", "t", 0)][0] >= 2
            cluster.nodes[3].awake.set()

    play(story)


def test_k4_who_finds_no_coordinator_for_a_session_stops_and_joins_again_under_its_id() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        cluster.coordinators["g"], cluster.session_ms = 3, 200
        lost: list[Any] = []
        async with member(cluster) as reader, producer(cluster) as writer:
            await reader.subscribe(["t"], on_lost=lambda *said: lost.append(said))
            await send(writer, "t", b"a")
            assert await read(reader, 1) == [b"a"]
            was = reader.consumer_group_metadata()
            cluster.coordinators["g"] = None
            while not lost:
                assert await reader.consume(1, 0.01) == []
            assert reader.assignment() == set()
            cluster.coordinators["g"] = 1
            await send(writer, "t", b"b")
            await read(reader, 1)
            assert cluster.joins == {was.member_id: 2}

    play(story)


def test_a_stream_that_breaks_has_the_coordinator_looked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """CL-K3: heartbeats are a minute apart here; a member that waited for the next one would long have no session."""
    told = build_member_settings
    monkeypatch.setattr(
        member_driver, "build_member_settings", lambda config: replace(told(config), heartbeat_interval_ms=60_000)
    )

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        cluster.coordinators["g"], cluster.interval_ms = 3, 60_000
        async with member(cluster, group_membership="push") as reader:
            await reader.subscribe(["t"])
            cluster.append("t", 0, batch(b"a"))
            assert await read(reader, 1) == [b"a"]
            was = reader.consumer_group_metadata()
            await until(lambda: reader._core.driver._pushed.is_open)
            await cluster.nodes[3].die()
            cluster.coordinators["g"] = 1
            await until(lambda: beats(cluster, 1) > 0)
            assert reader.consumer_group_metadata() == was
            assert sum(cluster.joins.values()) == 1

    play(story)


@pytest.mark.parametrize("dead", [True, False])
def test_who_leaves_says_so_to_the_coordinator_of_that_moment(dead: bool) -> None:
    """A goodbye that reached nobody would leave the group to wait for a session to end."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 2)
        cluster.coordinators["g"], cluster.interval_ms = 3, 60_000
        reader = member(cluster)
        await reader.subscribe(["t"])
        cluster.append("t", 0, batch(b"a"))
        assert await read(reader, 1) == [b"a"]
        cluster.coordinators["g"] = 1
        if dead:
            await cluster.nodes[3].die()
        await reader.close()
        assert [said.request.member_epoch for said in cluster.calls("ConsumerGroupHeartbeat", 1)] == [-1]

    play(story)


def test_who_knows_one_node_hears_of_the_others_from_the_first_that_it_finds_its_coordinator_by() -> None:
    """CL-K3: bootstrap.servers is a beginning, for who reads no log as well: its only bootstrap server dies."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t")
        cluster.coordinators["g"] = 1
        async with member(cluster) as reader:
            await reader.subscribe(["^t.*"])
            cluster.said.clear()
            await until(lambda: beats(cluster, 1) > 1 and reader._core.transport.leaders.shared)
            await cluster.nodes[1].die()
            cluster.coordinators["g"] = 2
            await until(lambda: beats(cluster, 2) > 1)
            assert sum(cluster.joins.values()) == 1

    play(story)


def test_a_lonely_node_is_not_asked_for_others() -> None:
    """A single node stays as it was: FindCoordinator once, and Metadata for the topics that are subscribed to."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 1)
        cluster.coordinators["g"] = 1
        async with member(cluster) as reader:
            await reader.subscribe(["t"])
            await until(lambda: beats(cluster) > 2)
            assert len(cluster.calls("FindCoordinator")) == 1
            assert [list(said.request.topics) for said in cluster.calls("Metadata")] == [["t"]]
            assert len(reader._core.transport._channels) == 1
        async with admin(cluster) as operator:
            cluster.said.clear()
            await operator.list_groups()
            await operator.describe_groups(["g"])
            await operator.delete_groups(["g"])
            assert [said.name for said in cluster.said] == ["ListGroups", "DescribeGroups", "DeleteGroups"]

    play(story, 1, lonely=True)


def test_operators_hear_of_the_groups_of_all_nodes() -> None:
    """CL-K3: list_groups asks all nodes; what is about a group goes to its coordinator, whichever node was named."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.coordinators |= {"a": 1, "b": 2, "c": 3, "nobody": None}
        async with admin(cluster, through=2) as operator:
            assert [group.group_id for group in await operator.list_groups()] == ["a", "b", "c"]
            found = await operator.describe_groups(["c", "a", "nobody", "b"])
            assert [(each.group_id, each.coordinator) for each in found] == [
                ("c", cluster.nodes[3].address),
                ("a", cluster.nodes[1].address),
                ("b", cluster.nodes[2].address),
            ]
            await operator.delete_groups(["a", "b", "c"])
            assert cluster.coordinators == {"nobody": None}

    play(story)


def test_a_list_of_groups_is_whole_or_waited_for() -> None:
    """A node that dies under way: who lists groups asks anew, until those that are told of are the ones that answer."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.coordinators |= {"a": 1, "b": 2, "c": 3}
        async with admin(cluster) as operator:

            async def die(request: Any, truth: Any) -> Any:
                cluster.coordinators["c"] = 1
                cluster.goes(3)
                return BROKEN

            cluster.nodes[3].next("ListGroups", die)
            assert [group.group_id for group in await operator.list_groups()] == ["a", "b", "c"]

    play(story)


def test_groups_that_cannot_be_listed_right_now_cost_nobody_the_others() -> None:
    """A shard below its minimum, or without a lease: whoever wants the others hears where some are missing."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.coordinators |= {"a": 1, "b": 2, "c": 3}

        async def in_part(request: Any, truth: Any) -> Any:
            answer = await truth()
            answer.error_code, answer.error_message = NO_COORDINATOR, "shard 7 cannot tell"
            return answer

        async with admin(cluster) as operator:
            for number in (1, 1, 3):  # the first is asked whether there are others
                cluster.nodes[number].next("ListGroups", in_part)
            missing: list[str] = []
            assert [group.group_id for group in await operator.list_groups(missing=missing.append)] == ["a", "b", "c"]
            where = [cluster.nodes[number].address for number in (1, 3)]
            assert missing == [f"some of {node}: COORDINATOR_NOT_AVAILABLE: shard 7 cannot tell" for node in where]
            cluster.nodes[3].next("ListGroups", in_part)
            with pytest.raises(Refused, match="shard 7 cannot tell"):
                await operator.list_groups()

    play(story)


def test_records_are_deleted_and_offsets_listed_where_they_are_led() -> None:
    """CL-K3: by calls to each leader, made again where a partition has moved."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 1, 2, 3)
        for number in range(3):
            cluster.append("t", number, batch(b"a", b"b", b"c"))
        async with admin(cluster) as operator:
            ends = await operator.list_offsets({("t", number): -1 for number in range(3)})
            assert [at.offset for at in ends.values()] == [3, 3, 3]
            cluster.lead("t", 1, 3)
            await cluster.nodes[2].die()
            marks = await operator.delete_records({("t", number): number for number in range(3)})
            assert {tp.partition: mark for tp, mark in marks.items()} == {0: 0, 1: 1, 2: 2}
            starts = await operator.list_offsets({("t", number): -2 for number in range(3)})
            assert {tp.partition: at.offset for tp, at in starts.items()} == {0: 0, 1: 1, 2: 2}

    play(story)


def test_a_topic_that_is_not_there_is_not_waited_for() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        async with admin(cluster) as operator:
            with pytest.raises(UnknownTopic, match="nowhere-0"):
                await operator.list_offsets({("nowhere", 0): -1})

    play(story)


def test_a_topic_that_was_not_there_is_asked_for_again() -> None:
    """A consumer that subscribed before its topic was made was given partitions, and never found where to begin."""

    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("other", 1)
        async with consumer(cluster) as reader:
            transport = reader._core.transport
            place = TopicPartition("later", 0)
            await list_offsets(transport, {TopicPartition("other", 0): -1})
            transport.leaders.refresh_leaders([place])
            await until(lambda: transport.leaders.is_missing("later"))
            cluster.topic("later", 2)
            cluster.append("later", 0, batch(b"a"))
            assert (await list_offsets(transport, {place: -1}))[place].offset == 1

    play(story)


def test_a_group_that_is_not_there_is_refused_by_its_coordinator() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.coordinators["g"] = 3
        async with admin(cluster) as operator:

            async def dead(request: Any, truth: Any) -> Any:
                answer = await truth()
                answer.groups[0].group_state = "Dead"
                return answer

            cluster.nodes[3].next("DescribeGroups", dead)
            with pytest.raises(GroupNotFound):
                await operator.describe_group("g")

    play(story)


def test_a_commit_is_made_where_the_group_is_coordinated_by_then() -> None:
    async def story(cluster: ScriptedCluster) -> None:
        cluster.topic("t", 1)
        cluster.coordinators["g"] = 2
        async with admin(cluster) as operator:
            await operator.alter_offsets("g", {("t", 0): 5})
            cluster.coordinators["g"] = 3
            moving = asyncio.ensure_future(operator.alter_offsets("g", {("t", 0): 6}))
            await moving
            assert cluster.committed == {("g", "t", 0): (6, -1)}

    play(story)
