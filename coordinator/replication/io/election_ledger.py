"""The ledger of elections, `__elections`: which node leads what since when and why, and what unclean elections cost.

Records are JSON with the unit's name as the key. An election is {"unit": "orders-3", "epoch": 8, "from": 1, "to": 2,
"clean": "isr", "cause": ..., "isr": [2, 3], "elr": [], "decided_ms": ..., "took_ms": ...}, decided_ms in epoch
milliseconds; what a follower cut off is {"unit": "orders-3", "lost": {"node": 1, "from": 120, "to": 133, "records":
13, "epochs": [7]}}.

Nothing waits for the ledger: a cluster elects whether or not it can be written. What cannot be sent to its leader
waits, at most 10,000 records; then the oldest are dropped and counted. A record is made when it is sent.
"""

import asyncio
import json
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from typing import Annotated, Any, Final, NamedTuple

import structlog
from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from muster.coordinator.edge.background_tasks import SupervisedTasks, TaskFailed
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.wire.node_api import ElectionEntry
from muster.coordinator.replication.io.wire.node_links import LinkError, NodeLinks
from muster.coordinator.replication.protocol.cluster_metadata import (
    ELECTIONS,
    LEDGER,
    NO_NODE_ID,
    OFFSETS,
    ClusterImage,
    TopicPartition,
    halves_of,
)
from muster.coordinator.replication.protocol.controller.events_and_effects import ElectionKind, ElectionNote
from muster.coordinator.replication.protocol.follower import TruncatedRecords
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas
from muster.storage.broker.broker import Broker
from muster.storage.errors import StorageError
from muster.storage.records.batch import decode_records, encode_turn
from muster.storage.types import AppendOrigin

# Records of `__elections`
# ------------------------

LOST: Final = b'"lost"'
"""In every record of what was cut."""

MOST_CAUSE: Final = 500
"""Characters of a cause; what is longer is cut."""

Integer = Annotated[int, Field(strict=True)]


class ElectionRecord(BaseModel):
    """One record: somebody leads a unit, or nobody does (-1)."""

    model_config = ConfigDict(frozen=True)

    unit: str
    epoch: Integer
    before: Integer = Field(alias="from")
    after: Integer = Field(alias="to")
    clean: str
    cause: str
    isr: tuple[Integer, ...] = ()
    elr: tuple[Integer, ...] = ()
    decided_ms: Integer
    took_ms: Integer


class LossRecord(BaseModel):
    """One record: what a node cut off, because an unclean election came after it was written."""

    model_config = ConfigDict(frozen=True)

    unit: str
    epoch: Integer
    node: Integer = Field(validation_alias=AliasPath("lost", "node"))
    start: Integer = Field(validation_alias=AliasPath("lost", "from"))
    end: Integer = Field(validation_alias=AliasPath("lost", "to"))
    records: Integer = Field(validation_alias=AliasPath("lost", "records"))
    epochs: tuple[Integer, ...] = Field(validation_alias=AliasPath("lost", "epochs"))


class ElectionReport(NamedTuple):
    """An election, and what it cost as far as it is known."""

    election: ElectionRecord
    lost: tuple[LossRecord, ...] = ()


def election_record(note: ElectionNote, decided_ms: int) -> ElectionEntry:
    """decided_ms: on the wall's clock."""
    unit = str(note.unit)
    value = {
        "unit": unit,
        "epoch": note.epoch,
        "from": note.before,
        "to": note.after,
        "clean": note.clean.value,
        "cause": note.cause[:MOST_CAUSE],
        "isr": note.isr,
        "elr": note.elr,
        "decided_ms": decided_ms,
        "took_ms": note.took_ms,
    }
    return ElectionEntry(unit.encode(), as_json(value))


def loss_record(node: int, undone: TruncatedRecords) -> ElectionEntry:
    unit = str(undone.place)
    lost = {
        "node": node,
        "from": undone.start,
        "to": undone.end,
        "records": undone.end - undone.start,
        "epochs": undone.epochs,
    }
    return ElectionEntry(unit.encode(), as_json({"unit": unit, "epoch": undone.elected, "lost": lost}))


def as_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def parse_election_record(value: bytes | None) -> ElectionRecord | LossRecord | None:
    """What a record says; None where it is none of ours, or of a later version."""
    try:
        document = json.loads(value or b"null")
        if not isinstance(document, dict):
            return None
        return (LossRecord if "lost" in document else ElectionRecord).model_validate(document)
    except (ValueError, ValidationError):
        return None


def report_elections(values: Iterable[bytes | None], topic: str = "") -> list[ElectionReport]:
    """The elections among records in their order, the youngest first; of one topic only, where it is named."""
    found: dict[tuple[str, int], ElectionRecord] = {}
    lost: dict[LossRecord, None] = {}
    for value in values:
        match parse_election_record(value):
            case ElectionRecord() as election if not topic or topic_of_unit(election.unit) == topic:
                found.setdefault((election.unit, election.epoch), election)
            case LossRecord() as each:
                lost[each] = None
    costs: dict[tuple[str, int], list[LossRecord]] = {}
    for each in lost:
        costs.setdefault((unit_name_of(each.unit), each.epoch), []).append(each)
    return [ElectionReport(one, tuple(costs.get(key, ()))) for key, one in reversed(found.items())]


def election_cost(values: Iterable[bytes | None], unit: TopicPartition, epoch: int) -> int:
    """How many records an unclean election of a unit cost, by what nodes told that cut them: of each of its partitions
    (a shard has two) as many as the one that cut most."""
    most = dict.fromkeys(map(str, halves_of(unit)), 0)
    for value in values:
        lost = parse_election_record(value) if value is not None and LOST in value else None
        if isinstance(lost, LossRecord) and lost.epoch == epoch and lost.unit in most:
            most[lost.unit] = max(most[lost.unit], lost.records)
    return sum(most.values())


def unit_name_of(partition: str) -> str:
    """The unit by whose name elections of a partition are told.

    >>> unit_name_of("__rebalances-7"), unit_name_of("orders-eu-3")
    ('__consumer_offsets-7', 'orders-eu-3')
    """
    return partition if topic_of_unit(partition) != LEDGER else f"{OFFSETS}-{partition.rpartition('-')[2]}"


def topic_of_unit(unit: str) -> str:
    """
    >>> topic_of_unit("orders-eu-3")
    'orders-eu'
    """
    return unit.rpartition("-")[0]


# The ledger of one node
# ----------------------

PLACE: Final = TopicPartition(ELECTIONS, 0)

MAX_WAITING: Final = 10_000
"""Elections, and cuts. Who leads the ledger may have died with the leader of thousands of partitions."""
MAX_SENT_AT_ONCE: Final = 100
"""Records that go in one request, and in one batch."""
MAX_TAKEN: Final = 1_000
"""Of one request."""

RETRY_S: Final = 0.5
DEADLINE_S: Final = 5.0

READ_BYTES: Final = 1 << 20
MAX_READ: Final = 100_000
"""Records that one question may look at: most elections are of no interest to somebody who asks for one topic's."""

log = structlog.get_logger("muster.replication")


@dataclass(slots=True)
class ElectionCounts:
    """Since this node began. elections: those that it decided as controller; unclean: of these, those that may have
    cost records; took_ms: all of them together. dropped: records that the ledger never got. undone: records that
    unclean elections cost this node's copies."""

    elections: int = 0
    unclean: int = 0
    took_ms: int = 0
    dropped: int = 0
    undone: int = 0


class DatedElection(NamedTuple):
    """An election that waits. decided_ms: by the wall's clock."""

    note: ElectionNote
    decided_ms: int


class ElectionLedger:
    """Made in the loop it lives in; `start`, `stop`."""

    def __init__(
        self,
        broker: Broker,
        replicas: NodeReplicas,
        image: ClusterImage,
        links: NodeLinks,
        *,
        appended: Callable[[TopicPartition, int], Awaitable[ErrorCode]],
        now_ms: Callable[[], int],
        wall_ms: Callable[[], int],
        failed: TaskFailed,
    ) -> None:
        """appended: see `ReplicaManager.appended`. now_ms: the clock of notes; wall_ms: that of people."""
        self.counted = ElectionCounts()
        self._broker = broker
        self._replicas = replicas
        self._image = image
        self._links = links
        self._appended = appended
        self._now_ms = now_ms
        self._wall_ms = wall_ms
        self._waiting: deque[DatedElection | TruncatedRecords] = deque()
        self._more = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._tasks = SupervisedTasks(failed)
        self._unread = ""
        """Why the copy here could not be read, the last time."""

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    def start(self) -> None:
        self._tasks.start(self._send())

    async def sent(self, patience_s: float) -> None:
        """Wait until nothing waits, or so long: whoever stops in order has just decided who leads what it led."""
        with suppress(TimeoutError):
            async with asyncio.timeout(patience_s):
                await self._idle.wait()

    def stop(self) -> None:
        """What waits is dropped."""
        self._tasks.stop()
        self._links.close()

    def note(self, note: ElectionNote) -> None:
        """An election that this node decided as controller was written."""
        self.counted.elections += 1
        self.counted.took_ms += note.took_ms
        self.counted.unclean += note.clean in (ElectionKind.UNCLEAN, ElectionKind.LAST_KNOWN)
        self._wait_for(DatedElection(note, self._wall_ms() - (self._now_ms() - note.decided_ms)))

    def undone(self, undone: TruncatedRecords) -> None:
        """This node's copy was cut, because an unclean election came after what is gone was written."""
        log.warning(
            "an unclean election lost records",
            partition=str(undone.place),
            start=undone.start,
            end=undone.end,
            epochs=list(undone.epochs),
            elected=undone.elected,
        )
        self.counted.undone += undone.end - undone.start
        self._wait_for(undone)

    async def append(self, records: tuple[ElectionEntry, ...]) -> ErrorCode:
        """Into the log here, if this node leads it; NONE once they are committed."""
        led = self._replicas.led.get(PLACE)
        if led is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if not 0 < len(records) <= MAX_TAKEN:
            return ErrorCode.INVALID_REQUEST
        if (refused := led.leader.may_append(-1)) is not ErrorCode.NONE:
            return refused
        now_ms = self._wall_ms()
        try:
            batch = encode_turn([(each.key, each.value, None) for each in records], now_ms)
            self._broker.append(*PLACE, batch, now_ms, origin=AppendOrigin.COORDINATOR)
            end = self._broker.end_offset(*PLACE)
        except StorageError as error:
            log.warning("elections not recorded", error=str(error))
            return ErrorCode.UNKNOWN_SERVER_ERROR
        return await self._appended(PLACE, end)

    @property
    def here(self) -> bool:
        """Whether this node has a copy of the ledger."""
        return PLACE in self._replicas.led or PLACE in self._replicas.copies

    async def explain(self, limit: int, topic: str = "") -> list[ElectionReport]:
        """The last elections, the youngest first, as far as they are committed and known here. Raises StorageError."""
        return await asyncio.to_thread(self._explain, limit, topic) if self.here else []

    async def cost(self, unit: TopicPartition, epoch: int) -> int:
        """Records that replicas of a unit cut because of the unclean election that began that epoch, as far as is known
        here; none where the copy here cannot be read. What several nodes cut is one loss."""
        try:
            records = await asyncio.to_thread(self._cost, unit, epoch) if self.here else 0
        except StorageError as error:
            if self._unread != str(error):
                log.warning("losses of unclean elections cannot be read here", error=str(error))
            self._unread = str(error)
            return 0
        self._unread = ""
        return records

    def _wait_for(self, news: DatedElection | TruncatedRecords) -> None:
        if len(self._waiting) >= MAX_WAITING:
            self._waiting.popleft()
            self.counted.dropped += 1
        self._waiting.append(news)
        self._idle.clear()
        self._more.set()

    async def _send(self) -> None:
        while True:
            self._more.clear()
            while self._waiting:
                some = tuple(islice(self._waiting, MAX_SENT_AT_ONCE))
                if await self._sent(tuple(map(self._record, some))) is not ErrorCode.NONE:
                    await asyncio.sleep(RETRY_S)
                    continue
                # Meanwhile the oldest may have been dropped.
                sent = set(map(id, some))
                while self._waiting and id(self._waiting[0]) in sent:
                    self._waiting.popleft()
            self._idle.set()
            await self._more.wait()

    def _record(self, news: DatedElection | TruncatedRecords) -> ElectionEntry:
        return election_record(*news) if isinstance(news, DatedElection) else loss_record(self._replicas.me, news)

    async def _sent(self, records: tuple[ElectionEntry, ...]) -> ErrorCode:
        view = self._image.partition(PLACE)
        if view is None or view.leader == NO_NODE_ID:
            return ErrorCode.LEADER_NOT_AVAILABLE
        if view.leader == self._replicas.me:
            return await self.append(records)
        try:
            link = await self._links.to(view.leader)
            return await link.note(records, deadline_s=DEADLINE_S)
        except LinkError as error:
            log.debug("elections are reported again", why=str(error))
            return ErrorCode.REQUEST_TIMED_OUT

    def _explain(self, limit: int, topic: str) -> list[ElectionReport]:
        """In a thread. From the end backwards, further each time, until there are enough."""
        start, end = self._broker.start_offset(*PLACE), self._broker.high_watermark(*PLACE)
        count = 2 * limit
        while True:
            begin = max(start, end - count)
            found = report_elections(self._values(begin, end), topic)
            if len(found) >= limit or begin == start or count >= MAX_READ:
                return found[:limit]
            count = min(4 * count, MAX_READ)

    def _cost(self, unit: TopicPartition, epoch: int) -> int:
        """In a thread."""
        start, end = self._broker.start_offset(*PLACE), self._broker.high_watermark(*PLACE)
        return election_cost(self._values(max(start, end - MAX_READ), end), unit, epoch)

    def _values(self, offset: int, end: int) -> list[bytes | None]:
        values: list[bytes | None] = []
        while offset < end:
            fetched = self._broker.fetch(*PLACE, offset, READ_BYTES)
            records = list(decode_records(fetched.records, offset))
            if not records:
                break
            values += [each.value for each in records]
            offset = records[-1].offset + 1
        return values
