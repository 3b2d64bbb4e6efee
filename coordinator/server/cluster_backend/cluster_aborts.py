"""`__aborts` of a cluster: one partition, which one node leads; every node writes and reads it there.

A node that has a copy of it reads that, as far as it is committed; any other one asks the leader. So what one
coordinator noted is known to the next one of the id (TX-E1, TX-N7).
"""

from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import structlog

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.replica_manager import ReplicaManager
from muster.coordinator.replication.io.wire.node_api import AbortRecord, AbortsQuery, AbortValues
from muster.coordinator.replication.io.wire.node_links import LinkError, NodeLinks
from muster.coordinator.replication.protocol.cluster_metadata import ABORTS, NO_NODE_ID, TopicPartition
from muster.coordinator.runtime.abort_records import AbortEntry, decode_abort, encode_abort
from muster.coordinator.server.transactions.abort_journal import AbortReader, aborts_topic, append_aborts
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import LogRequests, NewTopic
from muster.storage.errors import StorageError, TopicAlreadyExists

log = structlog.get_logger("muster.transactions")

PLACE: Final = TopicPartition(ABORTS, 0)

MOST_TAKEN: Final = 1_000
"""Entries of one request."""
MOST_BYTES: Final = 4 << 20
"""Of the entries of one request."""
MOST_READ: Final = 100
"""Entries of one answer."""
WRITE_S: Final = 5.0
READ_S: Final = 2.0

Appended = Callable[[TopicPartition, int], Awaitable[ErrorCode]]
"""Waits until the log is committed up to an offset; see `ReplicaManager.appended`."""


class ClusterAbortLog:
    """See `AbortLog`. What other nodes ask of it is `append` and `read`."""

    def __init__(
        self,
        disk: Broker,
        side: ReplicaManager,
        links: NodeLinks,
        requests: Callable[[], LogRequests],
        replication_factor: int,
        clock_ms: Callable[[], int],
    ) -> None:
        """disk: this node's copies. links: to other nodes, of its own: what waits holds up what is asked behind it.
        replication_factor: of the topic, which is made with the first entry."""
        self._disk = disk
        self._side = side
        self._links = links
        self._requests = requests
        self._replication_factor = replication_factor
        self._clock_ms = clock_ms
        self._reader = AbortReader(disk)

    def close(self) -> None:
        self._links.close()

    async def write(self, entries: Sequence[AbortEntry]) -> None:
        """Raises StorageError, OSError: the entries may be there all the same."""
        if ABORTS not in self._side.image.topics:
            await self._make_topic()
        records = tuple(AbortRecord(key, value or b"") for key, value, _ in map(encode_abort, entries))
        leader = self._leader()
        try:
            if leader == self._side.replicas.me:
                code = await self.append(records)
            elif leader == NO_NODE_ID:
                code = ErrorCode.LEADER_NOT_AVAILABLE
            else:
                code = await (await self._links.to(leader)).note_aborts(records, deadline_s=WRITE_S)
        except LinkError as error:
            raise OSError(f"node {leader}, which leads {PLACE}, takes none: {error}") from error
        if code is not ErrorCode.NONE:
            raise OSError(f"the leader of {PLACE} (node {leader}) answers {code.name}: {code.meaning}")

    async def read_latest(self, transactional_id: str, most: int) -> list[AbortEntry]:
        """Raises StorageError, OSError."""
        if ABORTS not in self._side.image.topics:
            return []
        if self._has_copy():
            return await self._reader.read_latest(transactional_id, most)
        leader = self._leader()
        if leader in (NO_NODE_ID, self._side.replicas.me):
            raise OSError(f"no node leads {PLACE} at present")
        try:
            link = await self._links.to(leader)
            read = await link.read_aborts(AbortsQuery(transactional_id, most), deadline_s=READ_S)
        except LinkError as error:
            raise OSError(f"node {leader}, which leads {PLACE}, does not answer: {error}") from error
        if read.error is not ErrorCode.NONE:
            raise OSError(f"the leader of {PLACE} (node {leader}) answers {read.error.name}: {read.error.meaning}")
        return [entry for value in read.values if (entry := decode_abort(value)) is not None]

    # -- what other nodes ask -----------------------------------------------------------------------------------

    async def append(self, records: Sequence[AbortRecord]) -> ErrorCode:
        """Into the log here, if this node leads it; NONE once they are committed."""
        led = self._side.replicas.led.get(PLACE)
        if led is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        size = sum(len(each.key) + len(each.value) for each in records)
        if not 0 < len(records) <= MOST_TAKEN or size > MOST_BYTES:
            return ErrorCode.INVALID_REQUEST
        if (refused := led.leader.may_append(-1)) is not ErrorCode.NONE:
            return refused
        try:
            append_aborts(self._disk, [(each.key, each.value, -1) for each in records], self._clock_ms())
        except StorageError as error:
            log.warning("aborts of transactions were not noted", entries=len(records), why=str(error))
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return await self._side.appended(PLACE, self._disk.end_offset(*PLACE))

    async def read(self, asked: AbortsQuery) -> AbortValues:
        """What is committed, if this node leads it."""
        if PLACE not in self._side.replicas.led:
            return AbortValues(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        try:
            found = await self._reader.read_latest(asked.transactional_id, max(0, min(asked.most, MOST_READ)))
        except (StorageError, OSError) as error:
            log.warning("aborts of transactions cannot be read here", why=str(error))
            return AbortValues(ErrorCode.UNKNOWN_SERVER_ERROR)
        return AbortValues(values=tuple(encode_abort(entry)[1] or b"" for entry in found))

    # -- where it is --------------------------------------------------------------------------------------------

    def _leader(self) -> int:
        view = self._side.image.partition(PLACE)
        return NO_NODE_ID if view is None else view.leader

    def _has_copy(self) -> bool:
        """Whether this node has all that is committed, but for the last moment."""
        view = self._side.image.partition(PLACE)
        return view is not None and self._side.replicas.me in view.isr

    async def _make_topic(self) -> None:
        """Whichever node has the first entry. Raises StorageError."""
        wanted: NewTopic = aborts_topic()
        (made,) = await self._requests().topics.create([wanted._replace(replication_factor=self._replication_factor)])
        if isinstance(made, StorageError) and not isinstance(made, TopicAlreadyExists):
            raise made
