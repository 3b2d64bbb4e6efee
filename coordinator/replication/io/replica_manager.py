"""All that one node does for its replicas and its image of the cluster, put together.

The rules are `replication.protocol`'s; `ReplicaManager` makes its calls in the order, and for the reasons, that
`NodeReplicas` names. What the node does as a candidate for controller, and as one, is not here: it enters by
`ControllerSide`.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import structlog

from muster.coordinator.config import Address
from muster.coordinator.config.cluster import ClusterSettings
from muster.coordinator.edge.background_tasks import SupervisedTasks
from muster.coordinator.edge.cluster_view import monotonic_ms, wall_ms
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.commit_waits import CommitWaits, LocalWaits, LogStartWaits
from muster.coordinator.replication.io.copy_repair import CopyRepair
from muster.coordinator.replication.io.election_ledger import ElectionLedger
from muster.coordinator.replication.io.inbound_requests import ControllerSide, NodeDesk
from muster.coordinator.replication.io.outbound_requests import AlterPartitionClient, ImagePolling, ReplicaFetchClient
from muster.coordinator.replication.io.replica_logs import FlushRound, ReplicaFlusher, StoredLogs
from muster.coordinator.replication.io.wire.node_links import LinkSettings, NodeLinks, address_in
from muster.coordinator.replication.io.wire.node_listener import NodeListener
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterImage,
    ImageChanges,
    TopicPartition,
    halves_of,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import ShutdownResult
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas, ReplicaSettings
from muster.storage.broker.broker import Broker
from muster.storage.topics.catalog import PRIVATE_TOPICS

if TYPE_CHECKING:
    from muster.coordinator.edge.listener_base import ListenerTls
    from muster.coordinator.replication.io.wire.node_listener import PeerIdentity

logger = structlog.get_logger("muster.replication")

LOOKS = 4
"""In each `replica.lag.time.max.ms`, and in each session."""

SHUTDOWN_S = 10.0
"""Within which the controller says what this node leads yet."""

AT_ONCE = 100
"""Units that a changed image is taken in for, before others have their turn: at 0.1 ms each. Fewer are done without any
pause, their logs as well; for more those are made and written to in a thread."""

LAST_WORDS_S = 1.0
"""For the ledger of elections."""

SOON_MS = 100
"""Where something is due already that could not be done."""


def replica_settings(settings: ClusterSettings) -> ReplicaSettings:
    return ReplicaSettings(
        lag_time_ms=settings.replica_lag_time_max_ms,
        backoff_ms=settings.replica_fetch_backoff_ms,
        min_isr=settings.min_insync_replicas,
        part_bytes=settings.replica_fetch_max_bytes,
        answer_bytes=settings.replica_fetch_response_max_bytes,
    )


class ReplicaManager:
    """Made with `open`, in the loop it lives in."""

    def __init__(
        self,
        broker: Broker,
        door: NodeListener,
        settings: ClusterSettings,
        calling: LinkSettings,
        around: ControllerSide,
        now_ms: Callable[[], int] = monotonic_ms,
    ) -> None:
        self.image = ClusterImage()
        self._broker = broker
        self._door = door
        self._settings = settings
        self.calling = calling
        self._around = around
        self._now_ms = now_ms
        self.logs = StoredLogs(broker, self.image.topics.get, wall_ms)
        self.replicas = NodeReplicas(calling.me.node, self.logs, replica_settings(settings), now_ms())
        self.set_rates(settings.leader_replication_throttled_rate, settings.follower_replication_throttled_rate)
        self.committing = CommitWaits(self.replicas)
        self.keeping = LocalWaits(self.replicas)
        self.starting = LogStartWaits(self.replicas)
        self._mending = CopyRepair(self.replicas, self.logs, PRIVATE_TOPICS)
        self.failure: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        """Never done but with an error: a mistake of the program, by which the node may not go on (exit code 1)."""
        self._flushing = ReplicaFlusher(self.logs.get, self._flushed, self._failed)
        self._fetching = ReplicaFetchClient(
            self.replicas,
            NodeLinks(calling, lambda node: address_in(self.image, node)),
            self.image.names.get,
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            now_ms=now_ms,
            happened=self.settle,
            broke=around.broke,
            failed=self._failed,
        )
        self._altering = AlterPartitionClient(
            self.replicas,
            self.image,
            NodeLinks(calling, self._controller_at),
            self._controller,
            now_ms=now_ms,
            happened=self.settle,
            failed=self._failed,
        )
        self._poll_links = NodeLinks(calling, self._controller_at)
        self._shutdown_links = NodeLinks(calling, self._controller_at)
        self._polling = ImagePolling(
            self.replicas,
            self.image,
            self._poll_links,
            around,
            learned=self._learned,
        )
        self.elections = ElectionLedger(
            broker,
            self.replicas,
            self.image,
            NodeLinks(calling, lambda node: address_in(self.image, node)),
            appended=self.appended,
            now_ms=now_ms,
            wall_ms=wall_ms,
            failed=self._failed,
        )
        """What the controller's `ElectionNote`s are told (see `CandidateContext.note`)."""
        note = self.elections.append
        self.desk = NodeDesk(self.replicas, self.image, around.desk, now_ms=now_ms, happened=self.settle, note=note)
        self._tasks = SupervisedTasks(self._failed)
        self._learners: list[Callable[[ImageChanges], None]] = []
        self._movers: list[Callable[[TopicPartition], None]] = []
        self._settlers: list[Callable[[], None]] = []
        self._settling: asyncio.Handle | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._armed_ms = 0
        self._stopped = False

    @classmethod
    def open(
        cls,
        broker: Broker,
        door: NodeListener,
        settings: ClusterSettings,
        calling: LinkSettings,
        around: ControllerSide,
    ) -> "ReplicaManager":
        """door: bound. The broker's logs are recovered, and changed by this loop alone from now on."""
        return cls(broker, door, settings, calling, around)

    async def start(self, *, tls: "ListenerTls | None" = None, may: "PeerIdentity | None" = None) -> None:
        """Answer the other nodes, and ask them. See `NodeListener.start`."""
        me = self.calling.me
        await self._door.start(self.desk, me.cluster_id, tls=tls, may=may, proofs=me.proofs)
        for work in (self._polling.run(), self._check_replicas(), self._checkpoint()):
            self._tasks.start(work)
        self.elections.start()

    async def stop(self, grace_s: float = 1.0) -> None:
        """Let go of the other nodes; what was copied is flushed, and how far it is committed written down."""
        await self.elections.sent(LAST_WORDS_S)
        await self._let_go()
        self._flushing.soon(self.replicas.unkept())
        await self._flushing.quiet()
        self._flushing.abandon()
        await self._door.close(grace_s)
        await asyncio.to_thread(self._write_high_watermarks)

    async def abandon(self) -> None:
        """End as a process ends that is killed: nothing more is flushed, nothing is written down."""
        await self._let_go()
        self._flushing.abandon()
        await self._door.close(0)

    # What others of this node tell and ask.

    def set_rates(self, leader: int, follower: int) -> None:
        """CL-A9: bytes a second from now on; see `NodeReplicas.set_rates`. What was put off is due with the next
        round.
        """
        self.replicas.set_rates(leader=leader, follower=follower, now_ms=self._now_ms())

    def registered(self, node_epoch: int) -> None:
        """This node has registered, or has done so anew."""
        self.replicas.registered(node_epoch)
        self.settle()

    def appended(self, place: TopicPartition, end: int) -> "asyncio.Future[ErrorCode]":
        """A log that this node leads has grown; done when what lies below `end` is committed (see `CommitWaits.wait`).
        It is flushed with whatever else is to be flushed."""
        done = self.committing.wait(place, end)
        self.grown([place])
        return done

    def grown(self, places: Iterable[TopicPartition]) -> None:
        """Logs that this node leads have grown: their followers hear of it at once, and the flush runs beside them.
        Who waits for what was appended says so to `committing` or `keeping`, before or after this."""
        led = [place for place in places if place in self.replicas.led]
        for place in led:
            self.replicas.appended(place)
        self._keep(led)
        if self._stopped:
            self._end_waits()
        self.settle()

    def begins(self, places: Iterable[TopicPartition]) -> None:
        """Logs that this node leads begin later than before: followers are to know (CL-F8). Who waits for them says so
        to `starting`, before or after this."""
        for place in places:
            self.replicas.begins(place)
        if self._stopped:
            self._end_waits()
        self.settle()

    def controller_changed(self) -> None:
        """Another node holds `/controller` than before."""
        self._polling.look_again()

    def on_learned(self, listener: Callable[[ImageChanges], None]) -> None:
        """Call it with each change of the image, once the replicas have taken it in."""
        self._learners.append(listener)

    def on_moved(self, listener: Callable[[TopicPartition], None]) -> None:
        """Call it with each partition of which more is committed here than before, or which is led here no more."""
        self._movers.append(listener)

    def on_settled(self, listener: Callable[[], None]) -> None:
        """Call it whenever anything has happened, while `replicas.gained`, `lost` and `resized` say what."""
        self._settlers.append(listener)

    def written(self, places: Iterable[TopicPartition]) -> None:
        """The same as `grown` for logs that are flushed elsewhere: `kept` is to follow. What comes of it is done in the
        loop's next round."""
        for place in places:
            if place in self.replicas.led:
                self.replicas.appended(place)
        self._settle_soon()

    def kept(self, places: Iterable[TopicPartition]) -> None:
        """These logs have been flushed."""
        self.replicas.flushed(places, self._now_ms())
        self.settle()

    def broken(self, place: TopicPartition, why: str) -> None:
        """A log could not be written, or flushed: its unit is led here no more (CL-F9)."""
        self.replicas.broke(place, why)
        self._settle_soon()

    def unwritable(self, place: TopicPartition, why: str) -> bool:
        """See `NodeReplicas.unwritable`."""
        self._settle_soon()
        return self.replicas.unwritable(place, why)

    async def ask_to_shut_down(self) -> ShutdownResult:
        """CL-A7: the controller is to let others lead what this node leads. NOT_CONTROLLER where nobody is one. Raises
        LinkError."""
        controller = self._controller()
        if controller is None:
            return ShutdownResult(ErrorCode.NOT_CONTROLLER)
        links = self._shutdown_links
        link = await links.to(controller)
        return await link.controlled_shutdown(self._around.node_epoch(), deadline_s=SHUTDOWN_S)

    # Rounds.

    def settle(self) -> None:
        """What is to be done after anything happened."""
        if self._stopped:
            return
        replicas, now_ms = self.replicas, self._now_ms()
        while replicas.moved:
            moved, replicas.moved = replicas.moved, {}
            for place in moved:
                self._moved(place)
        self.starting.check_waits()
        for unit in replicas.lost:
            for half in halves_of(unit):
                if (log := self.logs.get(half)) is not None:
                    log.rest()
        for listener in self._settlers:
            listener()
        replicas.gained.clear()
        replicas.lost.clear()
        while replicas.undone:
            self.elections.undone(replicas.undone.pop(0))
        replicas.resized.clear()
        replicas.serving.wake(now_ms)
        questions = replicas.questions(now_ms)
        if questions:
            self._altering.propose_isr(questions)
        if unkept := replicas.unkept():
            self._keep(unkept)
        for node, request in replicas.requests(now_ms):
            self._fetching.send(node, request)
        self._arm(now_ms)

    def _keep(self, places: Iterable[TopicPartition]) -> None:
        """Have these flushed; where nothing promises that, what is written is kept."""
        kept = self._flushing.soon(places)
        if kept:
            self.replicas.flushed(kept, self._now_ms())
            for place in kept:
                self.keeping.moved(place)

    def _settle_soon(self) -> None:
        if self._settling is None:
            self._settling = asyncio.get_running_loop().call_soon(self._settle_now)

    def _settle_now(self) -> None:
        self._settling = None
        self.settle()

    def _arm(self, now_ms: int) -> None:
        """Look again when the next parked fetch has waited long enough, or a node may be asked again."""
        next_ms = self.replicas.next_ms(now_ms)
        if next_ms is None:
            return
        at_ms = next_ms if next_ms > now_ms else now_ms + SOON_MS
        if now_ms < self._armed_ms <= at_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._armed_ms = at_ms
        self._timer = asyncio.get_running_loop().call_later((at_ms - now_ms) / 1000, self.settle)

    async def _learned(self, changes: ImageChanges) -> None:
        """Take in what the image has changed. The next poll waits for it (CL-C1, CL-N3); others are served in
        between."""
        units = self.replicas.begin_learning(self.image, changes)
        if len(units) <= AT_ONCE:
            self.logs.prepare(self.replicas.me, self.image, changes)
        else:
            self.replicas.lay_down(units)
            self.settle()
            await asyncio.to_thread(self.logs.prepare, self.replicas.me, self.image, changes)
        self.logs.use_settings(self.image, changes.configs)
        for first in range(0, len(units), AT_ONCE):
            if first:
                await asyncio.sleep(0)
            self.replicas.learn_units(units[first : first + AT_ONCE], self._now_ms())
            self.settle()
        self.settle()
        if self.logs.left_files:
            self._tasks.start(asyncio.to_thread(self.logs.clear_away), "removal of logs")
        for listener in self._learners:
            listener(changes)

    def _flushed(self, flushed: FlushRound) -> None:
        for place, why in flushed.broken:
            self.replicas.broke(place, why)
        changed = self.replicas.flushed(flushed.done, self._now_ms())
        for place in flushed.done:
            self.keeping.moved(place)
        if changed or flushed.broken:
            self.settle()

    def _moved(self, place: TopicPartition) -> None:
        self.committing.moved(place)
        self.keeping.moved(place)
        for listener in self._movers:
            listener(place)

    def _end_waits(self) -> None:
        self.committing.end()
        self.keeping.end()
        self.starting.end()

    async def _check_replicas(self) -> None:
        while True:
            await asyncio.sleep(min(self._settings.replica_lag_time_max_ms, self._around.session_ms) / LOOKS / 1000)
            self.replicas.check_replicas(self._now_ms())
            for place, why in self._broker.troubles.damages().items():
                self.replicas.corrupt(TopicPartition(*place), why)
            self._mending.repair_copies(self._now_ms())
            self.replicas.look_around(self._around.session_ms, self._now_ms(), in_touch=self._around.in_touch())
            self.settle()

    async def _checkpoint(self) -> None:
        while True:
            await asyncio.sleep(self._settings.replica_high_watermark_checkpoint_interval_ms / 1000)
            await asyncio.to_thread(self._write_high_watermarks)

    def _write_high_watermarks(self) -> None:
        try:
            self._broker.checkpoint_high_watermarks()
        except OSError as error:
            logger.warning("high watermarks not written", error=str(error))

    async def _let_go(self) -> None:
        self._stopped = True
        self._door.drain()
        self._end_waits()
        if self._timer is not None:
            self._timer.cancel()
        self._tasks.stop()
        await self._tasks.ended()
        self.elections.stop()
        self._poll_links.close()
        self._shutdown_links.close()
        self._fetching.stop()
        self._altering.stop()

    def _failed(self, why: BaseException) -> None:
        logger.error("replication failed", error=repr(why), exc_info=why)
        if not self.failure.done():
            self.failure.set_exception(why)
            self.failure.exception()  # Where nobody waits for it, the log has it.

    def _controller(self) -> int | None:
        seated = self._around.controller()
        return None if seated is None else seated.node

    def _controller_at(self, node: int) -> Address | None:
        seated = self._around.controller()
        return seated.address if seated is not None and seated.node == node else None
