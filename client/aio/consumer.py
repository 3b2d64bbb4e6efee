"""The asyncio consumer, and the core that it shares with its synchronous twin: subscription, positions, commits and
callbacks.

The core lives on one event loop. The application's thread may read `ready` and `attention` without crossing to the
loop: both are safe under the interpreter's lock, which makes a loop over single messages fast. An exception in a
background task is raised by the next call: commits and checks never stop silently.
"""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from types import TracebackType
from typing import Any, Self, TypeAlias

from muster.client.calls.topic_calls import PartitionCounts, list_end_offsets, list_offsets, list_start_offsets
from muster.client.calls.transport import Transport, now_ms
from muster.client.config import ConsumerConfig, load
from muster.client.errors import ClientError, IllegalState, Refused, UnknownTopic
from muster.client.members import events as ev
from muster.client.membership.group_protocol import choose_joining
from muster.client.membership.ports import Callback, GroupMembership, Interest, RebalanceListener, parse_leave_policy
from muster.client.records.fetcher import ConsumerFetcher
from muster.client.records.partition_state import ConsumedPartition
from muster.client.records.positions import ConsumerCommits, PositionControl, PositionResolver, TopicSubscription
from muster.client.twins import BackgroundTasks
from muster.client.types import (
    FencingToken,
    GroupMetadata,
    Message,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    OnPartitions,
    TopicPartition,
    Watermarks,
)

# The core that both twins share
# ------------------------------

log = logging.getLogger("muster.client")

NO_GENERATION = -1
CLOSE_PATIENCE_MS = 5_000
"""How long the last commit of a closing consumer may take; a node that is gone must not keep a process from ending."""


class ConsumerCore:
    """One consumer, without the face that applications see."""

    def __init__(self, config: ConsumerConfig) -> None:
        self.config = config
        self.attention = False
        """Something other than records waits: a callback or an error. Looked at before every record."""
        self.transport = Transport(config)
        self.catalog = PartitionCounts(self.transport, config)
        self.joining = choose_joining(config, self.transport, self.catalog, lambda: self.commits)
        self.driver: GroupMembership | None = None
        self.assigned: set[TopicPartition] = set()
        self.gained: dict[TopicPartition, int] = {}
        self.failure: Exception | None = None
        self.last_poll_ms = now_ms()
        self.polling = 0
        self._wakeup = asyncio.Event()
        self.fetcher = ConsumerFetcher(self.transport, config, self.wake)
        self._handed: dict[TopicPartition, ConsumedPartition] = {}
        self._chores = BackgroundTasks(self._found_out)
        self._subscribed = TopicSubscription(self.catalog, config, self.joining.resolves_patterns)
        store = self.joining.store
        self.positions = PositionResolver(self.transport, store, config, self.fetcher, self._found_out)
        self.commits = ConsumerCommits(store, config, self.fetcher, self._identity, self._commit_refused)
        self.seeking = PositionControl(
            self.transport, config, self.fetcher, self.positions, self._handed, self.wake, self._raise_failure
        )
        self._expired = False
        self._patience_ms: int | None = None
        self.in_callback = False
        """A callback is running; polling from inside it would call it again."""
        self.closed = False

    def wake(self) -> None:
        driver = self.driver
        self.attention = bool(
            (driver is not None and (driver.callbacks or driver.failure)) or self.failure or self.fetcher.failure
        )
        self._wakeup.set()

    def _found_out(self, error: Exception) -> None:
        """Something in the background that the application must decide on: the next poll raises it."""
        self.failure = error
        self.wake()

    def _identity(self) -> GroupMetadata | None:
        return self.driver.identity if self.driver is not None else None

    def _commit_refused(self, error: Refused, generation: int) -> None:
        if self.driver is not None:
            self.driver.refused(error, generation)

    # Subscription

    async def subscribe(self, topics: Sequence[str], black_list: bool = False) -> None:
        """Names, and patterns that begin with ^."""
        self._must_be_open()
        if self.joining.store is None:
            raise IllegalState("subscribe() needs a group.id; without a group use assign([(topic, partition), ...])")
        if self.assigned and self.driver is None:
            raise IllegalState("partitions were assigned by hand; call unassign() before subscribe()")
        self._subscribed.change(topics, black_list)
        await self.joining.open()
        interest = await self._subscribed.interest()
        self._chores.start(self._subscribed.tell_what_is_missing())
        if self.driver is not None:
            self.driver.send(subscription_changed(interest))
            return
        self.fetcher.start()
        self.last_poll_ms = now_ms()
        self.driver = self.joining.membership(interest, self.wake)
        self.driver.send(ev.Start())
        self._chores.start(self._watch_topics())
        self._chores.start(self._watch_polls())
        if self.config.auto_commits and not self.joining.reports_positions:
            self._chores.start(self.commits.commit_now_and_then())

    def subscription(self) -> set[str]:
        return self._subscribed.given() if self.driver is not None else set()

    async def begin_unsubscribe(self) -> None:
        """Start to leave; run the callbacks of `closing_callback`, then `finish_unsubscribe`."""
        if self.driver is not None:
            self._count_as_done()
            self.driver.send(ev.Close())
        elif self.config.auto_commits:
            self._count_as_done()
            await self.commits.commit_quietly(self.commits.to_commit())

    async def finish_unsubscribe(self) -> None:
        driver, self.driver = self.driver, None
        if driver is not None:
            await driver.left()
        await self._chores.cancel()
        await self.positions.stop()
        self.fetcher.drop(list(self.fetcher.states))
        self.assigned.clear()
        self.gained.clear()
        self._expired = False
        self.wake_attention()

    async def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these, without a group's word. Positions: as committed, or as auto.offset.reset says."""
        self._must_be_open()
        if self.driver is not None:
            raise IllegalState("this consumer subscribed to topics; call unsubscribe() before assign()")
        wanted = {TopicPartition(*tp) for tp in partitions}
        await self.joining.open()
        for topic in sorted({tp.topic for tp in wanted}):
            count = await self.catalog.count(topic)
            for tp in sorted(wanted):
                if tp.topic == topic and not 0 <= tp.partition < count:
                    raise UnknownTopic(
                        3,
                        "UNKNOWN_TOPIC_OR_PARTITION",
                        f"{topic} has partitions 0 to {count - 1}; {tp.partition} is not one",
                    )
        self.fetcher.start()
        self.fetcher.drop(self.assigned - wanted)
        self.fetcher.add(wanted - self.assigned)
        self.assigned = wanted
        if self.config.auto_commits and not self._chores:
            self._chores.start(self.commits.commit_now_and_then())
        self.wake()

    # Reading

    def begin_poll(self) -> None:
        """What was handed over before counts as done, and the application lives."""
        if self.in_callback:
            raise IllegalState("poll() inside a callback; the callback has to return first")
        self.last_poll_ms = now_ms()
        if self._handed:
            self._count_as_done()

    def _count_as_done(self) -> None:
        if self.config.enable_auto_offset_store:
            for state in list(self._handed.values()):
                state.stored = state.position
        self._handed.clear()

    def pop(self) -> Message | None:
        """The next record that is still ours to hand over. Safe from the application's thread."""
        ready = self.fetcher.ready
        while ready:
            entry = ready.popleft()
            state = entry.state
            if entry.epoch == state.epoch and not state.revoking:
                message = entry.message
                if message is None:
                    state.pass_over(entry.next_offset, also_stored=self.config.enable_auto_offset_store)
                    continue
                state.position = message.offset + 1
                self._handed[state.tp] = state
                return message
        return None

    async def fill(self, timeout_s: float | None) -> Callback | None:
        """Wait until a callback is due (returned; call `done` afterwards), or records are ready or time is up (None).

        Raises what went wrong in the background, once.
        """
        self._must_be_open()
        if self.driver is None and not self.assigned:
            raise IllegalState("nothing to poll: call subscribe() or assign() first")
        self._polled()
        deadline = None if timeout_s is None else asyncio.get_running_loop().time() + timeout_s
        self.polling += 1
        try:
            while True:
                self._wakeup.clear()
                if (callback := await self._next_callback()) is not None:
                    return callback
                self._raise_failure()
                self.positions.resolve_soon()
                self.fetcher.refill(self.config.max_poll_records)
                # However many records wait: heartbeats and fetches get their turn.
                await asyncio.sleep(0)
                if self.fetcher.ready or not await self._woken(deadline):
                    return None
        finally:
            self.polling -= 1
            self.last_poll_ms = now_ms()

    async def _woken(self, deadline: float | None) -> bool:
        if deadline is None:
            await self._wakeup.wait()
            return True
        left = deadline - asyncio.get_running_loop().time()
        if left <= 0:
            return False
        try:
            await asyncio.wait_for(self._wakeup.wait(), left)
        except TimeoutError:
            return False
        return True

    async def _next_callback(self) -> Callback | None:
        driver = self.driver
        callback = driver.next_callback() if driver is not None else None
        if driver is None or callback is None:
            return None
        if callback.kind == "assigned":
            self.fetcher.add(callback.partitions)
            self.assigned |= set(callback.partitions)
            self.gained.update(dict.fromkeys(callback.partitions, callback.event.generation))
        elif callback.kind != "prepare":
            for tp in callback.partitions:
                if (state := self.fetcher.states.get(tp)) is not None:
                    state.revoking = True
            if callback.kind == "revoked" and self.config.auto_commits and not self.joining.reports_positions:
                try:
                    await self.commits.commit_quietly(self.commits.to_commit(callback.partitions), self._patience_ms)
                except asyncio.CancelledError:
                    driver.callbacks.appendleft(callback)
                    raise
        return callback

    def done(self, callback: Callback) -> None:
        """The application's callback has run."""
        if callback.kind in ("revoked", "lost"):
            self.fetcher.drop(callback.partitions)
            self.assigned -= set(callback.partitions)
            for tp in callback.partitions:
                self._handed.pop(tp, None)
                self.gained.pop(tp, None)
        if self.driver is not None:
            self.driver.done(callback)
        self.wake()
        self.positions.resolve_soon()

    def _raise_failure(self) -> None:
        driver = self.driver
        error = self.failure or self.fetcher.failure
        self.failure = self.fetcher.failure = None
        if error is None and driver is not None:
            # The end of a membership stays true, so it is raised at every poll.
            error = driver.failure or driver.trouble
            driver.trouble = None
        self.wake_attention()
        if error is not None:
            raise error

    def wake_attention(self) -> None:
        driver = self.driver
        self.attention = driver is not None and bool(driver.callbacks or driver.failure)

    def _polled(self) -> None:
        self.last_poll_ms = now_ms()
        if self._expired and self.driver is not None:
            self._expired = False
            self.driver.send(ev.PollResumed())

    # Commits

    def store(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.config.enable_auto_offset_store:
            raise IllegalState("store_offsets() needs enable.auto.offset.store=false; otherwise polling stores them")
        for tp, offset in offsets.items():
            self.seeking.state_of(tp).stored = offset

    def everything_handed_over(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """What commit() without arguments means: after the last record the application got, or what it stored."""
        if self.config.enable_auto_offset_store:
            self._count_as_done()
        return self.commits.to_commit()

    def offsets_for_transaction(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """The same, for who commits it with what was made of the records."""
        if self.config.auto_commits:
            raise IllegalState("a transaction commits positions, and enable.auto.commit does so too; set it to false")
        if self.config.group_protocol == "zookeeper":
            raise IllegalState("positions in ZooKeeper are in no transaction; use another group.protocol")
        return self.everything_handed_over()

    # Membership

    def group_metadata(self) -> GroupMetadata:
        if self.config.group_id is None:
            raise IllegalState("this consumer has no group.id")
        if self.driver is not None:
            return replace(self.driver.identity, subscribed=True)
        return GroupMetadata(self.config.group_id, NO_GENERATION, "", self.config.group_instance_id)

    def fencing_token(self, tp: TopicPartition) -> FencingToken:
        key = TopicPartition(*tp)
        if self.config.group_id is None or key not in self.gained:
            raise IllegalState(f"{tp[0]}-{tp[1]} is not owned through a group; only its owner has a fencing token")
        return FencingToken(self.config.group_id, *key, self.gained[key], self.group_metadata().member_id)

    async def _watch_topics(self) -> None:
        """Once per metadata.max.age.ms: new topics for patterns, new partitions for the leader."""
        while self.driver is not None:
            await asyncio.sleep(self.config.metadata_max_age_ms / 1000)
            try:
                if self._subscribed.looks_for_topics:
                    self.driver.send(subscription_changed(await self._subscribed.interest()))
                if self.driver.watches_topics:
                    self.driver.send(ev.PartitionCountsChanged(await self.catalog.fetch_all()))
            except ClientError as error:
                log.warning("%s", error)

    async def _watch_polls(self) -> None:
        """max.poll.interval.ms: an application that stopped polling must not keep its partitions."""
        limit_ms = self.config.max_poll_interval_ms
        while self.driver is not None:
            idle_ms = 0 if self.polling else now_ms() - self.last_poll_ms
            if idle_ms >= limit_ms and not self._expired:
                self._expired = True
                log.error("no poll for %d ms (max.poll.interval.ms=%d); leaving the group", idle_ms, limit_ms)
                self.driver.send(ev.PollExpired())
            await asyncio.sleep(max(1, limit_ms if self._expired else limit_ms - idle_ms) / 1000)

    # The end

    async def begin_close(self, leave: bool | str, *, handed_over_is_done: bool) -> None:
        how = parse_leave_policy(leave)
        self._patience_ms = CLOSE_PATIENCE_MS
        if handed_over_is_done:
            self._count_as_done()
        else:
            self._handed.clear()
        # Even in the middle of a rebalance: until the new generation stands, the old one may commit.
        if self.config.auto_commits and (self.driver is None or self.driver.identity.generation >= 0):
            await self.commits.commit_quietly(self.commits.to_commit(), self._patience_ms)
        if self.driver is not None:
            self.driver.send(ev.Close(how))

    async def closing_callback(self) -> Callback | None:
        """The callbacks still due before the end, one by one."""
        return await self._next_callback()

    async def finish_close(self) -> None:
        if self.closed:
            return
        self.closed = True
        if self.driver is not None:
            await self.driver.left()
        await self._chores.cancel()
        await self.positions.stop()
        await self.joining.close()
        await self.fetcher.stop()
        self.fetcher.drop(list(self.fetcher.states))
        self.assigned.clear()
        await self.transport.close()
        self._wakeup.set()

    def _must_be_open(self) -> None:
        if self.closed:
            raise IllegalState("this consumer is closed")


def subscription_changed(interest: Interest) -> ev.SubscriptionChanged:
    return ev.SubscriptionChanged(interest.topics, interest.regex, interest.black_list)


def seconds_left(deadline: float | None) -> float | None:
    """Seconds until a deadline of the steady clock; 0 when it has passed."""
    return None if deadline is None else max(0.0, deadline - time.monotonic())


# Arguments of commit()
# ---------------------

Offset: TypeAlias = int | OffsetAndMetadata
MAX_OFFSET = 2**63 - 1


def choose_commit_offsets(
    core: ConsumerCore, message: Message | None, offsets: Mapping[tuple[str, int], Offset] | None
) -> dict[TopicPartition, OffsetAndMetadata]:
    """A message means the offset after it; nothing means after everything handed over so far."""
    if message is not None and offsets is not None:
        raise IllegalState("commit() takes a message or offsets, not both")
    if message is not None:
        return {message.topic_partition: OffsetAndMetadata(message.offset + 1)}
    if offsets is None:
        return core.everything_handed_over()
    return {TopicPartition(*tp): check_offset(tp, offset) for tp, offset in offsets.items()}


def check_offset(tp: tuple[str, int], offset: Offset) -> OffsetAndMetadata:
    given = offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
    if not 0 <= given.offset <= MAX_OFFSET:
        raise IllegalState(f"cannot commit offset {given.offset} for {tp[0]}-{tp[1]}; expected 0 to {MAX_OFFSET}")
    return given


# The client
# ----------


class AsyncConsumer:
    """As `muster.client.Consumer`; methods that may wait are coroutines, callbacks may be."""

    def __init__(self, config: Mapping[str, Any] | None = None, **properties: Any) -> None:
        self._core = ConsumerCore(load(ConsumerConfig, config, properties))
        self._listener = RebalanceListener()

    async def subscribe(
        self,
        topics: str | Iterable[str],
        on_assign: OnPartitions["AsyncConsumer"] | None = None,
        on_revoke: OnPartitions["AsyncConsumer"] | None = None,
        on_lost: OnPartitions["AsyncConsumer"] | None = None,
        *,
        black_list: bool = False,
        on_prepare: OnPartitions["AsyncConsumer"] | None = None,
    ) -> None:
        """Join the group and subscribe to these topics; one that begins with ^ is a regular expression.

        Subscribing again changes the topics. Without `on_lost`, lost partitions go to `on_revoke`. With `black_list`,
        subscribes to every topic that the expressions do not match (group.protocol=zookeeper). `on_prepare` receives
        partitions that their owners have not released yet (group.protocol=consumer): call `event.ready()` to tell
        them that they need not wait.
        """
        self._listener = RebalanceListener(on_assign, on_revoke, on_lost, on_prepare)
        await self._core.subscribe([topics] if isinstance(topics, str) else list(topics), black_list)

    async def unsubscribe(self) -> None:
        """Give up all partitions, with callbacks, and leave the group."""
        await self._core.begin_unsubscribe()
        await self._last_callbacks()
        await self._core.finish_unsubscribe()

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these partitions, without rebalances. With a group.id, offsets are still committed and found."""
        await self._core.assign([TopicPartition(*tp) for tp in partitions])

    async def unassign(self) -> None:
        """Undo `assign`."""
        await self.unsubscribe()

    async def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record, or None when none arrived within `timeout` seconds (None: wait for ever)."""
        core = self._core
        core.begin_poll()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if not core.attention and (message := core.pop()) is not None:
                return message
            callback = await core.fill(seconds_left(deadline))
            if callback is not None:
                await self._call_listener(callback)
            elif not core.fetcher.ready:
                return None

    async def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Return up to `num_messages` records that are available; waits only for the first."""
        first = await self.poll(timeout)
        messages = [] if first is None else [first]
        while 0 < len(messages) < num_messages and (message := self._core.pop()) is not None:
            messages.append(message)
        return messages

    async def __aiter__(self) -> AsyncIterator[Message]:
        while not self._core.closed:
            message = await self.poll()
            if message is not None:
                yield message

    async def commit(
        self, message: Message | None = None, offsets: Mapping[tuple[str, int], Offset] | None = None
    ) -> None:
        """Commit the offset after `message`, exactly `offsets`, or the offset after everything that was handed over.

        Waits for the answer. Raises CommitFailed when the group has gone on without this consumer.
        """
        await self._core.commits.commit(choose_commit_offsets(self._core, message, offsets))

    def store_offsets(
        self, message: Message | None = None, offsets: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        """Mark offsets as processed, for the next commit; needs enable.auto.offset.store=false."""
        given = {message.topic_partition: message.offset + 1} if message is not None else {}
        self._core.store(given | {TopicPartition(*tp): offset for tp, offset in (offsets or {}).items()})

    async def committed(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return the group's committed offsets, None where there is none."""
        return await self._core.commits.committed([TopicPartition(*tp) for tp in partitions])

    async def position(self, partition: tuple[str, int]) -> int:
        """Return the offset of the next record that `poll` would return."""
        return await self._core.seeking.position(TopicPartition(*partition))

    async def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Continue reading from this offset."""
        await self._core.seeking.seek(TopicPartition(*partition), offset)

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Continue from the first record; without arguments, in all assigned partitions."""
        await self._core.seeking.seek_to_edge([TopicPartition(*tp) for tp in partitions], end=False)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Continue from the end of the log; without arguments, in all assigned partitions.

        With isolation.level=read_committed the end is the last stable offset.
        """
        await self._core.seeking.seek_to_edge([TopicPartition(*tp) for tp in partitions], end=True)

    async def seek_to_committed(self) -> None:
        """Continue from the group's committed offsets in all assigned partitions; read ahead records are dropped.

        To be called after a transaction with this consumer's offsets was aborted: its records are returned again. A
        partition without a committed offset continues where auto.offset.reset says. While a transaction that holds
        an offset is still open this waits for its end, up to default.api.timeout.ms, and then raises Refused
        (UNSTABLE_OFFSET_COMMIT). After any error the next poll looks for the offsets again.
        """
        await self._core.seeking.seek_to_committed()

    async def get_watermark_offsets(self, partition: tuple[str, int]) -> Watermarks:
        """Return the first offset of a partition, and the offset where this consumer's reading ends (`end_offsets`)."""
        tp = TopicPartition(*partition)
        low = await list_start_offsets(self._core.transport, [tp])
        high = await self.end_offsets([tp])
        return Watermarks(low[tp], high[tp])

    async def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the first offset of each partition, owned or not."""
        return await list_start_offsets(self._core.transport, [TopicPartition(*tp) for tp in partitions])

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """Return the offset that the next record of each partition will get, owned or not.

        With isolation.level=read_committed it is the last stable offset, where the first open transaction begins.
        """
        wanted = [TopicPartition(*tp) for tp in partitions]
        return await list_end_offsets(self._core.transport, wanted, committed=self._core.config.reads_committed)

    async def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return the first record at or after each time (epoch milliseconds), None where there is none."""
        found = await list_offsets(
            self._core.transport,
            {TopicPartition(*tp): at for tp, at in times.items()},
            committed=self._core.config.reads_committed,
        )
        return {tp: at if at.offset >= 0 else None for tp, at in found.items()}

    async def list_topics(self, topic: str | None = None) -> dict[str, int]:
        """Return partition counts by name, of all topics or of one; empty for a topic that does not exist."""
        return await self._core.catalog.listed(topic)

    async def topics(self) -> set[str]:
        """Return the names of all topics."""
        return set(await self._core.catalog.listed())

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the partition numbers of a topic, None when it does not exist."""
        count = (await self._core.catalog.listed(topic)).get(topic)
        return None if count is None else set(range(count))

    async def pause(self, *partitions: tuple[str, int]) -> None:
        """Stop returning records of these partitions until `resume`; they stay owned."""
        await self._core.seeking.pause([TopicPartition(*tp) for tp in partitions])

    async def resume(self, *partitions: tuple[str, int]) -> None:
        """Return records of these partitions again, from where `pause` stopped."""
        await self._core.seeking.resume([TopicPartition(*tp) for tp in partitions])

    def paused(self) -> set[TopicPartition]:
        """Return the paused partitions."""
        return self._core.seeking.paused()

    def subscription(self) -> set[str]:
        """Return the subscription as it was given: names, and expressions that begin with ^."""
        return self._core.subscription()

    def assignment(self) -> set[TopicPartition]:
        """Return the owned partitions. Inside `on_revoke` and `on_lost`, it still includes those that go."""
        return set(self._core.assigned)

    def truncations(self) -> int:
        """How often this consumer was reset because a log lost records that it had read (an unclean election)."""
        return self._core.fetcher.truncations

    def memberid(self) -> str:
        """Return the member id of this consumer; empty while it is not a member."""
        return self._core.group_metadata().member_id

    def offsets_for_transaction(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions after the last records that were handed over, for `Producer.send_offsets`.

        Raises IllegalState if this consumer also commits by itself, or keeps its positions in ZooKeeper.
        """
        return self._core.offsets_for_transaction()

    def consumer_group_metadata(self) -> GroupMetadata:
        """Return this consumer's identity in its group, for `Producer.send_offsets`."""
        return self._core.group_metadata()

    def fencing_token(self, partition: tuple[str, int]) -> FencingToken:
        """Return proof of ownership to send with writes; see `FencingToken`."""
        return self._core.fencing_token(TopicPartition(*partition))

    async def close(self, leave: bool | str = True) -> None:
        """Commit if that is automatic, run the last callbacks, and leave the group. Static members stay in it.

        `leave`: True for that default, False or "remain" to stay a member until the session ends, "leave" to leave
        even as a static member. Closing twice is harmless.
        """
        await self._close(leave, handed_over_is_done=True)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._close(True, handed_over_is_done=error is None)

    async def _close(self, leave: bool | str, *, handed_over_is_done: bool) -> None:
        if self._core.closed:
            return
        try:
            await self._core.begin_close(leave, handed_over_is_done=handed_over_is_done)
            await self._last_callbacks()
        finally:
            await self._core.finish_close()

    async def _last_callbacks(self) -> None:
        while (callback := await self._core.closing_callback()) is not None:
            await self._call_listener(callback)

    async def _call_listener(self, callback: Callback) -> None:
        self._core.in_callback = True
        try:
            waiting = self._listener.call(self, callback)
            if waiting is not None:
                await waiting
        finally:
            self._core.in_callback = False
            self._core.done(callback)
