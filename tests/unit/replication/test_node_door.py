"""Door and link over loopback: what is asked arrives as it was meant, and so does the answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.coordinator.cluster.controller.effects import IsrAltered, IsrResult, ShutdownAnswered
from muster.coordinator.cluster.controller.events import IsrItem, IsrMember, Offline
from muster.coordinator.cluster.facts import Endpoint, State, TopicPartition
from muster.coordinator.cluster.image import ClusterState, Known, NodeStatus, NodeView, PartitionView, TopicView
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.apis import VERSION_OF
from muster.coordinator.replication.link import Link
from muster.coordinator.replication.reaching import Broken
from muster.coordinator.replication.sessions import FETCH_SESSION_ID_NOT_FOUND, Asked, Fetch, Following
from muster.coordinator.replication.words import (
    CurrentLeader,
    Diverging,
    EpochAsked,
    EpochEnd,
    FetchAsked,
    Found,
    NodeName,
    Told,
)
from tests.support.replication import PATIENCE_S, TOPIC, HeldDesk, fetch_of, linked, serving, whole

OTHER = b"o" * 16
STATE = State(leader=1, leader_epoch=7, isr=(1, 3), partition_epoch=12)


def play(story: Callable[[HeldDesk, Link], Awaitable[None]]) -> None:
    async def run() -> None:
        desk = HeldDesk()
        async with serving(desk) as door:
            link = await linked(door)
            async with asyncio.timeout(PATIENCE_S):
                await story(desk, link)
            link.close()

    asyncio.run(run())


def test_a_fetch_arrives_as_it_was_meant_and_its_records_pass_untouched() -> None:
    records = bytes(range(256)) * 1000

    async def story(desk: HeldDesk, link: Link) -> None:
        desk.found = lambda asked: [
            Found(asked.opened.session.parts[TOPIC, 1], 0, 40, 3, memoryview(records)[5:]),
            Found(asked.opened.session.parts[OTHER, 0], 0, 9, 0, diverging_epoch=Diverging(4, 8)),
            Found(asked.opened.session.parts[TOPIC, 0], 6, current_leader=CurrentLeader(3, 8)),
        ]
        told = await fetch_of(link, whole((TOPIC, 0), (TOPIC, 1), (OTHER, 0), offset=5))
        assert (told.error_code, told.session_id > 0) == (0, True)
        assert told.found == [
            Told(TOPIC, 1, 0, 40, 3, records[5:], None, None),
            Told(TOPIC, 0, 6, -1, -1, b"", None, CurrentLeader(3, 8)),
            Told(OTHER, 0, 0, 9, 0, b"", Diverging(4, 8), None),
        ]
        assert isinstance(told.found[0].records, memoryview), "a view of what came"
        ((_, asked),) = desk.asked
        assert asked[0] == NodeName(2, 77)
        assert (asked.max_wait_ms, asked.min_bytes, asked.max_bytes, asked.opened.anew) == (500, 1, 1 << 20, True)
        (part, *_) = asked.opened.named
        assert part.place == (TOPIC, 0)
        assert (part.leader_epoch, part.offset, part.last_epoch, part.log_start) == (3, 5, 2, 0)
        assert part.max_bytes == 1 << 20

    play(story)


def test_an_answer_in_a_session_has_only_what_is_new() -> None:
    async def story(desk: HeldDesk, link: Link) -> None:
        marks = {0: 5, 1: 5}

        def found(asked: FetchAsked) -> list[Found]:
            return [Found(part, 0, marks[part.partition], 0) for part in asked.opened.session.parts.values()]

        desk.found = found
        following = Following()
        for partition in marks:
            following.want((TOPIC, partition), Asked(3, 5, 2, 0, 100))
        seen = []
        for change in ({}, {}, {1: 6}, {}):
            marks |= change
            told = await fetch_of(link, following.next())
            assert following.answered(told.error_code, told.session_id)
            seen.append([(each.partition, each.high_watermark) for each in told.found])
        assert seen == [[(0, 5), (1, 5)], [], [(1, 6)], []]
        named = [len(asked.opened.named) for _, asked in desk.asked]
        assert named == [2, 0, 0, 0]

    play(story)


def test_a_full_session_s_end_is_told_and_the_follower_begins_anew() -> None:
    async def story(desk: HeldDesk, link: Link) -> None:
        for fetch, code in (
            (Fetch(999, 1, {}, []), FETCH_SESSION_ID_NOT_FOUND),
            (Fetch((await fetch_of(link, whole((TOPIC, 0)))).session_id, 5, {}, []), 71),
        ):
            told = await fetch_of(link, fetch)
            assert (told.error_code, told.session_id, told.found) == (code, 0, [])

    play(story)


def test_a_fetch_whose_node_is_gone_is_cancelled_and_its_session_is_free() -> None:
    async def run() -> None:
        desk = HeldDesk()
        async with serving(desk) as door:
            link = await linked(door)
            session = (await fetch_of(link, whole((TOPIC, 0)))).session_id
            desk.held = asyncio.Event()
            waiting = asyncio.create_task(fetch_of(link, Fetch(session, 1, {}, [])))
            await desk.until(lambda: len(desk.asked) == 2)
            link.close()
            with pytest.raises(Broken, match="closed at this end"):
                await waiting
            await desk.until(lambda: desk.gone == ["fetch"])
            desk.held = None
            again = await linked(door)
            assert (await fetch_of(again, Fetch(session, 2, {}, []))).error_code == 0

    asyncio.run(run())


def test_epochs_are_asked_for_and_told() -> None:
    async def story(desk: HeldDesk, link: Link) -> None:
        desk.answers["epochs"] = [EpochEnd("a", 0, ErrorCode.NONE, 5, 99), EpochEnd("b", 1, ErrorCode(75))]
        asked = (EpochAsked("a", 0, 7, 5), EpochAsked("b", 1, -1, 6))
        assert await link.epochs(asked, deadline_s=PATIENCE_S) == desk.answers["epochs"]
        assert desk.asked == [("epochs", 2, asked)]

    play(story)


def test_in_sync_replicas_are_asked_for_and_told() -> None:
    async def story(desk: HeldDesk, link: Link) -> None:
        items = (
            IsrItem(TOPIC, 0, 7, 11, (IsrMember(1, 50), IsrMember(3, 2**40))),
            IsrItem(OTHER, 4, 1, 0, (IsrMember(1, 50),)),
        )
        told = IsrAltered(
            ErrorCode.NONE,
            (IsrResult(TOPIC, 0, ErrorCode.NONE, STATE), IsrResult(OTHER, 4, ErrorCode.INELIGIBLE_REPLICA)),
        )
        desk.answers["alter_partition"] = told
        assert await link.alter_partition(77, items, deadline_s=PATIENCE_S) == told
        assert desk.asked == [("alter_partition", NodeName(2, 77), items)]
        desk.answers["alter_partition"] = IsrAltered(ErrorCode.NOT_CONTROLLER)
        assert await link.alter_partition(77, items, deadline_s=PATIENCE_S) == IsrAltered(ErrorCode.NOT_CONTROLLER)

    play(story)


def test_a_shutdown_is_asked_for_and_what_is_still_led_is_told() -> None:
    async def story(desk: HeldDesk, link: Link) -> None:
        told = ShutdownAnswered(ErrorCode.NONE, (TopicPartition("a", 3), TopicPartition("__consumer_offsets", 0)))
        desk.answers["controlled_shutdown"] = told
        assert await link.controlled_shutdown(77, deadline_s=PATIENCE_S) == told
        assert desk.asked == [("controlled_shutdown", NodeName(2, 77))]

    play(story)


def test_the_cluster_is_asked_for_and_told() -> None:
    views = {
        0: PartitionView(1, 7, 12, (1, 3), (2,), (1, 2, 3), (3,), (2,), 6, {1: "d" * 22, 2: "e" * 22}),
        5: PartitionView(-1, 8, 13, (1,), (), (1,)),
    }
    told = ClusterState(
        controller=3,
        epoch=4,
        sequence=2**40,
        full=True,
        nodes=(
            NodeView(1, 50, NodeStatus.LIVE, "north", (Endpoint("PLAINTEXT", "a.example", 9092), Endpoint("X", "", 0))),
            NodeView(2, 51, NodeStatus.GONE),
        ),
        topics=(
            TopicView(TOPIC, "orders", {"min.insync.replicas": "2"}, views),
            TopicView(OTHER, "__gone", deleted=True),
        ),
    )

    async def story(desk: HeldDesk, link: Link) -> None:
        desk.answers["cluster_state"] = told
        offline = (Offline(TOPIC, 3, "I/O error"),)
        known = Known(4, 17)
        assert await link.cluster_state(77, known, offline, max_wait_ms=500, deadline_s=PATIENCE_S) == told
        assert desk.asked == [("cluster_state", NodeName(2, 77), known, offline, 500)]

    play(story)


def test_a_large_cluster_is_written_and_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    views = {number: PartitionView(1, 7, 12, (1, 2, 3), (), (1, 2, 3)) for number in range(3_000)}
    told = ClusterState(controller=3, epoch=4, sequence=5, full=True, topics=(TopicView(TOPIC, "orders", {}, views),))
    in_threads = []

    async def to_thread(call: Callable[..., Any], *arguments: Any) -> Any:
        in_threads.append(call.__name__)
        return call(*arguments)

    async def story(desk: HeldDesk, link: Link) -> None:
        monkeypatch.setattr(asyncio, "to_thread", to_thread)
        desk.answers["cluster_state"] = told
        assert await link.cluster_state(77, Known(), (), max_wait_ms=0, deadline_s=PATIENCE_S) == told
        assert in_threads == ["written", "read"]
        desk.answers["cluster_state"] = ClusterState(controller=3, epoch=4, sequence=6)
        await link.cluster_state(77, Known(), (), max_wait_ms=0, deadline_s=PATIENCE_S)
        assert len(in_threads) == 2

    play(story)


def test_several_requests_may_be_under_way_and_are_answered_in_their_order() -> None:
    async def story(desk: HeldDesk, link: Link) -> None:
        desk.answers["controlled_shutdown"] = ShutdownAnswered(ErrorCode.NONE)
        desk.answers["alter_partition"] = IsrAltered(ErrorCode.NONE)
        desk.held = asyncio.Event()
        both = (
            asyncio.create_task(link.controlled_shutdown(77, deadline_s=PATIENCE_S)),
            asyncio.create_task(link.alter_partition(77, (), deadline_s=PATIENCE_S)),
        )
        await desk.until(lambda: len(desk.asked) == 2)
        assert link.under_way == 2
        desk.held.set()
        assert list(await asyncio.gather(*both)) == [ShutdownAnswered(ErrorCode.NONE), IsrAltered(ErrorCode.NONE)]

    play(story)


def test_a_drained_door_answers_what_it_was_asked_and_closes() -> None:
    async def run() -> None:
        desk = HeldDesk()
        desk.held = asyncio.Event()
        async with serving(desk) as door:
            link = await linked(door)
            waiting = asyncio.create_task(fetch_of(link, whole((TOPIC, 0))))
            await desk.until(lambda: bool(desk.asked))
            door.drain()
            desk.held.set()
            assert (await waiting).error_code == 0
            ended: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
            link.on_end(ended.set_result)
            assert "closed the connection" in str(await asyncio.wait_for(ended, PATIENCE_S))

    asyncio.run(run())


def test_it_speaks_what_nodes_ask_of_each_other_and_nothing_else() -> None:
    assert VERSION_OF == {
        "ApiVersions": 3,
        "Fetch": 15,
        "OffsetForLeaderEpoch": 4,
        "AlterPartition": 3,
        "ControlledShutdown": 3,
        "ClusterState": 0,
    }
