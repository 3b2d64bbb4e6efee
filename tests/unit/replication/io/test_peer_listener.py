"""Door and link over loopback: what is asked arrives as it was meant, and so does the answer."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.wire.node_api import VERSION_OF, ElectionEntry, EpochEnd, EpochQuery, NodeName
from muster.coordinator.replication.io.wire.node_links import LinkBroken, NodeLink
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterNodeStatus,
    ClusterState,
    ImageVersion,
    NodeEndpoint,
    NodeView,
    PartitionState,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AlterPartitionResult,
    IsrItem,
    IsrMember,
    IsrResult,
    OfflineReplica,
    ShutdownResult,
)
from muster.coordinator.replication.protocol.replica_fetch import (
    WRONG_SESSION_EPOCH,
    FetchAnswer,
    FetchedPartition,
    FetchItem,
    FetchRequest,
    ForgottenPartition,
)
from tests.support.replication import (
    ORDERS,
    OTHER,
    PATIENCE_S,
    STRANGE,
    TOPIC,
    HeldDesk,
    fetch_of,
    linked,
    serving,
    whole,
)

OTHERS = TopicPartition("others", 0)
STATE = PartitionState(leader=1, leader_epoch=7, isr=(1, 3), partition_epoch=12)


def play(story: Callable[[HeldDesk, NodeLink], Awaitable[None]]) -> None:
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

    async def story(desk: HeldDesk, link: NodeLink) -> None:
        told = FetchAnswer(
            0,
            9,
            (
                FetchedPartition(ORDERS._replace(partition=1), TOPIC, 0, 40, 3, records=memoryview(records)[5:]),
                FetchedPartition(ORDERS, TOPIC, 6, leader=3, leader_epoch=8),
                FetchedPartition(OTHERS, OTHER, 0, 9, 0, diverging=(4, 8)),
            ),
        )
        desk.found = lambda asked: told
        request = FetchRequest(
            2,
            77,
            9,
            4,
            (FetchItem(ORDERS, TOPIC, 3, 5, 2, 1), FetchItem(OTHERS, OTHER, 3, 2**40, 2, 1)),
            (ForgottenPartition(OTHERS._replace(partition=7), OTHER),),
            part_bytes=100,
            answer_bytes=1000,
        )
        answer = await fetch_of(link, request)
        assert answer == told
        assert isinstance(answer.parts[0].records, memoryview), "a view of what came"
        ((_, asked),) = desk.asked
        assert (asked.request, asked.max_wait_ms, asked.min_bytes) == (request, 500, 1)

    play(story)


def test_the_code_of_a_whole_answer_is_told() -> None:
    async def story(desk: HeldDesk, link: NodeLink) -> None:
        desk.found = lambda asked: FetchAnswer(WRONG_SESSION_EPOCH)
        assert await fetch_of(link, whole()) == FetchAnswer(WRONG_SESSION_EPOCH)

    play(story)


def test_what_is_asked_of_a_topic_that_is_not_known_is_refused_at_once_and_no_more() -> None:
    async def story(desk: HeldDesk, link: NodeLink) -> None:
        desk.found = lambda asked: FetchAnswer(0, 9)
        strange = FetchItem(TopicPartition("strange", 3), STRANGE, 3, 0, 2, 0)
        request = whole()
        request = request._replace(
            items=(*request.items, strange), forgotten=(ForgottenPartition(strange.place, STRANGE),)
        )
        names = {TOPIC: "orders", STRANGE: "strange"}.get
        answer = await fetch_of(link, request, names)
        assert [(part.place, part.code) for part in answer.parts] == [(strange.place, ErrorCode.UNKNOWN_TOPIC_ID)]
        ((_, asked),) = desk.asked
        assert (asked.request, asked.max_wait_ms) == (request._replace(items=request.items[:1], forgotten=()), 0)
        desk.found = lambda asked: FetchAnswer(WRONG_SESSION_EPOCH)
        assert await fetch_of(link, request, names) == FetchAnswer(WRONG_SESSION_EPOCH)

    play(story)


def test_what_is_told_of_a_topic_that_went_meanwhile_is_left_out() -> None:
    async def story(desk: HeldDesk, link: NodeLink) -> None:
        desk.found = lambda asked: FetchAnswer(0, 9, (FetchedPartition(ORDERS, TOPIC, 0, 5, 0),))
        answer = await fetch_of(link, whole(), lambda topic: None)
        assert answer == FetchAnswer(0, 9)

    play(story)


def test_a_fetch_whose_node_is_gone_is_cancelled() -> None:
    async def run() -> None:
        desk = HeldDesk()
        async with serving(desk) as door:
            link = await linked(door)
            desk.held = asyncio.Event()
            waiting = asyncio.create_task(fetch_of(link, whole()))
            await desk.until(lambda: len(desk.asked) == 1)
            link.close()
            with pytest.raises(LinkBroken, match="closed at this end"):
                await waiting
            await desk.until(lambda: desk.gone == ["fetch"])

    asyncio.run(run())


def test_epochs_are_asked_for_and_told() -> None:
    async def story(desk: HeldDesk, link: NodeLink) -> None:
        desk.answers["epochs"] = [EpochEnd("a", 0, ErrorCode.NONE, 5, 99), EpochEnd("b", 1, ErrorCode(75))]
        asked = (EpochQuery("a", 0, 7, 5), EpochQuery("b", 1, -1, 6))
        assert await link.epochs(asked, deadline_s=PATIENCE_S) == desk.answers["epochs"]
        assert desk.asked == [("epochs", 2, asked)]

    play(story)


def test_in_sync_replicas_are_asked_for_and_told() -> None:
    async def story(desk: HeldDesk, link: NodeLink) -> None:
        items = (
            IsrItem(TOPIC, 0, 7, 11, (IsrMember(1, 50), IsrMember(3, 2**40))),
            IsrItem(OTHER, 4, 1, 0, (IsrMember(1, 50),)),
        )
        told = AlterPartitionResult(
            ErrorCode.NONE,
            (IsrResult(TOPIC, 0, ErrorCode.NONE, STATE), IsrResult(OTHER, 4, ErrorCode.INELIGIBLE_REPLICA)),
        )
        desk.answers["alter_partition"] = told
        assert await link.alter_partition(77, items, deadline_s=PATIENCE_S) == told
        assert desk.asked == [("alter_partition", NodeName(2, 77), items)]
        desk.answers["alter_partition"] = AlterPartitionResult(ErrorCode.NOT_CONTROLLER)
        assert await link.alter_partition(77, items, deadline_s=PATIENCE_S) == AlterPartitionResult(
            ErrorCode.NOT_CONTROLLER
        )

    play(story)


def test_a_shutdown_is_asked_for_and_what_is_still_led_is_told() -> None:
    async def story(desk: HeldDesk, link: NodeLink) -> None:
        told = ShutdownResult(ErrorCode.NONE, (TopicPartition("a", 3), TopicPartition("__consumer_offsets", 0)))
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
            NodeView(
                1,
                50,
                ClusterNodeStatus.LIVE,
                "north",
                (NodeEndpoint("PLAINTEXT", "a.example", 9092), NodeEndpoint("X", "", 0)),
                session_ms=6_000,
                proves=True,
            ),
            NodeView(2, 51, ClusterNodeStatus.GONE),
        ),
        topics=(
            TopicView(TOPIC, "orders", {"min.insync.replicas": "2"}, views),
            TopicView(OTHER, "__gone", deleted=True),
        ),
    )

    async def story(desk: HeldDesk, link: NodeLink) -> None:
        desk.answers["cluster_state"] = told
        offline = (OfflineReplica(TOPIC, 3, "I/O error"),)
        known = ImageVersion(4, 17)
        assert await link.cluster_state(77, known, offline, max_wait_ms=500, deadline_s=PATIENCE_S) == told
        assert desk.asked == [("cluster_state", NodeName(2, 77), known, offline, 500)]

    play(story)


def test_elections_are_noted_and_what_became_of_it_is_told() -> None:
    async def story(desk: HeldDesk, link: NodeLink) -> None:
        records = (ElectionEntry(b"orders-3", b"{}"), ElectionEntry(b"", bytes(1000)))
        for code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            desk.answers["note"] = code
            assert await link.note(records, deadline_s=PATIENCE_S) is code
        assert desk.asked == [("note", records)] * 2

    play(story)


def test_a_large_cluster_is_written_and_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    views = {number: PartitionView(1, 7, 12, (1, 2, 3), (), (1, 2, 3)) for number in range(3_000)}
    told = ClusterState(controller=3, epoch=4, sequence=5, full=True, topics=(TopicView(TOPIC, "orders", {}, views),))
    in_threads = []

    async def to_thread(call: Callable[..., Any], *arguments: Any) -> Any:
        in_threads.append(call.__name__)
        return call(*arguments)

    async def story(desk: HeldDesk, link: NodeLink) -> None:
        monkeypatch.setattr(asyncio, "to_thread", to_thread)
        desk.answers["cluster_state"] = told
        assert await link.cluster_state(77, ImageVersion(), (), max_wait_ms=0, deadline_s=PATIENCE_S) == told
        assert in_threads == ["encode_answer", "parse_answer"]
        desk.answers["cluster_state"] = ClusterState(controller=3, epoch=4, sequence=6)
        await link.cluster_state(77, ImageVersion(), (), max_wait_ms=0, deadline_s=PATIENCE_S)
        assert len(in_threads) == 2

    play(story)


def test_several_requests_may_be_under_way_and_are_answered_in_their_order() -> None:
    async def story(desk: HeldDesk, link: NodeLink) -> None:
        desk.answers["controlled_shutdown"] = ShutdownResult(ErrorCode.NONE)
        desk.answers["alter_partition"] = AlterPartitionResult(ErrorCode.NONE)
        desk.held = asyncio.Event()
        both = (
            asyncio.create_task(link.controlled_shutdown(77, deadline_s=PATIENCE_S)),
            asyncio.create_task(link.alter_partition(77, (), deadline_s=PATIENCE_S)),
        )
        await desk.until(lambda: len(desk.asked) == 2)
        assert link.under_way == 2
        desk.held.set()
        assert list(await asyncio.gather(*both)) == [
            ShutdownResult(ErrorCode.NONE),
            AlterPartitionResult(ErrorCode.NONE),
        ]

    play(story)


def test_a_drained_door_answers_what_it_was_asked_and_closes() -> None:
    async def run() -> None:
        desk = HeldDesk()
        desk.held = asyncio.Event()
        async with serving(desk) as door:
            link = await linked(door)
            waiting = asyncio.create_task(fetch_of(link, whole()))
            await desk.until(lambda: bool(desk.asked))
            door.drain()
            desk.held.set()
            assert (await waiting).code == 0
            with pytest.raises(LinkBroken, match="closed the connection"):
                await link.epochs((), deadline_s=PATIENCE_S)

    asyncio.run(run())


def test_it_speaks_what_nodes_ask_of_each_other_and_nothing_else() -> None:
    assert VERSION_OF == {
        "ApiVersions": 3,
        "Fetch": 15,
        "OffsetForLeaderEpoch": 4,
        "AddPartitionsToTxn": 5,
        "WriteTxnMarkers": 2,
        "AlterPartition": 3,
        "ControlledShutdown": 3,
        "ClusterState": 0,
        "NoteElections": 0,
        "ReadSecurity": 0,
        "WriteSecurity": 0,
        "LogEnds": 0,
        "GroupsWithSettings": 0,
        "ProveNode": 0,
        "NoteAborts": 0,
        "ReadAborts": 0,
    }
