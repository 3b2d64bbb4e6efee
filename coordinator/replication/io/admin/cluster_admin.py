"""What operators ask of a cluster, of any node: elections, reassignments, nodes that are drained (CL-A5, CL-A7,
CL-A8)."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, TypeVar

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.admin import elections, reassignments
from muster.coordinator.replication.io.admin.node_configs import (
    ConfigChange,
    alter_node_configs,
    read_node_configs,
    zookeeper_silent,
)
from muster.coordinator.replication.io.admin.reassignments import Reassignment, WantedReplicas
from muster.coordinator.replication.io.admin.showing import ImageWaits
from muster.coordinator.replication.protocol.facts import TopicPartition, unit_of
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.asking import drained_nodes, leave_request, set_drained, within_deadline
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.storage.broker.in_turns import AT_ONCE

PATIENCE_MS: Final = 20_000
"""How long is waited where nobody says; clients give up after 30 s."""
MOST_AT_ONCE: Final = 1_000
"""Partitions in one znode, which ZooKeeper keeps below 1 MiB."""

Item = TypeVar("Item")
Answer = TypeVar("Answer")


class ClusterAdmin:
    """Refusals are values, one for each partition: Kafka's codes, and REQUEST_TIMED_OUT (7) where it is asked for, and
    the image did not show in time that it was done. It may be done yet."""

    def __init__(self, session: ZooKeeperSession, showing: ImageWaits) -> None:
        self._session = session
        self._showing = showing
        self._image = showing.image

    async def elect(
        self, places: Iterable[TopicPartition] | None, unclean: bool = False, timeout_ms: int = PATIENCE_MS
    ) -> dict[TopicPartition, ErrorCode]:
        """Have the first replica of each elected: NONE once it leads, UNKNOWN_TOPIC_OR_PARTITION (3),
        PREFERRED_LEADER_NOT_AVAILABLE (80), ELECTION_NOT_NEEDED (84). None: wherever another leads.

        unclean: have anybody elected who lives, for one partition without a leader; records may be lost. Else
        ELIGIBLE_LEADERS_NOT_AVAILABLE (83), 84; INVALID_REQUEST (42) unless it is one that is named.
        """
        everywhere = places is None
        if places is None:
            places = [] if unclean else [place for place, _ in self._image.partitions()]
        asked = list(dict.fromkeys(places))
        if unclean and len(asked) != 1:
            return dict.fromkeys(asked, ErrorCode.INVALID_REQUEST)
        deadline_s = deadline_after(timeout_ms)
        try:
            found = await within_deadline(self._session, deadline_s, lambda: self._elect(asked, unclean, deadline_s))
        except ZooKeeperError:
            found = dict.fromkeys(asked, ErrorCode.REQUEST_TIMED_OUT)
        if everywhere:
            found = {place: code for place, code in found.items() if code is not ErrorCode.ELECTION_NOT_NEEDED}
        return found

    async def _elect(
        self, asked: Sequence[TopicPartition], unclean: bool, deadline_s: float
    ) -> dict[TopicPartition, ErrorCode]:
        image, drained = self._image, await drained_nodes(self._session)
        units = dict.fromkeys(map(unit_of, asked))
        known: dict[TopicPartition, ErrorCode] = {}
        async for unit in iterate_in_turns(units):
            code = (
                elections.unclean_refusal(image, unit) if unclean else elections.preferred_refusal(image, unit, drained)
            )
            if code is not None:
                known[unit] = code

        def came(unit: TopicPartition) -> ErrorCode | None:
            return elections.election_outcome(image, unit, drained, unclean=unclean)

        path = cluster_layout.UNCLEAN_ELECTION if unclean else paths.PREFERRED_REPLICA_ELECTION
        good = [unit for unit in units if unit not in known]
        bodies = (cluster_layout.preferred_json(some) for some in split_portions(good))
        known |= await self._ask(path, bodies, dict.fromkeys(good), came, deadline_s)
        return {place: known[unit_of(place)] for place in asked}

    async def reassign(
        self, wanted: Mapping[TopicPartition, tuple[int, ...] | None], timeout_ms: int = PATIENCE_MS
    ) -> dict[TopicPartition, ErrorCode]:
        """Give partitions other replicas, the first of which is to lead; None cancels what is under way. NONE once it
        is written who comes and goes, UNKNOWN_TOPIC_OR_PARTITION (3), INVALID_REPLICA_ASSIGNMENT (39),
        NO_REASSIGNMENT_IN_PROGRESS (85)."""
        known: dict[TopicPartition, ErrorCode] = {}
        good: dict[TopicPartition, WantedReplicas] = {}
        async for place, target in iterate_in_turns(wanted.items()):
            unit = unit_of(place)
            view = self._image.partition(unit)
            code = reassignments.reassignment_refusal(self._image, view, target)
            if code is not None or view is None:
                known[unit] = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                good[unit] = reassignments.wanted_replicas(view, target)

        def came(unit: TopicPartition) -> ErrorCode | None:
            return reassignments.reassignment_outcome(self._image, self._image.partition(unit), good[unit])

        bodies = (
            cluster_layout.reassignment_json(
                {unit: None if (wish := good[unit]).cancels else wish.replicas for unit in some}
            )
            for some in split_portions(list(good))
        )
        deadline_s = deadline_after(timeout_ms)

        def ask() -> Awaitable[dict[TopicPartition, ErrorCode]]:
            return self._ask(cluster_layout.REASSIGN_PARTITIONS, bodies, good, came, deadline_s)

        try:
            known |= await within_deadline(self._session, deadline_s, ask) if good else {}
        except ZooKeeperError:
            known |= dict.fromkeys(good, ErrorCode.REQUEST_TIMED_OUT)
        return {place: known[unit_of(place)] for place in wanted}

    def reassignments(self, places: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, Reassignment]:
        """Those under way, as this node's image has them: of these partitions, or all."""
        if places is None:
            views = list(self._image.partitions())
        else:
            views = [(place, view) for place in places if (view := self._image.partition(place)) is not None]
        return {
            place: Reassignment(view.replicas, view.adding, view.removing)
            for place, view in views
            if view.adding or view.removing
        }

    async def drain(self, node: int, on: bool = True) -> ErrorCode:
        """Have a node lead nothing, as long as others can: it stays a follower, also under the next controller; or end
        that. NONE once it is written: its leaders go one step after the other (`ImageView` shows them).
        RESOURCE_NOT_FOUND (91) for a node that nobody knows, REQUEST_TIMED_OUT where ZooKeeper did not answer."""
        if on and node not in self._image.nodes:
            return ErrorCode.RESOURCE_NOT_FOUND
        try:
            await within_deadline(
                self._session, deadline_after(PATIENCE_MS), lambda: set_drained(self._session, node, on=on)
            )
        except ZooKeeperError:
            return ErrorCode.REQUEST_TIMED_OUT
        return ErrorCode.NONE

    async def drained(self) -> frozenset[int]:
        """The nodes that are drained. Raises ZooKeeperError."""
        return await drained_nodes(self._session)

    async def node_configs(self, node: int) -> Mapping[str, str]:
        """What is set for a node while it runs. Raises StorageError."""
        return await self._soon(lambda: read_node_configs(self._session, node))

    async def set_node_configs(self, node: int, asked: ConfigChange, *, validate_only: bool = False) -> None:
        """Set something for a node that runs: `read_node_configs.DYNAMIC`. asked: from what is set to what changes.
        Raises
        StorageError, and whatever `asked` raises."""
        await self._soon(lambda: alter_node_configs(self._session, node, asked, validate_only=validate_only))

    async def _soon(self, ask: Callable[[], Awaitable[Answer]]) -> Answer:
        """Raises RequestTimedOut."""
        try:
            return await within_deadline(self._session, deadline_after(PATIENCE_MS), ask)
        except ZooKeeperError as error:
            raise zookeeper_silent(error) from error

    async def _ask(
        self,
        path: str,
        bodies: Iterable[bytes],
        units: Mapping[TopicPartition, object],
        came: Callable[[TopicPartition], ErrorCode | None],
        deadline_s: float,
    ) -> dict[TopicPartition, ErrorCode]:
        """Leave one body after the other for the controller; what came of each unit by then."""
        found: dict[TopicPartition, ErrorCode] = {}
        rest = dict.fromkeys(units)

        def shown() -> bool:
            """Asked with each change of the image: what has come is not looked at again."""
            while rest:
                unit = next(iter(rest))
                if (code := came(unit)) is None:
                    return False
                del rest[unit]
                found[unit] = code
            return True

        for body in bodies:
            if not await leave_request(self._session, path, body, deadline_s):
                break
        else:
            await self._showing.until(shown, deadline_s)
        async for unit in iterate_in_turns(rest):
            code = came(unit)
            found[unit] = ErrorCode.REQUEST_TIMED_OUT if code is None else code
        return found


def deadline_after(timeout_ms: int) -> float:
    """By the loop's clock, in seconds."""
    return asyncio.get_running_loop().time() + max(0, timeout_ms) / 1000


async def iterate_in_turns(items: Iterable[Item]) -> AsyncIterator[Item]:
    """These, as they are now; others have their turn after every few."""
    for number, item in enumerate(list(items), 1):
        yield item
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)


def split_portions(items: Sequence[Item]) -> Iterable[list[Item]]:
    rest = iter(items)
    while some := list(islice(rest, MOST_AT_ONCE)):
        yield some
