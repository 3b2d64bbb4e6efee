"""The consumer: reads the partitions that its group gives it.

>>> from muster.client.config import ConsumerConfig, load
>>> load(ConsumerConfig, {"group.id": "g"}, {"auto_offset_reset": "earliest"}).auto_offset_reset
'earliest'
"""

import concurrent.futures
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, overload

from muster.client.aio.consumer import AsyncConsumer, Offset, choose_commit_offsets, seconds_left
from muster.client.membership.ports import Callback, RebalanceListener
from muster.client.twins import same, shared_loop, waiting
from muster.client.types import Message, OnPartitions

T = TypeVar("T")


class Consumer:
    """Reads partitions: those its group gives it (`subscribe`), or those it names itself (`assign`).

    Made from a dict of Kafka's dotted names, or snake_case keywords. Heartbeats go on in the background; callbacks
    run inside `poll`, `consume`, iteration, `unsubscribe` and `close`, in the caller's thread, and may call anything,
    `commit` included. They get `(consumer, partitions)` or `(consumer, partitions, event)`. Automatic commits cover
    what was handed over before the latest poll, so a crash repeats records but never skips any. One consumer belongs
    to one thread at a time.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **properties: Any) -> None:
        self._twin = AsyncConsumer(config, **properties)
        self._core = self._twin._core
        self._loop = shared_loop()
        self._listener = RebalanceListener()

    def subscribe(
        self,
        topics: str | Iterable[str],
        on_assign: OnPartitions["Consumer"] | None = None,
        on_revoke: OnPartitions["Consumer"] | None = None,
        on_lost: OnPartitions["Consumer"] | None = None,
        *,
        black_list: bool = False,
        on_prepare: OnPartitions["Consumer"] | None = None,
    ) -> None:
        """Join the group and subscribe to these topics; one that begins with ^ is a regular expression.

        Subscribing again changes the topics. Without `on_lost`, lost partitions go to `on_revoke`. With `black_list`,
        subscribes to every topic that the expressions do not match (group.protocol=zookeeper). `on_prepare` receives
        partitions that their owners have not released yet (group.protocol=consumer): call `event.ready()` to tell
        them that they need not wait.
        """
        self._listener = RebalanceListener(on_assign, on_revoke, on_lost, on_prepare)
        self._run(self._core.subscribe([topics] if isinstance(topics, str) else list(topics), black_list))

    def unsubscribe(self) -> None:
        """Give up all partitions, with callbacks, and leave the group."""
        self._run(self._core.begin_unsubscribe())
        self._last_callbacks()
        self._run(self._core.finish_unsubscribe())

    def unassign(self) -> None:
        """Undo `assign`."""
        self.unsubscribe()

    def poll(self, timeout: float | None = None) -> Message | None:
        """Return the next record, or None when none arrived within `timeout` seconds (None: wait for ever)."""
        core = self._core
        core.begin_poll()
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            if not core.attention and (message := core.pop()) is not None:
                return message
            callback = self._run(core.fill(seconds_left(deadline)))
            if callback is not None:
                self._call_listener(callback)
            elif not core.fetcher.ready:
                return None

    def consume(self, num_messages: int = 1, timeout: float | None = None) -> list[Message]:
        """Return up to `num_messages` records that are available; waits only for the first."""
        first = self.poll(timeout)
        messages = [] if first is None else [first]
        while 0 < len(messages) < num_messages and (message := self._core.pop()) is not None:
            messages.append(message)
        return messages

    def __iter__(self) -> Iterator[Message]:
        """Record after record, until the consumer is closed."""
        while not self._core.closed:
            message = self.poll()
            if message is not None:
                yield message

    @overload
    def commit(
        self,
        message: Message | None = None,
        offsets: Mapping[tuple[str, int], Offset] | None = None,
        asynchronous: Literal[False] = False,
    ) -> None: ...

    @overload
    def commit(
        self,
        message: Message | None = None,
        offsets: Mapping[tuple[str, int], Offset] | None = None,
        *,
        asynchronous: Literal[True],
    ) -> concurrent.futures.Future[None]: ...

    @overload
    def commit(
        self,
        message: Message | None,
        offsets: Mapping[tuple[str, int], Offset] | None,
        asynchronous: bool,
    ) -> concurrent.futures.Future[None] | None: ...

    def commit(
        self,
        message: Message | None = None,
        offsets: Mapping[tuple[str, int], Offset] | None = None,
        asynchronous: bool = False,
    ) -> concurrent.futures.Future[None] | None:
        """Commit the offset after `message`, exactly `offsets`, or the offset after everything that was handed over.

        Waits for the answer. Raises CommitFailed when the group has gone on without this consumer.
        """
        given = choose_commit_offsets(self._core, message, offsets)
        work = self._core.commits.commit(given)
        if asynchronous:
            return self._loop.submit(work)
        self._run(work)
        return None

    assign = waiting(AsyncConsumer.assign)
    committed = waiting(AsyncConsumer.committed)
    position = waiting(AsyncConsumer.position)
    seek = waiting(AsyncConsumer.seek)
    seek_to_beginning = waiting(AsyncConsumer.seek_to_beginning)
    seek_to_end = waiting(AsyncConsumer.seek_to_end)
    seek_to_committed = waiting(AsyncConsumer.seek_to_committed)
    get_watermark_offsets = waiting(AsyncConsumer.get_watermark_offsets)
    beginning_offsets = waiting(AsyncConsumer.beginning_offsets)
    end_offsets = waiting(AsyncConsumer.end_offsets)
    offsets_for_times = waiting(AsyncConsumer.offsets_for_times)
    list_topics = waiting(AsyncConsumer.list_topics)
    topics = waiting(AsyncConsumer.topics)
    partitions_for_topic = waiting(AsyncConsumer.partitions_for_topic)
    pause = waiting(AsyncConsumer.pause)
    resume = waiting(AsyncConsumer.resume)

    store_offsets = same(AsyncConsumer.store_offsets)
    paused = same(AsyncConsumer.paused)
    subscription = same(AsyncConsumer.subscription)
    assignment = same(AsyncConsumer.assignment)
    truncations = same(AsyncConsumer.truncations)
    memberid = same(AsyncConsumer.memberid)
    offsets_for_transaction = same(AsyncConsumer.offsets_for_transaction)
    consumer_group_metadata = same(AsyncConsumer.consumer_group_metadata)
    fencing_token = same(AsyncConsumer.fencing_token)

    def close(self, leave: bool | str = True) -> None:
        """Commit if that is automatic, run the last callbacks, and leave the group. Static members stay in it.

        `leave`: True for that default, False or "remain" to stay a member until the session ends, "leave" to leave
        even as a static member. Closing twice is harmless.
        """
        self._close(leave, handed_over_is_done=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # The record that was being worked on when an error struck is not done.
        self._close(True, handed_over_is_done=error is None)

    def _close(self, leave: bool | str, *, handed_over_is_done: bool) -> None:
        if self._core.closed:
            return
        try:
            self._run(self._core.begin_close(leave, handed_over_is_done=handed_over_is_done))
            self._last_callbacks()
        finally:
            self._run(self._core.finish_close())

    def _last_callbacks(self) -> None:
        while (callback := self._run(self._core.closing_callback())) is not None:
            self._call_listener(callback)

    def _call_listener(self, callback: Callback) -> None:
        self._core.in_callback = True
        try:
            self._listener.call(self, callback)
        finally:
            self._core.in_callback = False
            self._run(self._done(callback))

    async def _done(self, callback: Callback) -> None:
        self._core.done(callback)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)
