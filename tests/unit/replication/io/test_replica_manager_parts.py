"""The parts of a node's replica half by themselves: the poll, the desk, questions of who is in sync, waits, flushes."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from muster.coordinator.config import Address
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.commit_waits import CommitWaits, LogStartWaits
from muster.coordinator.replication.io.inbound_requests import (
    ControllerDesk,
    ControllerSide,
    CurrentController,
    NodeDesk,
)
from muster.coordinator.replication.io.outbound_requests import AlterPartitionClient, ImagePolling
from muster.coordinator.replication.io.replica_logs import FlushRound, ReplicaFlusher
from muster.coordinator.replication.io.wire.node_api import EpochEnd, EpochQuery, PeerFetch
from muster.coordinator.replication.io.wire.node_links import LinkBroken
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    ClusterImage,
    ClusterNodeStatus,
    ClusterState,
    ImageChanges,
    NodeView,
    PartitionState,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import AlterPartitionResult, IsrResult
from muster.coordinator.replication.protocol.leader import IsrProposal
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas, ReplicaSettings
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer, FetchRequest
from tests.fakes.controller_desk import NoControllerDesk
from tests.sim.replication.disk import Disk
from tests.support.replication import ORDERS, TOPIC, whole
from tests.support.sides import unheard

HERE, THERE, CONTROLLER = 1, 2, 9
NONE = ErrorCode.NONE


def topic(leader: int = HERE, epoch: int = 3, isr: tuple[int, ...] = (HERE, THERE)) -> TopicView:
    view = PartitionView(leader, epoch, epoch, isr, (), (HERE, THERE))
    return TopicView(TOPIC, "orders", {"min.insync.replicas": "2"}, {0: view})


class Given:
    """A node that knows the cluster, without doors: `answers` are what links bring, in order."""

    def __init__(self) -> None:
        self.disk = Disk("d")
        self.image = ClusterImage()
        self.replicas = NodeReplicas(HERE, self.disk, ReplicaSettings(lag_time_ms=1_000), 0)
        self.replicas.registered(10)
        self.sequence = 0
        self.answers: list[Any] = []
        self.asked: list[Any] = []
        self.told: list[Any] = []
        self.hears(topic(), nodes=(NodeView(HERE, 10), NodeView(THERE, 20)))

    def hears(self, *topics: TopicView, nodes: tuple[NodeView, ...] = ()) -> None:
        self.sequence += 1
        answer = ClusterState(NONE, CONTROLLER, 1, self.sequence, self.sequence == 1, nodes, topics)
        changes = self.image.apply(answer)
        assert changes is not None
        self.replicas.learn(self.image, changes, 0)

    async def to(self, node: int) -> "Given":
        return self

    def close(self) -> None: ...

    async def cluster_state(self, *asked: Any, **how: Any) -> ClusterState:
        return self._next(asked)  # type: ignore[no-any-return]

    async def alter_partition(self, *asked: Any, **how: Any) -> AlterPartitionResult:
        return self._next(asked)  # type: ignore[no-any-return]

    def _next(self, asked: tuple[Any, ...]) -> Any:
        self.asked.append(asked)
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def polling(
        self, controller: int | None = CONTROLLER, epoch: int = 10, desk: ControllerDesk | None = None
    ) -> ImagePolling:
        return ImagePolling(
            self.replicas,
            self.image,
            self,  # type: ignore[arg-type]
            ControllerSide(
                controller=lambda: None if controller is None else CurrentController(controller, Address("c", 1)),
                node_epoch=lambda: epoch,
                register_anew=lambda: self.told.append("anew"),
                broke=lambda node: self.told.append(("broke", node)),
                desk=NoControllerDesk() if desk is None else desk,
            ),
            learned=self.learned,
        )

    async def learned(self, changes: ImageChanges) -> None:
        self.told.append(changes)

    def desk(self) -> NodeDesk:
        return NodeDesk(self.replicas, self.image, NoControllerDesk(), now_ms=lambda: 0, happened=lambda: None)


def play(story: Callable[[Given], Awaitable[None]]) -> None:
    async def run() -> None:
        async with asyncio.timeout(30):
            await story(Given())

    asyncio.run(run())


# -- the poll (CL-N1 to CL-N3)
# -------------------------------------------------------------------------------------------


def test_n2_an_answer_of_a_controller_that_stands_still_is_not_waited_for_once_there_is_another() -> None:
    async def story(given: Given) -> None:
        asked, stands_still = asyncio.Queue[int](), asyncio.Event()
        controllers = [CONTROLLER, THERE]

        class Links:
            async def to(self, node: int) -> Any:
                asked.put_nowait(node)
                await stands_still.wait()

        polling = given.polling()
        polling._links = Links()  # type: ignore[assignment]
        polling._around = polling._around._replace(
            controller=lambda: CurrentController(controllers[0], Address("c", 1))
        )
        running = asyncio.create_task(polling.run())
        assert await asked.get() == CONTROLLER
        del controllers[0]
        polling.look_again()
        assert await asked.get() == THERE
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert running.cancelled()

    play(story)


def test_n1_what_an_answer_changes_is_learned_and_the_next_poll_names_it() -> None:
    async def story(given: Given) -> None:
        given.replicas.broke(ORDERS, "I/O error")
        given.answers = [ClusterState(NONE, CONTROLLER, 1, 2, nodes=(NodeView(3, 30),)), ClusterState(epoch=1)]
        polling = given.polling(epoch=11)
        assert await polling.once()
        (changes,) = given.told
        assert isinstance(changes, ImageChanges)
        assert changes.nodes == [3]
        assert await polling.once()
        assert [asked[:2] for asked in given.asked] == [(11, (1, 1)), (11, (1, 2))]
        assert given.asked[0][2] == ((TOPIC, 0, "I/O error"),)
        assert given.replicas.node_epoch == 11, "by the registration that the poll named"

    play(story)


def test_n1_the_controller_s_own_node_hears_it_without_the_wire() -> None:
    class Desk(NoControllerDesk):
        async def cluster_state(self, node: Any, known: Any, offline: Any, max_wait_ms: int) -> ClusterState:
            asked.append((node, known, offline, max_wait_ms))
            return ClusterState(NONE, given_id, 1, 2, nodes=(NodeView(3, 30),))

    asked: list[Any] = []
    given_id = 0

    async def story(given: Given) -> None:
        nonlocal given_id
        given_id = given.replicas.me
        assert await given.polling(controller=given_id, epoch=11, desk=Desk()).once()
        assert asked == [((given_id, 11), (1, 1), (), 500)]
        assert (given.asked, len(given.told), given.image.known) == ([], 1, (1, 2))

    play(story)


def test_n2_without_a_controller_a_registration_or_an_answer_it_tries_again_after_a_moment() -> None:
    async def story(given: Given) -> None:
        assert not await given.polling(controller=None).once()
        assert not await given.polling(epoch=NO_EPOCH).once()
        given.answers = [LinkBroken("gone"), ClusterState(ErrorCode.NOT_CONTROLLER)]
        assert not await given.polling().once()
        assert not await given.polling().once()
        assert given.told == [("broke", CONTROLLER)]

    play(story)


def test_c9_a_node_whose_registration_counts_no_more_registers_anew_and_one_not_taken_in_yet_waits() -> None:
    async def story(given: Given) -> None:
        stale = ErrorCode.STALE_BROKER_EPOCH
        given.answers = [
            ClusterState(stale),
            ClusterState(stale, nodes=(NodeView(THERE, 20, ClusterNodeStatus.GONE),)),
            ClusterState(stale, nodes=(NodeView(HERE, 10, ClusterNodeStatus.GONE),)),
        ]
        told = []
        for _ in range(3):
            assert not await given.polling().once()
            told.append(list(given.told))
        assert told == [[], [], ["anew"]]

    play(story)


# -- the desk ------------------------------------------------------------------------------------------------------


def fetch(request: FetchRequest, max_wait_ms: int = 0) -> PeerFetch:
    return PeerFetch(request, max_wait_ms, 1)


def test_who_is_no_node_of_the_cluster_begins_no_session() -> None:
    async def story(given: Given) -> None:
        answer = await given.desk().fetch(fetch(whole()._replace(node=7)))
        assert answer == FetchAnswer(ErrorCode.STALE_BROKER_EPOCH)
        assert (await given.desk().fetch(fetch(whole()))).session == 1

    play(story)


def test_l7_a_fetch_waits_for_something_to_tell_and_one_that_is_cancelled_harms_nobody() -> None:
    async def story(given: Given) -> None:
        desk, request = given.desk(), whole()._replace(node_epoch=20)
        request = request._replace(items=tuple(item._replace(last_epoch=-1) for item in request.items))
        session = (await desk.fetch(fetch(request))).session
        more = request._replace(session=session, session_epoch=1, items=())
        await desk.fetch(fetch(more))
        waiting = asyncio.ensure_future(desk.fetch(fetch(more._replace(session_epoch=2), 60_000)))
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        waiting = asyncio.ensure_future(desk.fetch(fetch(more._replace(session_epoch=3), 60_000)))
        await asyncio.sleep(0)
        given.disk.logs[ORDERS].append(3, ["a"])
        given.replicas.appended(ORDERS)
        given.replicas.serving.wake(0)
        assert [len(part.records) for part in (await waiting).parts] == [1]

    play(story)


def test_l9_who_is_shown_a_later_epoch_lets_go_and_says_so_by_that_epoch() -> None:
    """CL-G5a."""

    async def story(given: Given) -> None:
        desk = given.desk()
        given.disk.logs[ORDERS].append(3, ["a", "b"])

        async def ends(*asked: EpochQuery) -> list[EpochEnd]:
            return await desk.epochs(THERE, asked)

        assert await ends(
            EpochQuery("orders", 0, 3, 3), EpochQuery("orders", 0, 2, 3), EpochQuery("orders", 5, 3, 3)
        ) == [
            EpochEnd("orders", 0, NONE, 3, 2),
            EpochEnd("orders", 0, ErrorCode.FENCED_LEADER_EPOCH),
            EpochEnd("orders", 5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        assert ORDERS in given.replicas.led
        let_go: list[TopicPartition] = []
        desk.let_go = let_go.append
        assert await ends(EpochQuery("orders", 0, 4, 3)) == [EpochEnd("orders", 0, ErrorCode.NOT_LEADER_OR_FOLLOWER, 4)]
        assert ORDERS not in given.replicas.led
        assert let_go == [ORDERS]
        given.hears(topic(epoch=3, isr=(HERE,)))
        assert ORDERS not in given.replicas.led

    play(story)


# -- who is in sync ------------------------------------------------------------------------------------------------


def test_l5_questions_of_a_moment_are_one_request_and_each_hears_its_own_answer() -> None:
    async def story(given: Given) -> None:
        happened = asyncio.Event()
        altering = AlterPartitionClient(
            given.replicas,
            given.image,
            given,  # type: ignore[arg-type]
            lambda: CONTROLLER,
            now_ms=lambda: 0,
            happened=happened.set,
            failed=unheard,
        )
        heard: list[Any] = []
        given.replicas.altered = lambda question, answer, now_ms: heard.append((question, answer))  # type: ignore[method-assign]
        known = IsrProposal(ORDERS, 3, 3, ((HERE, 10),))
        strange = IsrProposal(TopicPartition("strange", 0), 3, 3, ((HERE, 10),))
        state = PartitionState(HERE, 3, (HERE,), partition_epoch=4)
        for answer, code in (
            (AlterPartitionResult(NONE, (IsrResult(TOPIC, 0, NONE, state),)), NONE),
            (
                AlterPartitionResult(NONE, (IsrResult(TOPIC, 0, ErrorCode.INELIGIBLE_REPLICA),)),
                ErrorCode.INELIGIBLE_REPLICA,
            ),
            (AlterPartitionResult(ErrorCode.NOT_CONTROLLER), ErrorCode.NOT_CONTROLLER),
            (AlterPartitionResult(NONE), ErrorCode.REQUEST_TIMED_OUT),
            (LinkBroken("gone"), ErrorCode.REQUEST_TIMED_OUT),
        ):
            given.answers, heard[:] = [answer], []
            happened.clear()
            altering.propose_isr([known, strange])
            await happened.wait()
            assert [(question, answer.code) for question, answer in heard][:1] == [(known, code)]
            assert heard[1][0] is strange
            assert heard[1][1].code in (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER)
        assert [len(asked[1]) for asked in given.asked] == [1] * 5

    play(story)


# -- waits and flushes ---------------------------------------------------------------------------------------------


def test_a3b_who_gives_records_up_waits_for_all_that_are_in_sync() -> None:
    async def story(given: Given) -> None:
        starting = LogStartWaits(given.replicas)
        half = given.replicas.led[ORDERS].leader.halves[0]
        half.start = 5
        waiting = starting.wait(ORDERS, 5)
        for start, done in ((-1, False), (4, False), (5, True)):
            half.seen[THERE].start = start
            starting.check_waits()
            assert waiting.done() == done
        assert await waiting is NONE
        half.seen[THERE].start = 4
        late = starting.wait(ORDERS, 5)
        given.replicas.led[ORDERS].leader.over = True
        starting.check_waits()
        assert await late is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(story)


def test_who_waits_no_more_is_not_remembered() -> None:
    async def story(given: Given) -> None:
        committing = CommitWaits(given.replicas)
        gone, left = committing.wait(ORDERS, 1), committing.wait(ORDERS, 1)
        gone.cancel()
        await asyncio.sleep(0)
        assert [len(waiting) for waiting in committing._waiting.values()] == [1]
        left.cancel()
        await asyncio.sleep(0)
        assert committing._waiting == {}

    play(story)


class SlowLog:
    end = 1
    kept = 0
    waits_for_flush = True

    def __init__(self) -> None:
        self.flushes: list[int] = []

    def flush(self) -> None:
        self.flushes.append(self.end)


def test_f3_one_round_of_flushes_runs_at_a_time_and_what_grew_meanwhile_takes_another() -> None:
    async def story(given: Given) -> None:
        log, rounds = SlowLog(), []

        def told(flushed: FlushRound) -> None:
            rounds.append(flushed.done)

        flushing = ReplicaFlusher(lambda place: log, told, unheard)  # type: ignore[arg-type, return-value]
        flushing.soon([ORDERS])
        flushing.soon([ORDERS])
        await asyncio.sleep(0)
        flushing.soon([ORDERS])
        assert not rounds
        log.end = 2
        flushing.soon([ORDERS])
        await flushing.quiet()
        assert rounds == [[ORDERS], [ORDERS]]
        flushing.abandon()

    play(story)


def test_d2_what_promises_no_flush_is_kept_as_it_is_written() -> None:
    async def story(given: Given) -> None:
        log = SlowLog()
        log.kept, log.waits_for_flush = 1, False
        flushing = ReplicaFlusher(lambda place: log, unheard, unheard)  # type: ignore[arg-type, return-value]
        assert flushing.soon([ORDERS]) == [ORDERS]
        await flushing.quiet()
        assert log.flushes == []
        flushing.abandon()

    play(story)


def test_who_waits_as_the_node_stops_hears_that_it_leads_no_more() -> None:
    async def story(given: Given) -> None:
        committing = CommitWaits(given.replicas)
        gone, waiting = committing.wait(ORDERS, 1), committing.wait(ORDERS, 1)
        gone.cancel()
        committing.end()
        assert await waiting is ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(story)
