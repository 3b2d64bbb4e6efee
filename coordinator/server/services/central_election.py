"""Which of the nodes that share a ZooKeeper coordinates central groups, and what it shows of them there.

A node without ZooKeeper is the coordinator at once. Groups live in their node's own log: a node that is elected brings
back those of its own, and members that another one had are assigned afresh.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import NamedTuple

import structlog

from muster.coordinator.config import Address
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.shard import Shard
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.central_groups import CentralGroupPublisher, PublishedCentralGroup
from muster.coordinator.zookeeper.election import ElectedTerm, ElectionCandidate
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession

COMMIT_EVERY_S = 2.0
"""How often positions that have changed are written to ZooKeeper."""

log = structlog.get_logger("muster.zookeeper")


class CentralCoordinator(NamedTuple):
    node_id: int
    host: str
    port: int


class CentralElection:
    """A node's candidacy. `cores` are its shards as they are now; `on_resigned` sends its members away."""

    def __init__(
        self,
        session: ZooKeeperSession,
        node_id: int,
        address: Callable[[], Address],
        cores: Callable[[], Iterable[Shard]],
        on_resigned: Callable[[], None],
    ) -> None:
        self._session = session
        self._cores = cores
        self._on_resigned = on_resigned
        self._owners = CentralGroupPublisher(session)
        self._task: asyncio.Task[None] | None = None
        self._election = ElectionCandidate(
            session,
            layout.CENTRAL_COORDINATOR,
            lambda: layout.coordinator_json(node_id, *address()),
            epoch_path=layout.CENTRAL_EPOCH,
            on_elected=self._elected,
            on_resigned=self._resigned,
        )

    @property
    def elected(self) -> bool:
        return self._election.reign is not None

    @property
    def epoch(self) -> int | None:
        """That of this node's reign; None while it has none."""
        reign = self._election.reign
        return None if reign is None else reign.epoch

    def start(self) -> None:
        self._owners.start()
        self._election.start()
        self._task = asyncio.get_running_loop().create_task(self._publish_now_and_then())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._owners.stop()
        await self._election.stop()

    async def coordinator(self) -> CentralCoordinator | None:
        """The node that is elected; None while there is none, or ZooKeeper cannot say: see `why_nobody`."""
        if not self._in_touch:
            return None  # a question would wait until ZooKeeper is back
        try:
            body = await self._election.holder()
        except ZooKeeperError as error:
            log.warning("who coordinates central groups cannot be read", why=str(error))
            return None
        return None if body is None else CentralCoordinator(*layout.read_coordinator(layout.CENTRAL_COORDINATOR, body))

    def why_nobody(self) -> str:
        """What members are told who find no coordinator."""
        if self._in_touch:
            return "no node is elected to coordinate central groups yet"
        return (
            f"no coordinator is elected: ZooKeeper at {self._session.connect} cannot be reached from this node; "
            "central groups go on once it can"
        )

    @property
    def _in_touch(self) -> bool:
        return self._session.state is SessionState.CONNECTED

    def noticed(self, notice: GroupChanged) -> None:
        """Something has become durable."""
        if self.elected and notice.entry is not None:
            self._publish()

    def _elected(self, reign: ElectedTerm) -> None:
        log.info("this node coordinates central groups", epoch=reign.epoch)
        self._publish()

    def _resigned(self) -> None:
        log.info("this node coordinates central groups no longer")
        self._on_resigned()

    async def _publish_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(COMMIT_EVERY_S)
            if self.elected:
                self._publish()

    def _publish(self) -> None:
        groups = {}
        for core in self._cores():
            for group in core.central_groups.values():
                owners = {
                    (topic, number): member
                    for member, share in group.owned.items()
                    for topic, numbers in share.items()
                    for number in numbers
                }
                kept = core.state.offsets.get(group.id, {})
                groups[group.id] = PublishedCentralGroup(owners, {tp: value.offset for tp, value in kept.items()})
        self._owners.publish(groups)
