"""Where to begin in partitions that are new: at the committed offset, or where auto.offset.reset says."""

import asyncio
import logging
from collections.abc import Callable, Sequence

from muster.client.calls.log_calls import EARLIEST, LATEST, list_offsets
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig
from muster.client.errors import ClientError, NoOffset, Refused
from muster.client.membership.seam import OffsetStore
from muster.client.records.fetcher import ConsumerFetcher
from muster.client.records.partition_state import UNKNOWN_EPOCH, ConsumedPartition
from muster.client.types import TopicPartition

log = logging.getLogger("muster.client")


class PositionResolver:
    """Finds positions in the background; `on_failure` hears of what only the application can decide."""

    def __init__(
        self,
        transport: Transport,
        store: OffsetStore | None,
        config: ConsumerConfig,
        fetcher: ConsumerFetcher,
        on_failure: Callable[[Exception], None],
    ) -> None:
        self._transport = transport
        self._store = store
        self._config = config
        self._fetcher = fetcher
        self._on_failure = on_failure
        self._resolving: asyncio.Task[None] | None = None

    def resolve_soon(self) -> None:
        """Not before the application polls or asks: until then it may still seek."""
        if self._unplaced() and (self._resolving is None or self._resolving.done()):
            self._resolving = asyncio.create_task(self._resolve())

    def _unplaced(self) -> list[ConsumedPartition]:
        return [s for s in self._fetcher.states.values() if s.fetch_offset is None and not s.stuck and not s.revoking]

    async def _resolve(self) -> None:
        """Find out where to begin; try again for as long as the partitions are ours."""
        backoff = self._transport.backoff()
        while missing := self._unplaced():
            try:
                await self._find_positions(missing)
            except (NoOffset, Refused) as error:
                if isinstance(error, Refused) and error.retriable:
                    await asyncio.sleep(backoff.next_ms() / 1000)
                    continue
                for state in missing:
                    state.stuck = state.fetch_offset is None
                self._on_failure(error)
                return
            except ClientError as error:
                log.warning("%s", error)
                await asyncio.sleep(backoff.next_ms() / 1000)
        self._fetcher.changed()

    async def _find_positions(self, missing: Sequence[ConsumedPartition]) -> None:
        epochs = {state.tp: state.epoch for state in missing}
        found: dict[TopicPartition, int] = {}
        written: dict[TopicPartition, int] = {}
        if self._store is not None:
            # Where the log did not hold the committed offset, it is of no use.
            asked = [state.tp for state in missing if not state.reset]
            for tp, committed in (await self._store.committed(asked)).items() if asked else ():
                if committed is not None:
                    found[tp], written[tp] = committed.offset, committed.leader_epoch
        on_record = set(found)
        # Whoever sought in the meantime has decided for himself.
        if rest := [s.tp for s in missing if s.tp not in found and s.epoch == epochs[s.tp]]:
            found |= await self._reset_positions(rest)
        for state in missing:
            if state.epoch == epochs[state.tp] and state.tp in found:
                state.fetch_offset = state.position = found[state.tp]
                if self._transport.leaders.shared:
                    state.begin(found[state.tp], written.get(state.tp, UNKNOWN_EPOCH))
                state.reset = False
                state.committed = found[state.tp] if state.tp in on_record else None
                # So that the next owner begins here too, even if nothing is read before it takes over.
                state.stored = state.position if self._config.enable_auto_offset_store else None

    async def _reset_positions(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        reset = self._config.auto_offset_reset
        if reset == "none":
            named = ", ".join(f"{topic}-{number}" for topic, number in sorted(partitions))
            raise NoOffset(f"no offset is committed for {named} and auto.offset.reset=none; seek, or choose a reset")
        where = EARLIEST if reset == "earliest" else LATEST
        found = await list_offsets(self._transport, dict.fromkeys(partitions, where))
        return {tp: at.offset for tp, at in found.items()}

    async def resolved(self) -> None:
        """Wait for the search under way."""
        self.resolve_soon()
        if self._resolving is not None:
            await asyncio.wait([self._resolving])

    async def stop(self) -> None:
        if self._resolving is not None:
            self._resolving.cancel()
            await asyncio.gather(self._resolving, return_exceptions=True)
