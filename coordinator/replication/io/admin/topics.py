"""Changes of a cluster's topics that a node's doors ask for (CL-A1): checked here, written to ZooKeeper, and answered
when this node's image shows the effect."""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace as with_
from functools import partial
from typing import Any, Final, TypeVar

from muster.coordinator.replication.io.admin.cluster_admin import PATIENCE_MS, deadline_after
from muster.coordinator.replication.io.admin.planning import PlannedTopics, ReplicaLists, TopicPlanner
from muster.coordinator.replication.io.admin.showing import ImageWaits
from muster.coordinator.replication.protocol.facts import ClusterTopic as Written
from muster.coordinator.replication.protocol.facts import ReplicaAssignment
from muster.coordinator.replication.protocol.image import TopicView
from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.cluster import changing
from muster.coordinator.zookeeper.cluster.asking import within_deadline
from muster.coordinator.zookeeper.cluster.changing import StoredConfigs
from muster.coordinator.zookeeper.consumer import gather_bounded
from muster.coordinator.zookeeper.errors import ConnectionLost, MalformedZnode, ZooKeeperError, ZooKeeperRequestTooLarge
from muster.coordinator.zookeeper.session import ZooKeeperSession
from muster.storage.broker.in_turns import map_in_turns
from muster.storage.broker.topic_requests import Changes, MorePartitions, NewTopic
from muster.storage.errors import RequestTimedOut, StorageError, TopicAlreadyExists, UnknownTopicOrPartition
from muster.storage.topics.catalog import PRIVATE_TOPICS
from muster.storage.types import Topic

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
        return await self._whole(self._each(list(zip(wanted, plans, strict=True)), self._create))

    async def grow(self, wanted: Sequence[MorePartitions | tuple[str, int]]) -> list[Topic | StorageError]:
        """Raise these topics' partition counts."""
        beside = PlannedTopics.of(self._image)

        async def one(each: tuple[MorePartitions, None], deadline_s: float) -> Topic:
            return await self._grow(each[0], beside, deadline_s)

        return await self._whole(self._each([(MorePartitions(*each), None) for each in wanted], one))

    async def change(self, wanted: Sequence[tuple[str, Changes]]) -> list[Topic | StorageError]:
        """Give these topics other settings."""
        return await self._whole(self._each(wanted, self._change))

    async def delete(self, topics: Sequence[Topic]) -> list[StorageError | None]:
        """Remove these topics, and none of the same name that came after them (CL-A3)."""
        found = await self._whole(self._each([(topic, None) for topic in topics], self._delete))
        return [each if isinstance(each, StorageError) else None for each in found]

    async def close(self) -> None:
        """Begin nothing more, and wait for no image: who waits is told so. What ZooKeeper does not answer is left."""
        self._closed = True
        self._showing.look()
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
            made = await changing.create_topic(self._session, topic)
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
            topic = await changing.fetch_topic(self._session, wanted.name)
            if topic is None:
                raise no_topic(wanted.name)
            replicas = self._planning.growth(topic, wanted, beside)
            more = with_(topic, partitions=(*topic.partitions, *map(ReplicaAssignment, replicas)))
            if await changing.put_topic(self._session, more):
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
            if await changing.put_configs(self._session, "topics", name, StoredConfigs(after, before.version)):
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
            written = await changing.fetch_configs(self._session, "topics", name)
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
            there = await changing.fetch_topic(self._session, topic.name)
            if there is None or there.topic_id != topic.id or await changing.mark_to_delete(self._session, there):
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
                f"The node is shutting down, and has not heard of {what} yet. It may come: look at another node."
            )
        if not seen:
            raise RequestTimedOut(
                f"ZooKeeper was told, but this node has not heard of {what} within {self._timeout_ms} ms. It may come "
                "yet: look before you ask again."
            )

    async def _each(
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
