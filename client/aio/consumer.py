"""The consumer for asyncio."""

import time
from collections.abc import AsyncIterator, Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from muster.client.aio.offsets import Offset, choose_commit_offsets
from muster.client.aio.shared import ConsumerCore, seconds_left
from muster.client.callbacks import OnPartitions
from muster.client.calls.log_calls import list_end_offsets, list_offsets, list_start_offsets
from muster.client.config import ConsumerConfig, load
from muster.client.membership.listener import RebalanceListener
from muster.client.membership.seam import Callback
from muster.client.types import (
    FencingToken,
    GroupMetadata,
    Message,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    TopicPartition,
    Watermarks,
)


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
        """Take part in the group for these topics; one that begins with ^ is a regular expression.

        Subscribing again changes the topics. Without `on_lost`, lost partitions go to `on_revoke`. `black_list` means
        every topic that the expressions do not match (group.protocol=zookeeper). `on_prepare` hears of partitions that
        others are still letting go of (group.protocol=consumer): `event.ready()` tells these that they need not wait.
        """
        self._listener = RebalanceListener(on_assign, on_revoke, on_lost, on_prepare)
        await self._core.subscribe([topics] if isinstance(topics, str) else list(topics), black_list)

    async def unsubscribe(self) -> None:
        """Give up all partitions (with callbacks) and leave the group."""
        await self._core.begin_unsubscribe()
        await self._last_callbacks()
        await self._core.finish_unsubscribe()

    async def assign(self, partitions: Iterable[tuple[str, int]]) -> None:
        """Read exactly these, without rebalances. With a group.id, offsets are still committed and found."""
        await self._core.assign([TopicPartition(*tp) for tp in partitions])

    async def unassign(self) -> None:
        """Undo `assign`."""
        await self.unsubscribe()

    async def poll(self, timeout: float | None = None) -> Message | None:
        """The next record; None when none came within `timeout` seconds (None: wait for ever)."""
        core = self._core
        core.begin_poll()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if not core.attention and (message := core.pop()) is not None:
                return message
            callback = await core.fill(seconds_left(deadline))
            if callback is not None:
                await self._tell(callback)
            elif not core.fetcher.ready:
                return None

    async def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Up to `num_messages` of what is there; waits only for the first."""
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
        """Commit after `message`, exactly `offsets`, or after all that was handed over.

        Waits for the group's word. Raises CommitFailed when the group has gone on without this consumer.
        """
        await self._core.commits.commit(choose_commit_offsets(self._core, message, offsets))

    def store_offsets(
        self, message: Message | None = None, offsets: Mapping[tuple[str, int], int] | None = None
    ) -> None:
        """Say what is done, for the next commit; needs enable.auto.offset.store=false."""
        given = {message.topic_partition: message.offset + 1} if message is not None else {}
        self._core.store(given | {TopicPartition(*tp): offset for tp, offset in (offsets or {}).items()})

    async def committed(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed, None where nothing is."""
        return await self._core.commits.committed([TopicPartition(*tp) for tp in partitions])

    async def position(self, partition: tuple[str, int]) -> int:
        """The offset of the next record that `poll` would hand over."""
        return await self._core.seeking.position(TopicPartition(*partition))

    async def seek(self, partition: tuple[str, int], offset: int) -> None:
        """Go on from here."""
        await self._core.seeking.seek(TopicPartition(*partition), offset)

    async def seek_to_beginning(self, *partitions: tuple[str, int]) -> None:
        """Go on from the first record there is; without arguments, in all assigned partitions."""
        await self._core.seeking.seek_to_edge([TopicPartition(*tp) for tp in partitions], end=False)

    async def seek_to_end(self, *partitions: tuple[str, int]) -> None:
        """Go on with what comes; without arguments, in all assigned partitions."""
        await self._core.seeking.seek_to_edge([TopicPartition(*tp) for tp in partitions], end=True)

    async def get_watermark_offsets(self, partition: tuple[str, int]) -> Watermarks:
        """The first offset there is, and the one the next record will get."""
        tp = TopicPartition(*partition)
        low = await list_start_offsets(self._core.transport, [tp])
        high = await list_end_offsets(self._core.transport, [tp])
        return Watermarks(low[tp], high[tp])

    async def beginning_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The first offset there is, for each; owned or not."""
        return await list_start_offsets(self._core.transport, [TopicPartition(*tp) for tp in partitions])

    async def end_offsets(self, partitions: Iterable[tuple[str, int]]) -> dict[TopicPartition, int]:
        """The offset that the next record will get, for each; owned or not."""
        return await list_end_offsets(self._core.transport, [TopicPartition(*tp) for tp in partitions])

    async def offsets_for_times(
        self, times: Mapping[tuple[str, int], int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after each time (epoch milliseconds); None where there is none."""
        found = await list_offsets(self._core.transport, {TopicPartition(*tp): at for tp, at in times.items()})
        return {tp: at if at.offset >= 0 else None for tp, at in found.items()}

    async def list_topics(self, topic: str | None = None) -> dict[str, int]:
        """Partition counts by name, of all topics or of this one; nothing for a topic that does not exist."""
        return await self._core.catalog.listed(topic)

    async def topics(self) -> set[str]:
        """The names of all topics."""
        return set(await self._core.catalog.listed())

    async def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of its partitions; None when there is no such topic."""
        count = (await self._core.catalog.listed(topic)).get(topic)
        return None if count is None else set(range(count))

    async def pause(self, *partitions: tuple[str, int]) -> None:
        """Hand over no more records of these until `resume`; they stay owned."""
        await self._core.seeking.pause([TopicPartition(*tp) for tp in partitions])

    async def resume(self, *partitions: tuple[str, int]) -> None:
        """Hand over records of these again, from where `pause` left off."""
        await self._core.seeking.resume([TopicPartition(*tp) for tp in partitions])

    def paused(self) -> set[TopicPartition]:
        """What `pause` holds back now."""
        return self._core.seeking.paused()

    def subscription(self) -> set[str]:
        """What was subscribed to, as it was given: names, and expressions that begin with ^."""
        return self._core.subscription()

    def assignment(self) -> set[TopicPartition]:
        """What is owned now. Inside `on_revoke` and `on_lost` the partitions are still in it."""
        return set(self._core.assigned)

    def truncations(self) -> int:
        """How often it was sent back because a log lost records that it had read (an unclean election)."""
        return self._core.fetcher.truncations

    def memberid(self) -> str:
        """By which id the group knows this consumer; empty while it is no member."""
        return self._core.group_metadata().member_id

    def consumer_group_metadata(self) -> GroupMetadata:
        """Who this consumer is to its group right now."""
        return self._core.group_metadata()

    def fencing_token(self, partition: tuple[str, int]) -> FencingToken:
        """Proof of ownership to send along with writes; see `FencingToken`."""
        return self._core.fencing_token(TopicPartition(*partition))

    async def close(self, leave: bool | str = True) -> None:
        """Commit if that is automatic, run the last callbacks, leave the group. Static members stay in it.

        `leave`: True as usual, False or "remain" to stay a member until the session is over, "leave" to leave even as
        a static member. Closing twice does nothing.
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
            await self._tell(callback)

    async def _tell(self, callback: Callback) -> None:
        self._core.telling = True
        try:
            waiting = self._listener.call(self, callback)
            if waiting is not None:
                await waiting
        finally:
            self._core.telling = False
            self._core.done(callback)
