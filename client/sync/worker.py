"""The worker: owns partitions of topics, or plain named resources, without reading any log."""

from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import Any, Self, TypeVar

from muster.client.aio.worker import AsyncWorker
from muster.client.membership.ports import Callback, RebalanceListener
from muster.client.twins import same, shared_loop
from muster.client.types import OnPartition

T = TypeVar("T")


class Worker:
    """A member of a group that shares work by name. It lives as long as its heartbeats, however long the work takes.

    `join(topics=...)` shares the partitions of topics, `join(resources=...)` any names: a resource is the partition 0
    of its name. `on_gain(worker, partition, event)` and `on_lose(worker, partition, event)` are called for each
    partition, inside `run`, `poll` and `close`, in the caller's thread; `event.kind` tells an orderly "revoked" from
    "lost". A rebalance waits for `on_lose` up to max.poll.interval.ms, so call `run`, or `poll` often enough. Send
    `fencing_token(partition)` along with writes, so that whatever is written to can refuse a former owner.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **properties: Any) -> None:
        self._twin = AsyncWorker(config, **properties)
        self._core = self._twin._core
        self._loop = shared_loop()
        self._listener = RebalanceListener()

    def join(
        self,
        topics: Iterable[str] = (),
        resources: Iterable[str] = (),
        on_gain: OnPartition["Worker"] | None = None,
        on_lose: OnPartition["Worker"] | None = None,
        on_prepare: OnPartition["Worker"] | None = None,
    ) -> None:
        """Join the group. Joining again changes the names. `on_prepare` is called per partition, as in
        `Consumer.subscribe`.
        """
        self._listener = RebalanceListener(on_gain, on_lose, on_prepare=on_prepare)
        self._run(self._core.join(tuple(topics), tuple(resources)))

    def poll(self, timeout: float | None = None) -> bool:
        """Run the callbacks of one change; return False when there was none within `timeout` seconds."""
        callback = self._run(self._core.next_callback(timeout))
        if callback is not None:
            self._call_listener(callback)
        return callback is not None

    def run(self) -> None:
        """Run callbacks until the worker is closed, by a callback, another thread or Ctrl-C."""
        while not self._core.closed:
            self.poll()

    owned = same(AsyncWorker.owned)
    fencing_token = same(AsyncWorker.fencing_token)
    group_metadata = same(AsyncWorker.group_metadata)

    def close(self, leave: bool | str = True) -> None:
        """Run `on_lose` for everything that is owned, then leave. `leave` as in `Consumer.close`."""
        if self._core.closed:
            return
        try:
            self._run(self._core.begin_close(leave))
            while (callback := self._run(self._core.closing_callback())) is not None:
                self._call_listener(callback)
        finally:
            self._run(self._core.finish_close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _call_listener(self, callback: Callback) -> None:
        """Every partition is told, whatever the callbacks for others raised; the first error is raised afterwards."""
        errors: list[Exception] = []
        for tp in callback.partitions:
            try:
                self._listener.call_for(self, tp, callback)
            except Exception as error:
                errors.append(error)
        self._run(self._done(callback))
        if errors:
            raise errors[0]

    async def _done(self, callback: Callback) -> None:
        self._core.done(callback)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)
