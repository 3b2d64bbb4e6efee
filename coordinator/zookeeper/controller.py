"""The controller among nodes that make no cluster: the elected node writes who leads each partition.

It watches brokers and topics, computes the partition states that follow (`next_state`, pure) and writes those that
differ, under its epoch: a controller that was superseded can no longer write.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import structlog

from muster.assignors.api import TopicPartition
from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer_group import gather_bounded
from muster.coordinator.zookeeper.election import ElectedTerm, ElectionCandidate
from muster.coordinator.zookeeper.errors import BadVersion, MalformedZnode, NodeExists, ZooKeeperError
from muster.coordinator.zookeeper.layout import PartitionStateZnode, read_partition_state
from muster.coordinator.zookeeper.published_topics import TopicsWatch
from muster.coordinator.zookeeper.session import WatchEvent, Znode, ZooKeeperSession

OFFLINE = -1
RETRY_S = 0.5
MAX_TOGETHER = 100
"""Partition states that are written in one transaction."""


log = structlog.get_logger("muster.zookeeper")


def next_partition_state(
    replicas: Sequence[int], alive: frozenset[int], old: PartitionStateZnode | None, epoch: int
) -> PartitionStateZnode:
    """Who leads a partition now, and who is in sync.

    The leader is the first replica that lives and is in sync. Whoever died leaves the in-sync set, but not the last of
    it: when nobody in it lives, the partition is offline and waits for one of them. A leader that goes on keeps its
    epoch.

    >>> next_partition_state((1, 2), frozenset({2}), PartitionStateZnode(1, (1, 2), 0, 1), 1)
    PartitionStateZnode(leader=2, isr=(2,), leader_epoch=1, controller_epoch=1)
    >>> next_partition_state((1,), frozenset(), PartitionStateZnode(1, (1,), 0, 1), 1)
    PartitionStateZnode(leader=-1, isr=(1,), leader_epoch=1, controller_epoch=1)

    A tool had the partition begin at another node, and the one that has the topic took it:

    >>> next_partition_state((1,), frozenset({1, 2}), PartitionStateZnode(2, (2,), 0, 1), 1)
    PartitionStateZnode(leader=1, isr=(1,), leader_epoch=1, controller_epoch=1)
    """
    in_sync = tuple(replicas)
    if old is not None:
        in_sync = tuple(replica for replica in old.isr if replica in replicas) or in_sync
    living = tuple(replica for replica in in_sync if replica in alive)
    leader = next((replica for replica in replicas if replica in living), OFFLINE)
    if old is None:
        return PartitionStateZnode(leader, living or in_sync, 0, epoch)
    isr = living or in_sync
    if old.leader in living:
        leader = old.leader
    if (leader, isr) == (old.leader, old.isr):
        return old
    return PartitionStateZnode(leader, isr, old.leader_epoch + 1, epoch)


class PartitionController:
    """A broker that stands for controller, and does its work while it is elected."""

    def __init__(self, session: ZooKeeperSession, broker_id: int, now_ms: Callable[[], int]) -> None:
        self._session = session
        self._stale = asyncio.Event()
        self._topics = TopicsWatch(session, self._stale.set)
        self._ruling: RestartedTask | None = None
        self._states: dict[TopicPartition, PartitionStateZnode] = {}
        """What is known to be written, of the topics as they were `_made`"""
        self._made: dict[str, int] = {}
        self.election = ElectionCandidate(
            session,
            layout.CONTROLLER,
            lambda: layout.controller_json(broker_id, now_ms()),
            epoch_path=layout.CONTROLLER_EPOCH,
            on_elected=self._elected,
            on_resigned=self._resigned,
        )

    def start(self) -> None:
        self.election.start()

    async def stop(self) -> None:
        await self.election.stop()

    def _elected(self, term: ElectedTerm) -> None:
        log.info("this node is the controller", epoch=term.epoch)
        self._ruling = RestartedTask("partition states in ZooKeeper", partial(self._rule, term))
        self._ruling.start()

    def _resigned(self) -> None:
        log.info("this node is no longer the controller")
        if self._ruling is not None:
            self._ruling.cancel()
            self._ruling = None

    async def _rule(self, term: ElectedTerm) -> None:
        self._states.clear()
        self._stale.set()
        while True:
            await self._stale.wait()
            await self._session.connected()
            self._stale.clear()
            try:
                await self._mend(term)
            except BadVersion:
                await asyncio.Event().wait()  # another one has been elected; the election will say so, too
            except ZooKeeperError as error:
                log.warning("the states of some partitions could not be written", why=str(error), retry_s=RETRY_S)
                self._states.clear()
                self._stale.set()
                await asyncio.sleep(RETRY_S)

    async def _mend(self, term: ElectedTerm) -> None:
        """Read how things are, watch them, and write the states that follow and are not there yet."""
        alive = await self._alive()
        topics = await self._topics.read()
        same = {name for name, made in self._topics.made.items() if self._made.get(name) == made}
        self._states = {tp: state for tp, state in self._states.items() if tp[0] in same}
        self._made = dict(self._topics.made)
        replicas = {(name, number): ids for name, found in topics.items() for number, ids in found.items()}
        stored = dict(await gather_bounded([tp for tp in replicas if tp not in self._states], self._stored))
        new = {tp for tp, znode in stored.items() if znode is None}
        for tp, znode in stored.items():
            if znode is not None and (state := parse_partition_state(tp, znode)) is not None:
                self._states[tp] = state
        fresh = {}
        for tp, ids in replicas.items():
            state = next_partition_state(ids, alive, self._states.get(tp), term.epoch)
            if state != self._states.get(tp):
                fresh[tp] = state
        for some in split_batches(sorted(fresh), MAX_TOGETHER):
            await self._write({tp: fresh[tp] for tp in some}, new, term)
            self._states.update((tp, fresh[tp]) for tp in some)

    async def _alive(self) -> frozenset[int]:
        names = await self._session.children(layout.BROKER_IDS, self._fired) or ()
        return frozenset(int(name) for name in names if name.isdigit())

    async def _stored(self, tp: TopicPartition) -> tuple[TopicPartition, Znode | None]:
        return tp, await self._session.get(layout.partition_state_path(*tp))

    async def _write(
        self, states: Mapping[TopicPartition, PartitionStateZnode], new: set[TopicPartition], term: ElectedTerm
    ) -> None:
        """Write all of them, or, when another controller has been elected, none. Raises BadVersion then."""
        for name, number in sorted(new & states.keys()):
            for folder in (layout.topic_partitions_path(name), layout.partition_path(name, number)):
                # Its parents are not made: a topic that was deleted meanwhile must not come back as an empty shell.
                with suppress(NodeExists):
                    await self._session.create(folder, parents=False)

        def build(together: Any) -> None:
            together.check(layout.CONTROLLER_EPOCH, term.version)
            for (name, number), state in states.items():
                put = together.create if (name, number) in new else together.set_data
                put(layout.partition_state_path(name, number), state.to_json())

        await self._session.commit(build)

    def _fired(self, fired: WatchEvent) -> None:
        self._stale.set()


def parse_partition_state(tp: TopicPartition, znode: Znode) -> PartitionStateZnode | None:
    """What a state znode says; None for what cannot be read, and is written anew."""
    path = layout.partition_state_path(*tp)
    try:
        return read_partition_state(path, znode.data)
    except MalformedZnode as error:
        log.warning("a partition's state is written again", why=str(error))
        return None


def split_batches(items: Sequence[TopicPartition], size: int) -> Iterator[Sequence[TopicPartition]]:
    for start in range(0, len(items), size):
        yield items[start : start + size]
