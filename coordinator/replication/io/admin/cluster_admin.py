"""What operators ask of a cluster, of any node: elections, reassignments, drained nodes (CL-A1, CL-A5, CL-A7, CL-A8).

A request is checked against the image, left in ZooKeeper for the controller, and answered when this node's image
shows what has come of it. Refusals are values, one for each partition: Kafka's codes, and REQUEST_TIMED_OUT (7)
where the request was left and has not taken effect.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple, TypeVar

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.admin.node_configs import (
    ConfigChange,
    alter_node_configs,
    read_node_configs,
    zookeeper_silent,
)
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_NODE_ID,
    ClusterImage,
    ClusterNodeStatus,
    ImageChanges,
    PartitionView,
    TopicPartition,
    unit_of,
)
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.cluster_writes import (
    drained_nodes,
    leave_request,
    set_drained,
    within_deadline,
)
from muster.coordinator.zookeeper.errors import ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.long_work import AT_ONCE

# Elections: what the image says of one (CL-A5)
# ---------------------------------------------


def preferred_refusal(image: ClusterImage, unit: TopicPartition, drained: Collection[int]) -> ErrorCode | None:
    """Why its first replica is not elected now; None if it can be. drained: nodes that are to lead nothing."""
    view = image.partition(unit)
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if view.leader == view.replicas[0]:
        return ErrorCode.ELECTION_NOT_NEEDED
    return None if may_lead(image, view, view.replicas[0], drained) else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


def may_lead(image: ClusterImage, view: PartitionView, node_id: int, drained: Collection[int]) -> bool:
    node = image.nodes.get(node_id)
    lives = node is not None and node.status is ClusterNodeStatus.LIVE
    return lives and node_id in view.isr and node_id not in drained


def unclean_refusal(image: ClusterImage, unit: TopicPartition) -> ErrorCode | None:
    """Why nobody is elected whatever it costs; None if somebody can be."""
    view = image.partition(unit)
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if view.leader != NO_NODE_ID:
        return ErrorCode.ELECTION_NOT_NEEDED
    return no_live_replica(image, view)


def no_live_replica(image: ClusterImage, view: PartitionView) -> ErrorCode | None:
    live = {node.id for node in image.live()}
    return None if live.intersection(view.replicas) else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE


def election_outcome(
    image: ClusterImage, unit: TopicPartition, drained: Collection[int], *, unclean: bool
) -> ErrorCode | None:
    """What has come of one that was asked for; None as long as it may come true yet."""
    view = image.partition(unit)
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if unclean:
        return ErrorCode.NONE if view.leader != NO_NODE_ID else no_live_replica(image, view)
    if view.leader == view.replicas[0]:
        return ErrorCode.NONE
    return None if may_lead(image, view, view.replicas[0], drained) else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE


# Reassignments: what the image says of one (CL-A8)
# -------------------------------------------------


class Reassignment(NamedTuple):
    """One that is under way. replicas: those that come and those that go included."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class WantedReplicas(NamedTuple):
    """The replicas that are to be; cancels: they are those before the reassignment that is under way."""

    replicas: tuple[int, ...]
    cancels: bool = False


def wanted_replicas(view: PartitionView, target: tuple[int, ...] | None) -> WantedReplicas:
    """target: None cancels.

    >>> wanted_replicas(PartitionView(1, 0, 0, (1, 2), (), (3, 1, 2), adding=(3,), removing=(2,)), None)
    WantedReplicas(replicas=(1, 2), cancels=True)
    """
    if target is not None:
        return WantedReplicas(target)
    return WantedReplicas(tuple(each for each in view.replicas if each not in view.adding), cancels=True)


def reassignment_refusal(
    image: ClusterImage, view: PartitionView | None, target: tuple[int, ...] | None
) -> ErrorCode | None:
    """Why it cannot be asked for; None if it can."""
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if target is None:
        return None if view.adding or view.removing else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    here = {*(node.id for node in image.live()), *wanted_replicas(view, None).replicas}
    if not target or len(set(target)) != len(target) or not here.issuperset(target):
        return ErrorCode.INVALID_REPLICA_ASSIGNMENT
    return None


def reassignment_outcome(image: ClusterImage, view: PartitionView | None, wish: WantedReplicas) -> ErrorCode | None:
    """What has come of it: it is done when it is written who comes and goes. None as long as it is not.

    One that was over before it could be cancelled hears so; nothing goes back.
    """
    if view is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if tuple(each for each in view.replicas if each not in view.removing) == wish.replicas and not (
        wish.cancels and view.adding
    ):
        return ErrorCode.NONE
    if wish.cancels:
        return None if view.adding or view.removing else ErrorCode.NO_REASSIGNMENT_IN_PROGRESS
    # One of them may have gone since it was asked for: the controller refuses it then.
    return reassignment_refusal(image, view, wish.replicas)


# Refusals as sentences
# ---------------------


def explain_no_election(image: ClusterImage, place: TopicPartition, code: ErrorCode, *, unclean: bool) -> str:
    view = image.partition(place)
    if view is None or code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.REQUEST_TIMED_OUT):
        return explain_refusal(image, place, code)
    first, leader = view.replicas[0], view.leader
    match code:
        case ErrorCode.ELECTION_NOT_NEEDED if unclean and leader != NO_NODE_ID:
            return f"{place}: node {leader} leads it; an unclean election is for a partition that nobody leads"
        case ErrorCode.ELECTION_NOT_NEEDED:
            return f"{place}: its first replica, node {first}, leads it already"
        case ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE:
            return f"{place}: its first replica, node {first}, {explain_ineligible(image, first, view.isr)}"
        case ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE:
            return f"{place}: of its replicas {format_nodes(view.replicas)} none is up; bring one of these nodes back"
    return explain_refusal(image, place, code)


def explain_no_reassignment(
    image: ClusterImage, place: TopicPartition, replicas: Collection[int], code: ErrorCode
) -> str:
    if code is ErrorCode.INVALID_REPLICA_ASSIGNMENT:
        up = format_nodes(sorted(node.id for node in image.live()))
        return f"{place} to {format_nodes(replicas) or 'nobody'}: expected nodes that are up, each once; up are {up}"
    return explain_refusal(image, place, code)


def explain_refusal(image: ClusterImage, place: TopicPartition, code: ErrorCode) -> str:
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        return f"{place}: the cluster has no such partition"
    if code is not ErrorCode.REQUEST_TIMED_OUT:
        return f"{place}: {code.meaning}"
    lives = any(node.id == image.controller for node in image.live())
    who = f"node {image.controller}, the controller," if lives else "a controller, of which none is known right now,"
    return (
        f"{place}: it was left in ZooKeeper for {who} and did not come in time: it was refused there, as that node's "
        "log says, or comes yet; look before you ask again"
    )


def explain_ineligible(image: ClusterImage, node_id: int, isr: Collection[int]) -> str:
    node = image.nodes.get(node_id)
    if node is None or node not in image.live():
        return "is gone"
    return "is not in sync" if node_id not in isr else "is drained, or goes down, or cannot use its log of it"


def format_nodes(nodes: Collection[int]) -> str:
    return ",".join(map(str, nodes))


# Waiting until the image shows an effect
# ---------------------------------------

MOST_WAITING: Final = 10_000
"""Who waits; each is asked anew with each change of the image. The next one is not waited for."""

Shown = Callable[[], bool]


class ImageWaits:
    """learned: takes a listener that hears of each change of the image (`ReplicaManager.on_learned`)."""

    def __init__(self, image: ClusterImage, learned: Callable[[Callable[[ImageChanges], None]], None]) -> None:
        self.image = image
        self._waiting: dict[asyncio.Future[None], Shown] = {}
        learned(self._image_changed)

    async def until(self, shown: Shown, deadline_s: float) -> bool:
        """Whether the image shows it by this moment of the loop's clock."""
        if shown():
            return True
        if len(self._waiting) >= MOST_WAITING:
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting[future] = shown
        try:
            async with asyncio.timeout_at(deadline_s):
                await future
        except TimeoutError:
            return False
        finally:
            del self._waiting[future]
        return True

    def _image_changed(self, changes: ImageChanges) -> None:
        self.check_waits()

    def check_waits(self) -> None:
        """Look anew, for something beside the image that those who wait go by has changed."""
        for future, shown in list(self._waiting.items()):
            if future.done():
                continue
            try:
                if shown():
                    future.set_result(None)
            except Exception as error:  # a mistake of who waits is not to hold up those who listen after it
                future.set_exception(error)


# Requests of operators
# ---------------------

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
            code = unclean_refusal(image, unit) if unclean else preferred_refusal(image, unit, drained)
            if code is not None:
                known[unit] = code

        def came(unit: TopicPartition) -> ErrorCode | None:
            return election_outcome(image, unit, drained, unclean=unclean)

        path = cluster_layout.UNCLEAN_ELECTION if unclean else paths.PREFERRED_REPLICA_ELECTION
        good = [unit for unit in units if unit not in known]
        bodies = (cluster_layout.preferred_json(some) for some in split_portions(good))
        known |= await self._request_changes(path, bodies, dict.fromkeys(good), came, deadline_s)
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
            code = reassignment_refusal(self._image, view, target)
            if code is not None or view is None:
                known[unit] = code or ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            else:
                good[unit] = wanted_replicas(view, target)

        def came(unit: TopicPartition) -> ErrorCode | None:
            return reassignment_outcome(self._image, self._image.partition(unit), good[unit])

        bodies = (
            cluster_layout.reassignment_json(
                {unit: None if (wish := good[unit]).cancels else wish.replicas for unit in some}
            )
            for some in split_portions(list(good))
        )
        deadline_s = deadline_after(timeout_ms)

        def ask() -> Awaitable[dict[TopicPartition, ErrorCode]]:
            return self._request_changes(cluster_layout.REASSIGN_PARTITIONS, bodies, good, came, deadline_s)

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
        that. NONE once it is written: its leaders go one step after the other (`ClusterImageView` shows them).
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

    async def _request_changes(
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
