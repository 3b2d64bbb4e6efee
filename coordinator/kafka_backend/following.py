"""Reads on in shards in which a client's transaction is open (KB-E4): those that one broker leads by one long poll."""

from typing import Final

from muster.coordinator.kafka_backend.owner import LogOwner
from muster.coordinator.kafka_backend.reading import decode_batches
from muster.coordinator.kafka_backend.shard_ownership import effects as ef
from muster.coordinator.kafka_backend.shard_ownership import events as ev
from muster.coordinator.kafka_backend.upstream import records
from muster.coordinator.kafka_backend.upstream.errors import UpstreamError
from muster.coordinator.kafka_backend.upstream.lines import FOLLOW
from muster.coordinator.kafka_backend.upstream.upstream import Upstream
from muster.coordinator.kafka_backend.upstream.view import NO_LEADER
from muster.storage.errors import StorageError

WAIT_MS: Final = 100
"""How long a broker waits for something to come. What is wanted meanwhile of another of its shards waits as long."""

PORTION: Final = 1 << 20
"""Bytes of one shard in one answer; a batch comes whole."""


POLL_EXTRA_S: Final = 2.0
"""How much longer an answer is waited for: a broker that is silent then may lead no more."""


class TransactionFollower:
    """A task for each broker that leads a shard of which something is wanted."""

    def __init__(self, owner: LogOwner, upstream: Upstream, topic: str) -> None:
        self._owner = owner
        self._upstream = upstream
        self._topic = topic
        self._wanted: dict[int, ef.FollowLog] = {}
        self._polled: set[int] = set()
        """Brokers that are asked."""

    def follow(self, effect: ef.FollowLog) -> None:
        self._wanted[effect.shard] = effect
        self._owner.begin(self._begun(effect))

    def gone(self, shard: int) -> None:
        self._wanted.pop(shard, None)

    async def _begun(self, effect: ef.FollowLog) -> None:
        try:
            await self._owner.leader(effect.shard)
        except UpstreamError as error:
            self._failed(effect, str(error))
        else:
            self._deal_out()

    def _deal_out(self) -> None:
        """See to it that each leader is asked; a shard without one is tried again by whoever wants it."""
        for each in list(self._wanted.values()):
            broker = self._upstream.view.leader(self._topic, each.shard)
            if broker == NO_LEADER:
                self._failed(each, "nobody leads it")
            elif broker not in self._polled:
                self._polled.add(broker)
                self._owner.begin(self._poll_on(broker))

    async def _poll_on(self, broker: int) -> None:
        """For as long as something is wanted of what it leads."""
        view = self._upstream.view
        try:
            while mine := [each for each in self._wanted.values() if view.leader(self._topic, each.shard) == broker]:
                await self._poll(broker, mine)
                view = self._upstream.view
        finally:
            self._polled.discard(broker)
        self._deal_out()

    async def _poll(self, broker: int, wanted: list[ef.FollowLog]) -> None:
        offsets = {(self._topic, each.shard): each.offset for each in wanted}
        try:
            told = await records.fetch(
                self._upstream,
                broker,
                offsets,
                max_wait_ms=WAIT_MS,
                portion=PORTION,
                purpose=FOLLOW,
                within_s=POLL_EXTRA_S,
            )
        except UpstreamError as error:
            await self._owner.refresh_leaders()
            for each in wanted:
                self._failed(each, str(error))
            return
        for each in wanted:
            await self._told(each, told.get((self._topic, each.shard)))

    async def _told(self, asked: ef.FollowLog, told: records.FetchedPortion | None) -> None:
        if told is None:
            self._failed(asked, "the answer leaves it out")
            return
        self._upstream.count("Fetch", told.code)
        if told.code:
            await self._owner.refresh_leaders()
        try:
            batches = await decode_batches(told.batches)
        except StorageError as error:
            self._failed(asked, str(error))
            return
        if self._is_over(asked):
            after = told.batches[-1].next_offset if told.batches else asked.offset
            self._owner.step(ev.LogFetched(asked.shard, asked.request, told.code, batches, after, told.start_offset))

    def _failed(self, asked: ef.FollowLog, why: str) -> None:
        if self._is_over(asked):
            self._owner.step(ev.RequestWithoutAnswer(asked.shard, asked.request, why))

    def _is_over(self, asked: ef.FollowLog) -> bool:
        """Whether it was wanted until now: what follows from it is wanted anew, and takes its place."""
        if self._wanted.get(asked.shard) is not asked:
            return False
        del self._wanted[asked.shard]
        return True
