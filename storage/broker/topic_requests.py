"""Changes of topics that a node's edges ask for: off the event loop, one after the other, whole once they are begun."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple, TypeAlias, TypeVar

from muster.storage.broker.broker import Broker
from muster.storage.broker.in_turns import map_in_turns
from muster.storage.errors import InvalidReplicationFactor, StorageError, UnknownTopicOrPartition
from muster.storage.topics.plans import TopicConfigChange, TopicPlan, TopicPlans
from muster.storage.types import Topic

Result = TypeVar("Result")
Wanted = TypeVar("Wanted")

DEFAULT = -1
"""As many copies as the settings say."""

COPIES = 1
"""One node has one of each partition."""


Changes: TypeAlias = Mapping[str, str | None] | Callable[[], Mapping[str, str | None]]
"""Settings and their new values (see `Topics.plan_change`), or what makes them of those that are there by then."""


class NewTopic(NamedTuple):
    """A topic that is asked for. Of many nodes: how many copies of each partition (-1: the default), or on which nodes,
    by partition; a node on its own keeps the only one."""

    name: str
    partitions: int
    configs: Mapping[str, str] = {}
    replication_factor: int = -1
    assignments: Mapping[int, Sequence[int]] | None = None


class MorePartitions(NamedTuple):
    """A topic that is to grow to so many partitions. assignments: of many nodes, those of each new one, in order."""

    name: str
    total: int
    assignments: Sequence[Sequence[int]] | None = None


class TopicRequests:
    """Refusals are values, one per topic: one that is refused hurts no other.

    A topic is there whole or not at all, for whoever looks in between as after a crash. Whoever asked may go: what was
    begun goes on. `on_gone` is called on the loop when topics are gone for everybody, their files not yet.
    """

    def __init__(self, broker: Broker, on_gone: Callable[[], None]) -> None:
        self._broker = broker
        self._on_gone = on_gone
        self._one_by_one = asyncio.Lock()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="topics")
        self._under_way: set[asyncio.Task[Any]] = set()
        self._closed = False

    def check_new(self, wanted: NewTopic) -> None:
        """Refuse what `create` would refuse. Raises StorageError."""
        check_single_node(wanted)
        self._broker.check_new_topic(wanted.name, wanted.partitions, wanted.configs)

    def check_growth(self, wanted: MorePartitions) -> None:
        """Refuse what `grow` would refuse. Raises StorageError."""
        self._broker.check_more_partitions(wanted.name, wanted.total)

    async def create(self, wanted: Sequence[NewTopic]) -> list[Topic | StorageError]:
        """Make these topics; see `Topics.create_topic`."""
        return await self._whole(self._make(self._new, wanted))

    async def grow(self, wanted: Sequence[MorePartitions | tuple[str, int]]) -> list[Topic | StorageError]:
        """Raise these topics' partition counts; see `Topics.add_partitions`."""
        return await self._whole(self._make(self._more, wanted))

    async def change(self, wanted: Sequence[tuple[str, Changes]]) -> list[Topic | StorageError]:
        """Give these topics other settings; see `Topics.plan_change`."""
        return await self._whole(self._change(wanted))

    async def delete(self, topics: Sequence[Topic]) -> list[StorageError | None]:
        """Remove these topics, and none of the same name that came after them; see `Topics.delete_topic`."""
        return await self._whole(self._delete(topics))

    async def close(self) -> None:
        """Begin nothing more; what is under way has ended on return."""
        self._closed = True
        async with self._one_by_one:
            self._thread.shutdown(wait=False)

    def _new(self, wanted: NewTopic, plans: TopicPlans) -> TopicPlan:
        check_single_node(wanted)
        return self._broker.plan_topic(wanted.name, wanted.partitions, wanted.configs, beside=plans)

    def _more(self, wanted: MorePartitions | tuple[str, int], plans: TopicPlans) -> TopicPlan:
        return self._broker.plan_growth(wanted[0], wanted[1], beside=plans)

    async def _whole(self, change: Coroutine[Any, Any, Result]) -> Result:
        task = asyncio.create_task(change)
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)
        return await asyncio.shield(task)

    async def _make(
        self, plan: Callable[[Wanted, TopicPlans], TopicPlan], wanted: Sequence[Wanted]
    ) -> list[Topic | StorageError]:
        def planned(each: Wanted) -> TopicPlan | StorageError:
            try:
                self._still_open()
                return plan(each, plans)
            except StorageError as refusal:
                return refusal

        async with self._one_by_one:
            plans = TopicPlans()
            looked_at = await map_in_turns(planned, wanted)
            good = [each for each in looked_at if isinstance(each, TopicPlan)]
            made = iter(await self._off_loop(self._broker.make, good) if good else [])
            if good:
                self._broker.tell_topics()
        return [next(made) if isinstance(each, TopicPlan) else each for each in looked_at]

    async def _change(self, wanted: Sequence[tuple[str, Changes]]) -> list[Topic | StorageError]:
        def planned(each: tuple[str, Changes]) -> TopicConfigChange | StorageError:
            name, changes = each
            try:
                self._still_open()
                return self._broker.plan_change(name, changes() if callable(changes) else changes)
            except StorageError as refusal:
                return refusal

        async with self._one_by_one:
            looked_at = await map_in_turns(planned, wanted)
            good = [each for each in looked_at if isinstance(each, TopicConfigChange)]
            try:
                if good:
                    await self._off_loop(self._broker.change, good)
            except StorageError as failed:
                return [failed if isinstance(each, TopicConfigChange) else each for each in looked_at]
            concerned = [(each, number) for each in good for number in range(each.topic.partitions)]
            await map_in_turns(lambda one: self._broker.use(*one), concerned)
        return [each.topic if isinstance(each, TopicConfigChange) else each for each in looked_at]

    async def _delete(self, topics: Sequence[Topic]) -> list[StorageError | None]:
        def looked_at(topic: Topic) -> StorageError | None:
            try:
                self._still_open()
                if self._broker.topic(topic.name).id != topic.id:
                    raise UnknownTopicOrPartition(f"Topic '{topic.name}' has gone; another one has its name now.")
            except StorageError as refusal:
                return refusal
            return None

        async with self._one_by_one:
            refusals = await map_in_turns(looked_at, topics)
            good = list(dict.fromkeys(topic.name for topic, no in zip(topics, refusals, strict=True) if no is None))
            failed = await self._remove(good) if good else None
        return [no or failed for no in refusals]

    async def _remove(self, names: list[str]) -> StorageError | None:
        try:
            await self._off_loop(self._broker.hide, names)
            self._broker.tell_topics()
            self._on_gone()
            await self._off_loop(self._broker.clear_away)
        except StorageError as error:
            return error
        return None

    def _still_open(self) -> None:
        if self._closed:
            raise StorageError("The node is shutting down and changes no topics any more. Try again when it is back.")

    async def _off_loop(self, work: Callable[..., Result], *arguments: Any) -> Result:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work, *arguments)


def check_single_node(wanted: NewTopic) -> None:
    """InvalidReplicationFactor for more copies than a node on its own can keep."""
    if wanted.replication_factor not in (DEFAULT, COPIES):
        raise InvalidReplicationFactor(
            f"Topic '{wanted.name}' cannot have replication factor {wanted.replication_factor} on one node; "
            f"expected {COPIES}, or {DEFAULT} for the default."
        )
