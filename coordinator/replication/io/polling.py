"""The long poll by which a node hears how the cluster stands, and tells what of it is offline here (CL-N1 to CL-N3)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import structlog

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.fetch_desk import ControllerDesk
from muster.coordinator.replication.io.wire.links import NodeLinks
from muster.coordinator.replication.io.wire.reaching import LinkError
from muster.coordinator.replication.io.wire.words import NodeName
from muster.coordinator.replication.protocol.controller.events import OfflineReplica
from muster.coordinator.replication.protocol.facts import NO_EPOCH, TopicPartition
from muster.coordinator.replication.protocol.image import ClusterImage, ClusterNodeStatus, ClusterState, ImageChanges
from muster.coordinator.replication.protocol.replicas import NodeReplicas

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
        desk: ControllerDesk,
        *,
        controller: Callable[[], int | None],
        node_epoch: Callable[[], int],
        register_anew: Callable[[], None],
        learned: Callable[[ImageChanges], Awaitable[None]],
        broke: Callable[[int], None],
        heard: Callable[[], None] = lambda: None,
    ) -> None:
        """desk: the controller's, where that is this node: who leads much has a thousand things to take in when others
        fail, and writing them down for itself, and reading them again, would cost as much as to decide them.
        controller: who holds `/controller`, as last seen; None where nobody does. node_epoch: of this node's
        registration; NO_EPOCH while it has none. register_anew: it counts no more. broke: a node did not answer.
        heard: the controller says how the cluster stands, be it that nothing is new."""
        self._replicas = replicas
        self._image = image
        self._links = links
        self._desk = desk
        self._controller = controller
        self._node_epoch = node_epoch
        self._register_anew = register_anew
        self._learned = learned
        self._broke = broke
        self._heard = heard
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
        controller, epoch = self._controller(), self._node_epoch()
        if controller is None or epoch == NO_EPOCH:
            return False
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
            self._broke(controller)
            return False
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            return True  # it was asked of who is the controller no more
        return await self._take(answer, epoch)

    async def _answer(self, controller: int, epoch: int, offline: tuple[OfflineReplica, ...]) -> ClusterState:
        known = self._image.known
        if controller == self._replicas.me:
            return await self._desk.cluster_state(NodeName(controller, epoch), known, offline, POLL_WAIT_MS)
        link = await self._links.to(controller)
        return await link.cluster_state(epoch, known, offline, max_wait_ms=POLL_WAIT_MS, deadline_s=POLL_DEADLINE_S)

    def _tell_offline(self) -> None:
        """CL-F9: whoever reads this node's log is to know why others lead."""
        before, self._offline = self._offline, {place: why for place, (_, why) in self._replicas.offline.items()}
        for place, why in self._offline.items():
            if before.get(place) != why:
                logger.warning("offline here: another copy is to lead, if there is one", partition=str(place), why=why)
        for place in before.keys() - self._offline.keys():
            logger.info("not offline here any more", partition=str(place))

    async def _take(self, answer: ClusterState, epoch: int) -> bool:
        if answer.error is ErrorCode.STALE_BROKER_EPOCH:
            gone = any(each.id == self._replicas.me and each.status is ClusterNodeStatus.GONE for each in answer.nodes)
            if gone and epoch == self._node_epoch():
                self._register_anew()
            return False
        if answer.error is not ErrorCode.NONE:
            return False
        self._heard()
        changes = self._image.apply(answer)
        if changes is not None:
            await self._learned(changes)
        return True
