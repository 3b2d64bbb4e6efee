"""Changes of a cluster's topics (CL-A1): planned, written to ZooKeeper, answered when the image shows them.

Planning is pure: random draws, nodes and topics are arguments. Refusals are values, one per topic; a refused topic
does not affect the others.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from dataclasses import replace as with_
from functools import partial
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from muster.coordinator.errors import CoordinatorError
from muster.coordinator.kafka.protocol import InvalidReplicaAssignment
from muster.coordinator.replication.io.admin.cluster_admin import PATIENCE_MS, ImageWaits, deadline_after
from muster.coordinator.replication.protocol.cluster_metadata import (
    INTERNAL,
    ClusterImage,
    ClusterNodeStatus,
    ClusterTopic,
    ReplicaAssignment,
    TopicView,
)
from muster.coordinator.replication.protocol.cluster_metadata import (
    ClusterTopic as Written,
)
from muster.coordinator.replication.protocol.replica_placement import (
    NodeRack,
    alternate_racks,
    check_assignment,
    place_replicas,
)
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.cluster import cluster_writes
from muster.coordinator.zookeeper.cluster.cluster_writes import StoredConfigs, within_deadline
from muster.coordinator.zookeeper.consumer_group import gather_bounded
from muster.coordinator.zookeeper.errors import ConnectionLost, MalformedZnode, ZooKeeperError, ZooKeeperRequestTooLarge
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.long_work import map_in_turns
from muster.storage.broker.requests import Changes, MorePartitions, NewTopic
from muster.storage.config import LogSettings
from muster.storage.errors import (
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    RequestTimedOut,
    StorageError,
    TopicAlreadyExists,
    UnknownTopicOrPartition,
)
from muster.storage.topics.catalog import PRIVATE_TOPICS, check_topic_name, colliding_name
from muster.storage.types import Topic

# Plans: which partition lies where, and what speaks against it. Pure
# -------------------------------------------------------------------

ReplicaLists: TypeAlias = tuple[tuple[int, ...], ...]
"""Of each partition, the one that is to lead first."""

RESERVED = frozenset(map(colliding_name, INTERNAL))
"""Names that nodes keep for themselves, and what counts as the same."""
MOST_BYTES = 1_000_000
"""Of a topic's znode and its settings, which are made together: ZooKeeper takes less than 1 MiB in one request."""


class PlacementDraw(NamedTuple):
    """Where the first replica goes, and how far the others follow, so that topics do not all begin at one node."""

    start: int = 0
    shift: int = 0


@dataclass(slots=True)
class PlannedTopics:
    """What one request plans: each of its topics is held against those before it, and those that were there when it
    came. alike, there: names by what they are alike to; load: replicas by node."""

    alike: dict[str, str] = field(default_factory=dict)
    load: Counter[int] = field(default_factory=Counter)

    there: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, image: ClusterImage) -> "PlannedTopics":
        """For a request that comes now. It takes its time where there are many partitions: once for each request."""
        return cls(
            load=count_replicas(view.replicas for _, view in image.partitions()),
            there={colliding_name(it): it for it in image.topics},
        )

    def add_topic(self, name: str, replicas: ReplicaLists) -> None:
        self.alike[colliding_name(name)] = name
        self.load += count_replicas(replicas)

    def give_back(self, name: str, replicas: ReplicaLists) -> None:
        del self.alike[colliding_name(name)]
        self.load -= count_replicas(replicas)


class TopicPlanner:
    """default_factor: of who does not say. draw: a number below the one that is given, for each new topic anew."""

    def __init__(
        self,
        image: ClusterImage,
        settings: LogSettings,
        default_factor: int,
        draw: Callable[[int], int] = lambda below: 0,
    ) -> None:
        self._image = image
        self._settings = settings
        self._factor = default_factor
        self._draw = draw

    def new_topic(self, wanted: NewTopic, beside: PlannedTopics) -> ReplicaLists:
        """Where its partitions are to lie. Raises StorageError: InvalidTopic, TopicAlreadyExists, InvalidConfig,
        InvalidPartitions, InvalidReplicationFactor (38), InvalidReplicaAssignment (39)."""
        name = wanted.name
        if colliding_name(name) in RESERVED and not (wanted.internal and name in INTERNAL):
            raise InvalidTopicName(f"'{name}' is a name that nodes keep for themselves; expected another one.")
        check_topic_name(name, beside.there)
        check_topic_name(name, beside.alike)
        if name in self._image.topics or colliding_name(name) in beside.alike:
            raise TopicAlreadyExists(f"Topic '{name}' exists already.")
        self._settings.check_given(wanted.configs)
        self._settings.for_topic(wanted.configs)
        check_configs_size(name, wanted.configs)
        if wanted.assignments is not None:
            replicas = self.assigned(wanted.assignments)
        else:
            if wanted.partitions < 1:
                raise InvalidPartitions(
                    f"Topic '{name}' cannot have {wanted.partitions} partitions; expected 1 or more."
                )
            replicas = self.placed(wanted.partitions, wanted.replication_factor)
        self._bear(name, replicas, beside, configs_size(wanted.configs))
        beside.add_topic(name, replicas)
        return replicas

    def growth(self, topic: ClusterTopic, wanted: MorePartitions, beside: PlannedTopics) -> ReplicaLists:
        """Where its partitions from the first new one on are to lie. topic: as it is written. Raises StorageError."""
        present = len(topic.partitions)
        if colliding_name(topic.name) in beside.alike:
            raise InvalidRequest(f"Topic '{topic.name}' is to be changed twice at once; expected once.")
        if wanted.total <= present:
            raise InvalidPartitions(
                f"Topic '{topic.name}' cannot have {wanted.total} partitions; expected more than {present}."
            )
        original = settled_replicas(topic.partitions[0])
        if wanted.assignments is None:
            replicas = self._continued(original, present, wanted.total - present)
        else:
            given = dict(enumerate(wanted.assignments, present))
            if len(given) != wanted.total - present or any(len(ids) != len(original) for ids in given.values()):
                raise InvalidReplicaAssignment(
                    f"The assignments of {wanted.total - present} new partitions of '{topic.name}' are "
                    f"{[list(ids) for ids in wanted.assignments][:20]}; expected one for each, of {len(original)} "
                    "replicas as its first partition has, or none at all."
                )
            replicas = self.assigned(given, present)
        self._bear(topic.name, replicas, beside, assignments_size([each.replicas for each in topic.partitions]))
        beside.add_topic(topic.name, replicas)
        return replicas

    def change(self, name: str, given: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
        """What is set for a topic afterwards; None unsets. Raises InvalidConfig."""
        configs = {key: value for key, value in {**given, **changes}.items() if value is not None}
        self._settings.check_given(changes)
        after = self._settings.for_topic(configs)
        if self._settings.for_topic(given).compacted and not after.compacted:
            raise InvalidConfig(
                f"'cleanup.policy' of topic '{name}' cannot become {after.cleanup_policy!r}: compaction leaves gaps "
                "that would look like damage then. Keep compact in it, or make a new topic and copy the records."
            )
        check_configs_size(name, configs)
        return configs

    # Where partitions go.

    def assigned(self, assignments: Mapping[int, Sequence[int]], first: int = 0) -> ReplicaLists:
        """As it was given, if it can be so."""
        if not assignments:
            raise InvalidReplicaAssignment("The request has no assignment; expected one for each partition.")
        try:
            check_assignment(assignments, (node.id for node in self._image.live()), first=first)
        except CoordinatorError as error:
            raise InvalidReplicaAssignment(error.message) from None
        return tuple(tuple(assignments[number]) for number in sorted(assignments))

    def placed(self, partitions: int, factor: int) -> ReplicaLists:
        nodes = self._nodes()
        drawn = PlacementDraw(self._draw(len(nodes)), self._draw(len(nodes))) if nodes else PlacementDraw()
        return place_partitions(nodes, partitions, self._factor if factor == -1 else factor, drawn)

    def _continued(self, original: Sequence[int], first: int, more: int) -> ReplicaLists:
        """As if all had been made at once, beginning where the first partition is led, as Kafka does it."""
        nodes = self._nodes()
        ring = [each.node for each in alternate_racks(nodes)]
        start = ring.index(original[0]) if original[0] in ring else 0
        return place_partitions(nodes, more, len(original), PlacementDraw(start, start), first)

    def _nodes(self) -> list[NodeRack]:
        """Live ones; those that are about to stop are taken where there are no others."""
        live = [NodeRack(node.id, node.rack) for node in self._image.live() if node.status is ClusterNodeStatus.LIVE]
        return live or [NodeRack(node.id, node.rack) for node in self._image.live()]

    def _bear(self, name: str, replicas: ReplicaLists, beside: PlannedTopics, size: int) -> None:
        """Whether nodes take that many more (`max.partitions`), and the request that writes them: it has so many bytes
        without them."""
        come = count_replicas(replicas)
        for node, more in sorted(come.items()):
            total = beside.load[node] + more
            if total > self._settings.max_partitions:
                raise InvalidPartitions(
                    f"Topic '{name}' would bring node {node} to {total} partitions, above its limit of "
                    f"{self._settings.max_partitions} (max.partitions). Raise it, or take fewer partitions."
                )
        total = size + assignments_size(replicas)
        if total > MOST_BYTES:
            raise InvalidPartitions(
                f"Topic '{name}' would have {len(replicas)} more partitions: it would be written in {total} bytes, and "
                f"ZooKeeper takes at most {MOST_BYTES} at once; take fewer."
            )


def configs_size(configs: Mapping[str, str]) -> int:
    """Bytes in which settings are written."""
    return len(layout.config_json(configs))


def assignments_size(replicas: Iterable[Sequence[int]]) -> int:
    """At most so many, of a topic of fewer than a million partitions."""
    return sum(len(str(each)) + 12 for each in replicas)


def check_configs_size(name: str, configs: Mapping[str, str]) -> None:
    """Raises InvalidConfig."""
    total = configs_size(configs)
    if total > MOST_BYTES:
        longest = max(configs, key=lambda each: len(configs[each]))
        raise InvalidConfig(
            f"'{longest}' of topic '{name}' is {len(configs[longest].encode())} bytes long: the topic's settings would "
            f"be written in {total} bytes, and ZooKeeper takes at most {MOST_BYTES} at once. Shorten it."
        )


def place_partitions(
    nodes: Sequence[NodeRack], partitions: int, factor: int, drawn: PlacementDraw, first: int = 0
) -> ReplicaLists:
    try:
        return place_replicas(nodes, partitions, factor, start=drawn.start, shift=drawn.shift, first=first)
    except CoordinatorError as error:
        raise InvalidReplicationFactor(error.message) from None


def settled_replicas(assignment: ReplicaAssignment) -> tuple[int, ...]:
    return tuple(each for each in assignment.replicas if each not in assignment.adding)


def count_replicas(replicas: Iterable[Sequence[int]]) -> Counter[int]:
    return Counter(node for each in replicas for node in each)


# Changes: checked, written, answered when the image shows them
# -------------------------------------------------------------

MOST_TRIES: Final = 100
"""How often something is written that others change at the same time."""

GRACE_S: Final = 1.0
"""How long the end of a node waits for ZooKeeper's answers."""

Result = TypeVar("Result")
Item = TypeVar("Item")


class ClusterTopics:
    """What `TopicRequests` is on a node on its own: refusals are values, one per topic; one that is refused hurts no
    other. Whoever asked may go: what was begun goes on.

    RequestTimedOut (7): it is written, or may be, and the image did not show it in time. draw_id: 16 random bytes.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        showing: ImageWaits,
        planning: TopicPlanner,
        draw_id: Callable[[], bytes],
        *,
        timeout_ms: int = PATIENCE_MS,
    ) -> None:
        self._session = session
        self._showing = showing
        self._image = showing.image
        self._planning = planning
        self._draw_id = draw_id
        self._timeout_ms = timeout_ms
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False

    def check_new(self, wanted: NewTopic) -> None:
        """Refuse what `create` would refuse. Raises StorageError."""
        self._planning.new_topic(wanted, PlannedTopics.of(self._image))

    def check_growth(self, wanted: MorePartitions) -> None:
        """Refuse what `grow` would refuse, by what the image knows. Raises StorageError."""
        self._planning.growth(topic_for_zookeeper(self._view(wanted.name)), wanted, PlannedTopics.of(self._image))

    async def create(self, wanted: Sequence[NewTopic]) -> list[Topic | StorageError]:
        """Make these topics; TopicAlreadyExists (36) where another was faster."""
        beside = PlannedTopics.of(self._image)

        def planned(each: NewTopic) -> ReplicaLists | StorageError:
            return or_refusal(lambda: self._planning.new_topic(each, beside))

        plans = await map_in_turns(planned, wanted)
        return await self._whole(self._run_each(list(zip(wanted, plans, strict=True)), self._create))

    async def grow(self, wanted: Sequence[MorePartitions | tuple[str, int]]) -> list[Topic | StorageError]:
        """Raise these topics' partition counts."""
        beside = PlannedTopics.of(self._image)

        async def one(each: tuple[MorePartitions, None], deadline_s: float) -> Topic:
            return await self._grow(each[0], beside, deadline_s)

        return await self._whole(self._run_each([(MorePartitions(*each), None) for each in wanted], one))

    async def change(self, wanted: Sequence[tuple[str, Changes]]) -> list[Topic | StorageError]:
        """Give these topics other settings."""
        return await self._whole(self._run_each(wanted, self._change))

    async def delete(self, topics: Sequence[Topic]) -> list[StorageError | None]:
        """Remove these topics, and none of the same name that came after them (CL-A3)."""
        found = await self._whole(self._run_each([(topic, None) for topic in topics], self._delete))
        return [each if isinstance(each, StorageError) else None for each in found]

    async def close(self) -> None:
        """Begin nothing more, and wait for no image: who waits is told so. What ZooKeeper does not answer is left."""
        self._closed = True
        self._showing.check_waits()
        if self._under_way:
            _, late = await asyncio.wait(self._under_way, timeout=GRACE_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)

    # One topic each.

    async def _create(self, each: tuple[NewTopic, ReplicaLists | StorageError], deadline_s: float) -> Topic:
        wanted, replicas = each
        if isinstance(replicas, StorageError):
            raise replicas
        name, topic_id = wanted.name, self._draw_id()
        topic = Written(name, topic_id, tuple(map(ReplicaAssignment, replicas)), dict(wanted.configs))
        try:
            made = await cluster_writes.create_topic(self._session, topic)
        except ConnectionLost:
            made = True  # it may be: the image shows it then
        if not made:
            raise TopicAlreadyExists(f"Topic '{name}' exists already.")

        def shown() -> bool:
            view = self._image.topics.get(name)
            return view is not None and view.topic_id == topic_id and len(view.partitions) >= len(replicas)

        await self._shown(shown, deadline_s, f"topic '{name}'")
        return topic_from_image(self._view(name))

    async def _grow(self, wanted: MorePartitions, beside: PlannedTopics, deadline_s: float) -> Topic:
        for _ in range(MOST_TRIES):
            topic = await cluster_writes.fetch_topic(self._session, wanted.name)
            if topic is None:
                raise no_topic(wanted.name)
            replicas = self._planning.growth(topic, wanted, beside)
            more = with_(topic, partitions=(*topic.partitions, *map(ReplicaAssignment, replicas)))
            if await cluster_writes.put_topic(self._session, more):
                break
            beside.give_back(wanted.name, replicas)
            await self._session.sync(layout.topic_path(wanted.name))
        else:
            raise contended(wanted.name)

        def shown() -> bool:
            view = self._image.topics.get(wanted.name)
            return view is None or view.topic_id != topic.topic_id or len(view.partitions) >= wanted.total

        await self._shown(shown, deadline_s, f"the partitions of topic '{wanted.name}'")
        return topic_from_image(self._view(wanted.name))

    async def _change(self, each: tuple[str, Changes], deadline_s: float) -> Topic:
        name, changes = each
        for _ in range(MOST_TRIES):
            before = await self._configs(name, deadline_s)
            topic_id = self._view(name).topic_id
            after = self._planning.change(name, before.values, changes() if callable(changes) else changes)
            if after == before.values:
                return topic_from_image(self._view(name))
            if await cluster_writes.put_configs(self._session, "topics", name, StoredConfigs(after, before.version)):
                break
            await self._session.sync(layout.topic_config_path(name))
        else:
            raise contended(name)

        def shown() -> bool:  # what was set before is not any more: it is this, or what came after it
            view = self._image.topics.get(name)
            return view is None or view.topic_id != topic_id or dict(view.configs) != dict(before.values)

        await self._shown(shown, deadline_s, f"the settings of topic '{name}'")
        return topic_from_image(self._view(name))

    async def _configs(self, name: str, deadline_s: float) -> StoredConfigs:
        """As they are written, when the image has the same: whoever asks for changes of what is set looks there."""
        synced = False
        while True:
            written = await cluster_writes.fetch_configs(self._session, "topics", name)
            view = self._view(name)
            if view.configs == written.values:
                return written
            if not synced:
                # The image may be further than the server that was asked.
                await self._session.sync(layout.topic_config_path(name))
                synced = True
            else:
                await self._shown(partial(self._is_another, view), deadline_s, f"the settings of topic '{name}'")
                synced = False

    async def _delete(self, each: tuple[Topic, None], deadline_s: float) -> None:
        topic = each[0]
        if self._view(topic.name).topic_id != topic.id:
            raise UnknownTopicOrPartition(f"Topic '{topic.name}' has gone; another one has its name now.")
        for _ in range(MOST_TRIES):
            there = await cluster_writes.fetch_topic(self._session, topic.name)
            if there is None or there.topic_id != topic.id or await cluster_writes.mark_to_delete(self._session, there):
                break
            await self._session.sync(layout.topic_path(topic.name))
        else:
            raise contended(topic.name)
        await self._shown(lambda: topic.id not in self._image.names, deadline_s, f"that topic '{topic.name}' is gone")

    # What they have in common.

    def _view(self, name: str) -> TopicView:
        view = None if name in PRIVATE_TOPICS else self._image.topics.get(name)
        if view is None:
            raise no_topic(name)
        return view

    def _is_another(self, before: TopicView) -> bool:
        view = self._image.topics.get(before.name)
        return view is None or view.topic_id != before.topic_id or view.configs != before.configs

    async def _shown(self, shown: Callable[[], bool], deadline_s: float, what: str) -> None:
        seen = await self._showing.until(lambda: self._closed or shown(), deadline_s)
        if self._closed and not shown():
            raise RequestTimedOut(
                f"The node is shutting down, and does not know of {what} yet. The change may still happen: "
                "ask another node."
            )
        if not seen:
            raise RequestTimedOut(
                f"ZooKeeper was told, but this node has not heard of {what} within {self._timeout_ms} ms. It may come "
                "yet: look before you ask again."
            )

    async def _run_each(
        self, wanted: Sequence[Item], one: Callable[[Item, float], Coroutine[Any, Any, Result]]
    ) -> list[Result | StorageError]:
        deadline_s = deadline_after(self._timeout_ms)

        async def tried(each: Item) -> Result | StorageError:
            try:
                if self._closed:
                    raise StorageError("The node is shutting down and changes no topics any more. Ask another node.")
                return await within_deadline(self._session, deadline_s, lambda: one(each, deadline_s))
            except StorageError as refusal:
                return refusal
            except (MalformedZnode, ZooKeeperRequestTooLarge) as error:
                return StorageError(str(error))
            except ZooKeeperError as error:
                return RequestTimedOut(
                    f"ZooKeeper did not answer: {error}. It may be done yet: look before you ask again."
                )

        return await gather_bounded(wanted, tried)

    async def _whole(self, change: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.create_task(change)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)


def topic_from_image(view: TopicView) -> Topic:
    """A topic of the image, in the log's words."""
    return Topic(view.name, view.topic_id, len(view.partitions), view.configs, view.internal, ())


def topic_for_zookeeper(view: TopicView) -> Written:
    """In ZooKeeper's, as far as the image knows it."""
    each = (view.partitions[number] for number in sorted(view.partitions))
    partitions = tuple(ReplicaAssignment(one.replicas, one.adding, one.removing) for one in each)
    return Written(view.name, view.topic_id, partitions, view.configs)


def or_refusal(plan: Callable[[], Result]) -> Result | StorageError:
    try:
        return plan()
    except StorageError as refusal:
        return refusal


def no_topic(name: str) -> UnknownTopicOrPartition:
    return UnknownTopicOrPartition(f"There is no topic '{name}'. Create it first, or check its spelling.")


def contended(name: str) -> RequestTimedOut:
    return RequestTimedOut(f"Topic '{name}' was changed by others {MOST_TRIES} times meanwhile. Try again.")
