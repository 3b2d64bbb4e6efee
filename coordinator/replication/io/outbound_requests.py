"""What a node asks of others: fetches from leaders, AlterPartition and the long poll of the controller.

One fetch at a time goes to each node that leads what this one copies (CL-F1, CL-F3). All AlterPartition questions
that come up together leave in one request (CL-L5, CL-D6). The poll returns how the cluster stands and reports which
logs are offline here (CL-N1 to CL-N3).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Final

import structlog

from muster.coordinator.edge.background_tasks import SupervisedTasks, TaskFailed
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.inbound_requests import ControllerSide
from muster.coordinator.replication.io.wire.node_api import NodeName
from muster.coordinator.replication.io.wire.node_codec import NameOf
from muster.coordinator.replication.io.wire.node_links import LinkError, NodeLink, NodeLinks
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    ClusterImage,
    ClusterNodeStatus,
    ClusterState,
    ImageChanges,
    TopicPartition,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import (
    AlterPartitionResult,
    IsrItem,
    IsrMember,
    OfflineReplica,
)
from muster.coordinator.replication.protocol.leader import RETRY_MS, IsrAnswer, IsrProposal
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.coordinator.replication.protocol.replica_fetch import FetchAnswer, FetchRequest

# Fetches from leaders (CL-F1, CL-F3)
# -----------------------------------

PATIENCE_MS: Final = 5_000
"""Beyond the time that a leader may hold a fetch: then it is taken for silent."""


class ReplicaFetchClient:
    """Sends what `NodeReplicas.requests` asks for, and says what came of it."""

    def __init__(
        self,
        replicas: NodeReplicas,
        links: NodeLinks,
        name_of: NameOf,
        *,
        max_wait_ms: int,
        min_bytes: int,
        now_ms: Callable[[], int],
        happened: Callable[[], None],
        broke: Callable[[int], None],
        failed: TaskFailed,
    ) -> None:
        """happened: there may be something to do for the replicas. broke: a node did not answer (CL-C9). failed: see
        `SupervisedTasks`."""
        self._replicas = replicas
        self._links = links
        self._name_of = name_of
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._now_ms = now_ms
        self._happened = happened
        self._broke = broke
        self._failed = failed
        self._tasks = SupervisedTasks(failed)
        self._stopped = False

    def send(self, node: int, request: FetchRequest) -> None:
        """By calls alone where a link stands: a task for each fetch would cost more than what it waits for."""
        link = self._links.standing(node)
        if link is None:
            self._tasks.start(self._reach(node, request))
        else:
            self._send_fetch(link, node, request)

    def stop(self) -> None:
        self._stopped = True
        self._tasks.stop()
        self._links.close()

    async def _reach(self, node: int, request: FetchRequest) -> None:
        try:
            link = await self._links.to(node)
        except LinkError as error:
            self._came(node, request, error)
        else:
            self._send_fetch(link, node, request)

    def _send_fetch(self, link: NodeLink, node: int, request: FetchRequest) -> None:
        link.fetch_then(
            request,
            self._name_of,
            partial(self._heard, node, request),
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            deadline_s=(self._max_wait_ms + PATIENCE_MS) / 1000,
        )

    def _heard(self, node: int, request: FetchRequest, answer: FetchAnswer | LinkError) -> None:
        if self._stopped:
            return
        try:
            self._came(node, request, answer)
        except Exception as error:
            self._failed(error)

    def _came(self, node: int, request: FetchRequest, answer: FetchAnswer | LinkError) -> None:
        if isinstance(answer, LinkError):
            self._replicas.failed(node, request, self._now_ms())
            self._broke(node)
        else:
            self._replicas.answered(node, request, answer, self._now_ms())
        self._happened()


# AlterPartition (CL-L5, CL-D6)
# -----------------------------

ALTER_DEADLINE_S: Final = 2.0
NO_ANSWER = IsrAnswer(ErrorCode.REQUEST_TIMED_OUT)


class AlterPartitionClient:
    """Asks one controller, all questions that come up together in one request."""

    def __init__(
        self,
        replicas: NodeReplicas,
        image: ClusterImage,
        links: NodeLinks,
        controller: Callable[[], int | None],
        *,
        now_ms: Callable[[], int],
        happened: Callable[[], None],
        failed: TaskFailed,
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._links = links
        self._controller = controller
        self._now_ms = now_ms
        self._happened = happened
        self._tasks = SupervisedTasks(failed)

    def propose_isr(self, questions: Sequence[IsrProposal]) -> None:
        self._tasks.start(self._send_proposals(questions))

    def stop(self) -> None:
        self._tasks.stop()
        self._links.close()

    async def _send_proposals(self, questions: Sequence[IsrProposal]) -> None:
        items = {question: item for question in questions if (item := self._item(question)) is not None}
        answered = await self._answered(tuple(items.values()))
        found = {(result.topic_id, result.partition): result for result in answered.results}
        for question in questions:
            item = items.get(question)
            result = None if item is None else found.get((item.topic_id, item.partition))
            answer = NO_ANSWER
            if answered.error is not ErrorCode.NONE:
                answer = IsrAnswer(answered.error)
            elif result is not None and result.state is not None:
                state = result.state
                answer = IsrAnswer(result.error, state.leader_epoch, state.partition_epoch, state.isr)
            elif result is not None:
                answer = IsrAnswer(result.error)
            self._replicas.altered(question, answer, self._now_ms())
        self._happened()
        asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._happened)

    async def _answered(self, items: tuple[IsrItem, ...]) -> AlterPartitionResult:
        controller = self._controller()
        if controller is None or not items:
            return AlterPartitionResult(NO_ANSWER.code)
        try:
            link = await self._links.to(controller)
            return await link.alter_partition(self._replicas.node_epoch, items, deadline_s=ALTER_DEADLINE_S)
        except LinkError:
            return AlterPartitionResult(NO_ANSWER.code)

    def _item(self, question: IsrProposal) -> IsrItem | None:
        topic = self._image.topics.get(question.unit.topic)
        if topic is None:
            return None
        members = tuple(IsrMember(*each) for each in question.isr)
        unit, epochs = question.unit, (question.leader_epoch, question.partition_epoch)
        return IsrItem(topic.topic_id, unit.partition, *epochs, members)


# The poll of the image (CL-N1 to CL-N3)
# --------------------------------------

logger = structlog.get_logger("muster.replication")

POLL_WAIT_MS: Final = 500
POLL_DEADLINE_S: Final = 5.0
RETRY_S: Final = 0.1


class ImagePolling:
    """One poll after the other. `learned` hears what each answer changed."""

    def __init__(
        self,
        replicas: NodeReplicas,
        image: ClusterImage,
        links: NodeLinks,
        around: ControllerSide,
        *,
        learned: Callable[[ImageChanges], Awaitable[None]],
    ) -> None:
        """The desk of `around` is asked where this node is the controller: who leads much has a thousand things to take
        in when others fail, and writing them down for itself, and reading them again, would cost as much as to decide
        them."""
        self._replicas = replicas
        self._image = image
        self._links = links
        self._around = around
        self._learned = learned
        self._asking: asyncio.Task[ClusterState] | None = None
        self._offline: dict[TopicPartition, str] = {}
        """What is offline here, as far as the log of this node has it."""

    async def run(self) -> None:
        while True:
            if not await self.once():
                await asyncio.sleep(RETRY_S)

    def look_again(self) -> None:
        """Another node is the controller: what the one before was asked, which may stand still, is not waited for. What
        it has answered is taken in to the end: the image has all of it already, and it is not told again."""
        if self._asking is not None:
            self._asking.cancel()

    async def once(self) -> bool:
        """One poll; False where the next one has to wait for a moment (CL-N2)."""
        seated, epoch = self._around.controller(), self._around.node_epoch()
        if seated is None or epoch == NO_EPOCH:
            return False
        controller = seated.node
        if epoch != self._replicas.node_epoch:
            self._replicas.registered(epoch)
        self._tell_offline()
        offline = tuple(
            OfflineReplica(topic_id, place.partition, why)
            for place, (topic_id, why) in sorted(self._replicas.offline.items())
        )
        asking = self._asking = asyncio.get_running_loop().create_task(self._answer(controller, epoch, offline))
        try:
            answer = await asking
        except LinkError:
            self._around.broke(controller)
            return False
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return True  # it was asked of who is the controller no more
        return await self._apply_answer(answer, epoch)

    async def _answer(self, controller: int, epoch: int, offline: tuple[OfflineReplica, ...]) -> ClusterState:
        known = self._image.known
        if controller == self._replicas.me:
            return await self._around.desk.cluster_state(NodeName(controller, epoch), known, offline, POLL_WAIT_MS)
        link = await self._links.to(controller)
        return await link.cluster_state(epoch, known, offline, max_wait_ms=POLL_WAIT_MS, deadline_s=POLL_DEADLINE_S)

    def _tell_offline(self) -> None:
        """CL-F9: whoever reads this node's log is to know why others lead."""
        before, self._offline = self._offline, {place: why for place, (_, why) in self._replicas.offline.items()}
        for place, why in self._offline.items():
            if before.get(place) != why:
                logger.warning(
                    "a replica is offline here: another one must lead, if there is one", partition=str(place), why=why
                )
        for place in before.keys() - self._offline.keys():
            logger.info("a replica is no longer offline here", partition=str(place))

    async def _apply_answer(self, answer: ClusterState, epoch: int) -> bool:
        if answer.error is ErrorCode.STALE_BROKER_EPOCH:
            gone = any(each.id == self._replicas.me and each.status is ClusterNodeStatus.GONE for each in answer.nodes)
            if gone and epoch == self._around.node_epoch():
                self._around.register_anew()
            return False
        if answer.error is not ErrorCode.NONE:
            return False
        self._around.heard()
        changes = self._image.apply(answer)
        if changes is not None:
            await self._learned(changes)
        return True
