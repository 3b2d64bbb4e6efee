"""Where a consumer stands in its partitions, and how the application moves it: seek, pause, resume."""

from collections.abc import Callable, Iterable

from muster.client.calls.log_calls import list_end_offsets, list_start_offsets
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig
from muster.client.errors import IllegalState, NoOffset
from muster.client.records.fetcher import ConsumerFetcher
from muster.client.records.partition_state import ConsumedPartition
from muster.client.records.positions import PositionResolver
from muster.client.types import TopicPartition


class PositionControl:
    """`handed` are the partitions with records handed over and not yet done; `wake` says that more may be ready."""

    def __init__(
        self,
        transport: Transport,
        config: ConsumerConfig,
        fetcher: ConsumerFetcher,
        positions: PositionResolver,
        handed: dict[TopicPartition, ConsumedPartition],
        wake: Callable[[], None],
        raise_failure: Callable[[], None],
    ) -> None:
        self._transport = transport
        self._config = config
        self._fetcher = fetcher
        self._positions = positions
        self._handed = handed
        self._wake = wake
        self._raise_failure = raise_failure

    def state_of(self, tp: TopicPartition) -> ConsumedPartition:
        state = self._fetcher.states.get(TopicPartition(*tp))
        if state is None:
            owned = ", ".join(f"{topic}-{number}" for topic, number in sorted(self._fetcher.states)) or "nothing"
            raise IllegalState(f"{tp[0]}-{tp[1]} is not assigned to this consumer; assigned: {owned}")
        return state

    async def position(self, tp: TopicPartition) -> int:
        """The offset of the next record to be handed over, found out first if need be."""
        state = self.state_of(tp)
        while state.position is None:
            self._raise_failure()
            if state.stuck:
                raise NoOffset(f"{tp[0]}-{tp[1]} has no position; seek first")
            await self._positions.resolved()
        return state.position

    async def seek(self, tp: TopicPartition, offset: int) -> None:
        if offset < 0:
            raise IllegalState(f"cannot seek to {offset}; 0 or more is expected (or seek_to_beginning, seek_to_end)")
        self._move(self.state_of(tp), offset)

    async def seek_to_edge(self, partitions: Iterable[TopicPartition], *, end: bool) -> None:
        wanted = [TopicPartition(*tp) for tp in partitions] or sorted(self._fetcher.states)
        states = [self.state_of(tp) for tp in wanted]
        found = await (list_end_offsets if end else list_start_offsets)(self._transport, wanted)
        for state in states:
            self._move(state, found[state.tp])

    def _move(self, state: ConsumedPartition, offset: int) -> None:
        state.move_to(offset)
        self._handed.pop(state.tp, None)
        state.stored = offset if self._config.enable_auto_offset_store else state.stored
        self._fetcher.changed()

    async def pause(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.state_of(tp) for tp in partitions]:
            if not state.paused:
                state.paused = True
                state.move_to(state.position)
        self._fetcher.changed()

    async def resume(self, partitions: Iterable[TopicPartition]) -> None:
        for state in [self.state_of(tp) for tp in partitions]:
            state.paused = False
        self._wake()
        self._fetcher.changed()

    def paused(self) -> set[TopicPartition]:
        return {state.tp for state in list(self._fetcher.states.values()) if state.paused}
