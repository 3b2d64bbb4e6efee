"""The asyncio worker, and the core that it shares with its synchronous twin: membership without reading a log.

A worker owns partitions or named resources; a named resource is a topic with one partition that no node knows. Where
the group agreed on the delayed protocol (KIP-415) the leader plans with it: subscriptions and the leader's own memory
suffice, no call is needed.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from muster.assignors.api import RebalanceProtocol
from muster.assignors.registry import resolve_all
from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.topic_calls import PartitionCounts
from muster.client.calls.transport import Transport, now_ms
from muster.client.config import WorkerConfig, load
from muster.client.errors import ConfigError, IllegalState
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.members.delayed_rebalance import DelayedLeader, DelayedSubscriber
from muster.client.members.subscription import Subscriber
from muster.client.membership.leader_planner import LeaderPlanner, PlanMaker, shared_isolation
from muster.client.membership.member_driver import ClassicParticipation, ConsumerParticipation, MemberDriver
from muster.client.membership.ports import Callback, RebalanceListener, parse_leave_policy
from muster.client.twins import BackgroundTasks
from muster.client.types import FencingToken, GroupMetadata, OnPartition, TopicPartition
from muster.coordinator.core.model.types import DELAYED

# Plans of the delayed protocol (KIP-415)
# ---------------------------------------


class DelayedPlanner:
    """Needs nobody's word: the members' subscriptions and the leader's memory say it all.

    While members that do not know the protocol are about, the group votes for an assignor; `otherwise` plans then.
    """

    def __init__(self, otherwise: PlanMaker, config: WorkerConfig) -> None:
        self._otherwise = otherwise
        self._leader = DelayedLeader(
            config.scheduled_rebalance_max_delay_ms, config.scheduled_rebalance_delay_survives_leader
        )

    async def plan(self, asked: act.MakePlan) -> ev.PlanMade:
        if asked.protocol_name != DELAYED:
            return await self._otherwise.plan(asked)
        return self._leader.plan(asked, now_ms())


# The core that both twins share
# ------------------------------

MAX_RESOURCES = 10_000


class WorkerCore:
    """One worker, without the face that applications see. Lives on one loop."""

    def __init__(self, config: WorkerConfig) -> None:
        if config.group_id is None:
            raise ConfigError("a worker needs a group.id: the group whose members share the work")
        self.config = config
        self.group_id = config.group_id
        self.assignors = resolve_all(config.partition_assignment_strategy)
        self.transport = Transport(config)
        self.calls = GroupCalls(self.transport, config.group_id)
        self.catalog = PartitionCounts(self.transport, config)
        self.driver: MemberDriver | None = None
        self.owned: dict[TopicPartition, int] = {}
        self.closed = False
        self._wakeup = asyncio.Event()
        self._watching = BackgroundTasks(self._found_out)

    async def join(self, topics: Sequence[str], resources: Sequence[str]) -> None:
        """Share the partitions of `topics`, or `resources`, which are one thing each and exist only by their name."""
        if self.closed:
            raise IllegalState("this worker is closed")
        if bool(topics) == bool(resources):
            raise IllegalState("a worker joins with topics or with resources: give exactly one of the two")
        if len(topics) + len(resources) > MAX_RESOURCES:
            raise IllegalState(f"{len(topics) + len(resources)} names are too many; at most {MAX_RESOURCES} fit")
        if resources and self.config.group_protocol == "consumer":
            raise IllegalState("named resources need group.protocol=classic; with consumer there are only topics")
        if resources and self.config.group_remote_assignor is not None:
            raise IllegalState(
                f"group.remote.assignor={self.config.group_remote_assignor} cannot assign named resources, which only "
                "the workers know; leave it out, or join with topics"
            )
        names = tuple(topics or resources)
        if self.driver is not None:
            self.driver.send(ev.SubscriptionChanged(names))
            return
        part = self._part(names, topics)
        self.driver = MemberDriver(self.transport, self.calls, self.config, part, self._wakeup.set)
        self.driver.send(ev.Start())
        if topics:
            self._watching.start(self._watch_topics(self.driver))

    def _part(self, names: tuple[str, ...], topics: Sequence[str]) -> ClassicParticipation | ConsumerParticipation:
        if self.config.group_protocol == "consumer":
            return ConsumerParticipation(
                RequestedSubscription(tuple(sorted(set(names))), "", self.config.group_remote_assignor or "")
            )
        planner = LeaderPlanner(
            self.assignors,
            self.catalog.fetch if topics else count_resources,
            self._measure_lags if topics else None,
            self.config.partition_assignment_deadline_ms,
            self.config.partition_assignment_options,
            self.calls.recall_moves,
            shared_isolation(self.config.partition_assignment_isolation),
        )
        subscriber = Subscriber(names, self.assignors, self.config.client_rack)
        if topics or subscriber.protocol is RebalanceProtocol.EAGER:
            return ClassicParticipation(subscriber, planner)
        delayed = DelayedSubscriber(names, self.assignors, self.config.client_rack)
        return ClassicParticipation(delayed, DelayedPlanner(planner, self.config))

    async def next_callback(self, timeout_s: float | None) -> Callback | None:
        """What came or went next; None when nothing did in time. Raises when the membership is over."""
        if self.driver is None:
            raise IllegalState("join() first: this worker is not in a group")
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        while True:
            self._wakeup.clear()
            if (callback := self._taken()) is not None or self.closed:
                return callback
            if (error := self.driver.failure or self.driver.trouble) is not None:
                self.driver.trouble = None
                raise error
            left = None if deadline is None else deadline - asyncio.get_running_loop().time()
            if left is not None and left <= 0:
                return None
            try:
                await asyncio.wait_for(self._wakeup.wait(), left)
            except TimeoutError:
                return None

    def done(self, callback: Callback) -> None:
        if callback.kind in ("revoked", "lost"):
            for tp in callback.partitions:
                self.owned.pop(tp, None)
        if self.driver is not None:
            self.driver.done(callback)

    def fencing_token(self, tp: TopicPartition) -> FencingToken:
        generation = self.owned.get(tp)
        if generation is None:
            owned = ", ".join(f"{topic}-{number}" for topic, number in sorted(self.owned)) or "nothing"
            raise IllegalState(f"{tp.topic}-{tp.partition} is not owned by this worker; owned: {owned}")
        return FencingToken(self.group_id, *tp, generation, self.identity().member_id)

    def identity(self) -> GroupMetadata:
        if self.driver is None:
            return GroupMetadata(self.group_id, -1, "", self.config.group_instance_id)
        return self.driver.identity

    async def begin_close(self, leave: bool | str) -> None:
        if self.driver is not None:
            self.driver.send(ev.Close(parse_leave_policy(leave)))

    async def closing_callback(self) -> Callback | None:
        return self._taken()

    async def finish_close(self) -> None:
        self.closed = True
        await self._watching.cancel()
        if self.driver is not None:
            await self.driver.left()
        self.owned.clear()
        await self.transport.close()
        self._wakeup.set()

    def _found_out(self, error: Exception) -> None:
        """Something in the background has ended by a mistake: the next `next_callback` raises it."""
        if self.driver is not None:
            self.driver.trouble = error
        self._wakeup.set()

    def _taken(self) -> Callback | None:
        callback = self.driver.next_callback() if self.driver is not None else None
        if callback is not None and callback.kind == "assigned":
            self.owned.update(dict.fromkeys(callback.partitions, callback.event.generation))
        return callback

    async def _watch_topics(self, driver: MemberDriver) -> None:
        while True:
            await asyncio.sleep(self.config.metadata_max_age_ms / 1000)
            if driver.machine.is_leader:
                driver.send(ev.PartitionCountsChanged(await self.catalog.fetch_all()))

    async def _measure_lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """By what the group's workers commit under their group id; without a commit, everything there is."""
        return {tp: position.lag() for tp, position in (await self.calls.positions(partitions)).items()}


async def count_resources(names: Iterable[str]) -> Mapping[str, int]:
    """A named resource is a topic of one partition that no node knows of."""
    return dict.fromkeys(names, 1)


# The client
# ----------


class AsyncWorker:
    """As `muster.client.Worker`; callbacks may be coroutines."""

    def __init__(self, config: Mapping[str, Any] | None = None, **properties: Any) -> None:
        self._core = WorkerCore(load(WorkerConfig, config, properties))
        self._listener = RebalanceListener()

    async def join(
        self,
        topics: Iterable[str] = (),
        resources: Iterable[str] = (),
        on_gain: OnPartition["AsyncWorker"] | None = None,
        on_lose: OnPartition["AsyncWorker"] | None = None,
        on_prepare: OnPartition["AsyncWorker"] | None = None,
    ) -> None:
        """Join the group. Joining again changes the names. `on_prepare` is called per partition, as in
        `Consumer.subscribe`.
        """
        self._listener = RebalanceListener(on_gain, on_lose, on_prepare=on_prepare)
        await self._core.join(tuple(topics), tuple(resources))

    async def poll(self, timeout: float | None = None) -> bool:
        """Run the callbacks of one change; return False when there was none within `timeout` seconds."""
        callback = await self._core.next_callback(timeout)
        if callback is not None:
            await self._call_listener(callback)
        return callback is not None

    async def run(self) -> None:
        """Run callbacks until the worker is closed, by a callback, another thread or Ctrl-C."""
        while not self._core.closed:
            await self.poll()

    def owned(self) -> set[TopicPartition]:
        """Return what is owned now. Inside `on_lose`, it still includes what goes."""
        return set(self._core.owned)

    def fencing_token(self, partition: tuple[str, int]) -> FencingToken:
        """Return proof of ownership; raises IllegalState when the partition is not owned."""
        return self._core.fencing_token(TopicPartition(*partition))

    def group_metadata(self) -> GroupMetadata:
        """Return this worker's identity in its group."""
        return self._core.identity()

    async def close(self, leave: bool | str = True) -> None:
        """Run `on_lose` for everything that is owned, then leave. `leave` as in `Consumer.close`."""
        if self._core.closed:
            return
        try:
            await self._core.begin_close(leave)
            while (callback := await self._core.closing_callback()) is not None:
                await self._call_listener(callback)
        finally:
            await self._core.finish_close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def _call_listener(self, callback: Callback) -> None:
        errors: list[Exception] = []
        for tp in callback.partitions:
            try:
                waiting = self._listener.call_for(self, tp, callback)
                if waiting is not None:
                    await waiting
            except Exception as error:
                errors.append(error)
        self._core.done(callback)
        if errors:
            raise errors[0]
