"""The long poll at one node: over all partitions that want records and are led there."""

import asyncio
from typing import TYPE_CHECKING, Protocol

from muster.client.calls.methods import FETCH
from muster.client.errors import TransportRefused, Unreachable
from muster.client.records.partition_state import ConsumedPartition
from muster.storage.rpc.v1 import broker_service_pb2 as pb

if TYPE_CHECKING:
    from muster.client.calls.transport import Transport
    from muster.client.config import ConsumerConfig


class FetchWishes(Protocol):
    """What is asked of `fetcher.Fetcher`."""

    @property
    def full(self) -> bool: ...

    def wanted(self, address: str) -> list[ConsumedPartition]: ...

    def take_in(self, wanted: list[ConsumedPartition], answer: pb.FetchResponse) -> bool: ...

    def unreachable(self, wanted: list[ConsumedPartition]) -> None: ...

    def fail(self, error: Exception) -> None: ...


class FetchPoll:
    """One call after the other. `address`: the node's, or ONE_NODE."""

    def __init__(self, fetcher: FetchWishes, transport: "Transport", config: "ConsumerConfig", address: str) -> None:
        self.address = address
        self._fetcher = fetcher
        self._transport = transport
        self._config = config
        self._changed = asyncio.Event()
        self._turn = 0
        self.task = asyncio.create_task(self._run())

    def changed(self) -> None:
        """Look again at what to fetch."""
        self._changed.set()

    async def stop(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)

    async def _run(self) -> None:
        backoff = self._transport.backoff()
        fetcher = self._fetcher
        while True:
            self._changed.clear()
            wanted = fetcher.wanted(self.address)
            if not wanted or fetcher.full:
                await self._changed.wait()
                continue
            try:
                answer = await self._fetch(wanted)
            except Unreachable as error:
                self._transport.announce(error)
                fetcher.unreachable(wanted)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            except TransportRefused as error:
                fetcher.fail(error)
                await asyncio.sleep(backoff.next_ms() / 1000)
                continue
            backoff.reset()
            if answer is not None and not fetcher.take_in(wanted, answer):
                await asyncio.sleep(backoff.next_ms() / 1000)

    async def _fetch(self, wanted: list[ConsumedPartition]) -> pb.FetchResponse | None:
        """None when the wishes changed while waiting: the call is given up and made anew."""
        patience_ms = self._config.request_timeout_ms + self._config.fetch_max_wait_ms
        call = asyncio.create_task(
            self._transport.leaders.ask(
                FETCH,
                self._request(wanted),
                doing="fetching records",
                address=self.address,
                places=[state.tp for state in wanted],
                timeout_ms=patience_ms,
                parked_ms=self._config.fetch_max_wait_ms,
            )
        )
        changed = asyncio.create_task(self._changed.wait())
        try:
            await asyncio.wait([call, changed], return_when=asyncio.FIRST_COMPLETED)
            return call.result() if call.done() else None
        finally:
            # Without these both would go on behind our back, the call on the node's side too.
            changed.cancel()
            if not call.done():
                call.cancel()
                await asyncio.gather(call, return_exceptions=True)

    def _request(self, wanted: list[ConsumedPartition]) -> pb.FetchRequest:
        config, leaders = self._config, self._transport.leaders
        request = pb.FetchRequest(
            max_wait_ms=config.fetch_max_wait_ms, min_bytes=config.fetch_min_bytes, max_bytes=config.fetch_max_bytes
        )
        # Begin with another partition each time, so that a byte limit does not starve the last ones.
        self._turn += 1
        start = self._turn % len(wanted)
        lines: dict[str, pb.FetchTopic] = {}
        for state in wanted[start:] + wanted[:start]:
            topic, partition = state.tp
            line = lines.get(topic)
            if line is None:
                line = lines[topic] = request.topics.add(topic=topic)
            part = line.partitions.add(
                partition=partition,
                fetch_offset=state.fetch_offset,
                partition_max_bytes=config.max_partition_fetch_bytes,
            )
            if leaders.shared and state.fetch_offset is not None:
                part.current_leader_epoch = leaders.epoch(state.tp)
                part.last_fetched_epoch = state.epoch_before(state.fetch_offset)
        return request
