"""What a consumer commits, and when: one commit after the other, so that a later one is never overtaken."""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence

from muster.client.config import ConsumerConfig
from muster.client.errors import ClientError, CommitFailed, IllegalState, Refused, refusal
from muster.client.membership.seam import OffsetStore
from muster.client.records.fetcher import ConsumerFetcher
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition

log = logging.getLogger("muster.client")

UNKNOWN_MEMBER_ID, STALE_MEMBER_EPOCH = 25, 113
NOT_A_MEMBER = "this consumer is not a member right now; poll, and commit what it owns then"
EPOCH_CHECK_S, EPOCH_CHECKS = 0.02, 150
"""How often, and how many times, to look whether a heartbeat has brought the epoch that a commit was missing."""

Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class ConsumerCommits:
    """`identity` says who commits (None: a simple consumer); `on_refused` hears what it means for the membership."""

    def __init__(
        self,
        store: OffsetStore | None,
        config: ConsumerConfig,
        fetcher: ConsumerFetcher,
        identity: Callable[[], GroupMetadata | None],
        on_refused: Callable[[Refused, int], None],
    ) -> None:
        self._store = store
        self._config = config
        self._fetcher = fetcher
        self._identity = identity
        self._on_refused = on_refused
        self._lock = asyncio.Lock()

    def to_commit(self, partitions: Iterable[TopicPartition] | None = None) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions that are done and not committed yet, of these partitions or of all."""
        chosen = self._fetcher.states if partitions is None else partitions
        states = [self._fetcher.states[tp] for tp in chosen if tp in self._fetcher.states]
        return {
            state.tp: OffsetAndMetadata(state.stored, leader_epoch=state.epoch_before(state.stored))
            for state in states
            if state.stored is not None and state.stored != state.committed
        }

    async def commit(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        """Commit exactly these, one commit after the other."""
        if self._store is None:
            raise IllegalState("commit() needs a group.id to commit for")
        if not offsets:
            return
        async with self._lock:
            while True:
                identity = self._identity()
                if identity is not None and identity.generation < 0:
                    # The group would take it for the commit of a simple consumer, if nobody else is a member.
                    raise refusal(UNKNOWN_MEMBER_ID, "UNKNOWN_MEMBER_ID", NOT_A_MEMBER, identity.group_id)
                try:
                    await self._store.commit(offsets, identity, timeout_ms)
                    break
                except Refused as error:
                    if identity is None:
                        raise
                    # No need to wait for the next heartbeat to learn the same.
                    self._on_refused(error, identity.generation)
                    if error.code != STALE_MEMBER_EPOCH or not await self._newer_epoch(identity):
                        raise
        self.were_committed(offsets)

    def were_committed(self, offsets: Offsets) -> None:
        """The group has these, whichever way it heard of them."""
        for tp, offset in offsets.items():
            if (state := self._fetcher.states.get(tp)) is not None:
                state.committed = offset.offset

    async def _newer_epoch(self, before: GroupMetadata) -> bool:
        """KIP-848: the member is still one, under a newer epoch that its next heartbeat brings; False if it is not."""
        for _ in range(EPOCH_CHECKS):
            identity = self._identity()
            if identity is None or identity.generation < 0:
                return False
            if identity.generation > before.generation:
                return True
            await asyncio.sleep(EPOCH_CHECK_S)
        return False

    async def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, OffsetAndMetadata | None]:
        if self._store is None:
            raise IllegalState("committed() needs a group.id to ask about")
        return await self._store.committed(partitions)

    async def commit_quietly(self, offsets: Offsets, timeout_ms: int | None = None) -> None:
        try:
            await self.commit(offsets, timeout_ms)
        except CommitFailed as error:
            # Nothing is lost: whoever owns the partitions next reads on from the last commit.
            log.info("automatic commit: %s", error)
        except ClientError as error:
            log.warning("automatic commit: %s", error)

    async def commit_now_and_then(self) -> None:
        while True:
            await asyncio.sleep(self._config.auto_commit_interval_ms / 1000)
            await self.commit_quietly(self.to_commit())
