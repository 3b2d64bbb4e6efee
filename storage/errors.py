"""Every refusal and failure of the log, with Kafka's numeric code, and the node's list of current troubles.

A message names the value, what was expected and what to do. Codes and names are those of Kafka's `Errors` table, so
that a listener can pass `error.code` on as it is. `StorageTroubles` keeps, by name, the newest sentence about each
thing that is wrong with a node's logs; a sentence is the error's own, so producers, readers and health checks get the
same words. Troubles may be reported from any thread. `MalformedRequest` is for requests that break their own shape.
"""

import errno
import threading
from collections.abc import Callable, Mapping
from typing import ClassVar, NamedTuple

from muster.storage.types import TopicPartition


class StorageError(Exception):
    """The log cannot do its work (disk, directory, an earlier failure); also the base of all below."""

    code: ClassVar[int] = 56
    name: ClassVar[str] = "KAFKA_STORAGE_ERROR"
    record_errors: tuple[tuple[int, str], ...] = ()
    """Of a refused batch the records at fault, by their place in it, and why; empty where it is the batch's own."""
    leader: int = -1
    leader_epoch: int = -1
    """Who leads the partition instead, or in which epoch by now, where that is known."""


class _RecordsAtFault(StorageError):
    def __init__(self, message: str, record_errors: tuple[tuple[int, str], ...] = ()) -> None:
        super().__init__(message)
        self.record_errors = record_errors


class LogFenced(StorageError):
    """What the log wrote is not to be trusted: it takes no appends until it is opened, and checked, again."""


class OffsetOutsideLog(StorageError):
    """The offset lies before the log's start or past its end."""

    code = 1
    name = "OFFSET_OUT_OF_RANGE"


class CorruptMessage(StorageError):
    """Bytes that are no intact record batch."""

    code = 2
    name = "CORRUPT_MESSAGE"


class LogDamaged(CorruptMessage):
    """Records known to be durable are gone or wrong on disk.

    `file`, `position` and `size` say which bytes cannot be read; `first_offset` and `last_offset`
    (exclusive; -1 when unknown) say which records they held.
    """

    def __init__(self, file: str, position: int, size: int, first_offset: int, last_offset: int, why: str) -> None:
        until = f"up to {last_offset}" if last_offset >= 0 else "up to an unknown offset"
        super().__init__(
            f"{file} is damaged at byte {position} ({size} bytes): {why}. Records from offset {first_offset} "
            f"{until} cannot be read. Restore the file from a copy, or stop the node and give up what "
            "cannot be read with 'muster log recover'."
        )
        self.file = file
        self.position = position
        self.size = size
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.why = why


class RecordsCut(StorageError):
    """Records that could be read were cut off at the start, for a batch before them could not be.

    `first_offset` is where the log ends now, `last_offset` the last of them.
    """

    def __init__(self, file: str, first_offset: int, last_offset: int, batches: int, records: int, why: str) -> None:
        super().__init__(
            f"{file} was cut off at offset {first_offset}, where a batch cannot be read ({why}). {records} records in "
            f"{batches} intact batches came behind it, up to offset {last_offset}: that is no write which was torn as "
            "a process was killed, but a loss of power or a damaged disk. Those that were acknowledged are lost, and "
            "their offsets are given anew; restore the topic from a copy where that matters."
        )
        self.first_offset, self.last_offset = first_offset, last_offset
        self.batches, self.records = batches, records


class UnknownTopicOrPartition(StorageError):
    """No such topic, or the topic has fewer partitions."""

    code = 3
    name = "UNKNOWN_TOPIC_OR_PARTITION"


class InvalidFetchSize(StorageError):
    """A fetch asked for a negative number of bytes."""

    code = 4
    name = "INVALID_FETCH_SIZE"


class NotLeaderOrFollower(StorageError):
    """The partition is another node's."""

    code = 6
    name = "NOT_LEADER_OR_FOLLOWER"

    def __init__(self, message: str, leader: int = -1, leader_epoch: int = -1) -> None:
        super().__init__(message)
        self.leader = leader
        self.leader_epoch = leader_epoch


class NotKnownYet(StorageError):
    """Another node is being asked. `wait`, for a thread, returns when it has answered, or has taken too long."""

    code = 6
    name = "NOT_LEADER_OR_FOLLOWER"

    def __init__(self, text: str, wait: Callable[[], None]) -> None:
        super().__init__(text)
        self.wait = wait


class RequestTimedOut(StorageError):
    """The records are written, but were not known to be durable in the time the client gave."""

    code = 7
    name = "REQUEST_TIMED_OUT"


class RecordBatchTooLarge(StorageError):
    """A batch is larger than the topic's max.message.bytes."""

    code = 10
    name = "MESSAGE_TOO_LARGE"


class InvalidTopicName(StorageError):
    """A topic's name breaks the rules, or clients may not write to it."""

    code = 17
    name = "INVALID_TOPIC_EXCEPTION"


class RecordListTooLarge(StorageError):
    """The batches of one append do not fit into one segment."""

    code = 18
    name = "RECORD_LIST_TOO_LARGE"


class NotEnoughReplicas(StorageError):
    """Fewer replicas are in sync than a produce with acks=all asks for; nothing is written."""

    code = 19
    name = "NOT_ENOUGH_REPLICAS"


class NotEnoughReplicasAfterAppend(StorageError):
    """The records are written, but fewer replicas are in sync by then than acks=all asks for."""

    code = 20
    name = "NOT_ENOUGH_REPLICAS_AFTER_APPEND"


class InvalidRequiredAcks(StorageError):
    """acks is none of -1, 0, 1."""

    code = 21
    name = "INVALID_REQUIRED_ACKS"


class InvalidTimestamp(_RecordsAtFault):
    """A record's timestamp is too far from the broker's clock."""

    code = 32
    name = "INVALID_TIMESTAMP"


class TopicAlreadyExists(StorageError):
    """The name is taken."""

    code = 36
    name = "TOPIC_ALREADY_EXISTS"


class InvalidPartitions(StorageError):
    """A number of partitions that cannot be."""

    code = 37
    name = "INVALID_PARTITIONS"


class InvalidReplicationFactor(StorageError):
    """More copies than there are nodes."""

    code = 38
    name = "INVALID_REPLICATION_FACTOR"


class InvalidConfig(StorageError):
    """An unknown setting or a value that it does not take."""

    code = 40
    name = "INVALID_CONFIG"


class InvalidRequest(StorageError):
    """A request that contradicts itself."""

    code = 42
    name = "INVALID_REQUEST"


class PolicyViolation(StorageError):
    """What the topic's cleanup.policy does not allow."""

    code = 44
    name = "POLICY_VIOLATION"


class OutOfOrderSequence(StorageError):
    """An idempotent producer skipped a sequence number."""

    code = 45
    name = "OUT_OF_ORDER_SEQUENCE_NUMBER"


class DuplicateSequence(StorageError):
    """A batch that is in the log already, where its old offset cannot be the answer."""

    code = 46
    name = "DUPLICATE_SEQUENCE_NUMBER"


class InvalidProducerEpoch(StorageError):
    """A producer with a newer epoch has taken over."""

    code = 47
    name = "INVALID_PRODUCER_EPOCH"


class InvalidTxnState(StorageError):
    """A transaction marker or a transactional batch where the log has no place for it."""

    code = 48
    name = "INVALID_TXN_STATE"


class InvalidProducerIdMapping(StorageError):
    """Not the producer of this transaction."""

    code = 49
    name = "INVALID_PRODUCER_ID_MAPPING"


class TransactionCoordinatorFenced(StorageError):
    """A marker from a transaction coordinator that has been replaced."""

    code = 52
    name = "TRANSACTION_COORDINATOR_FENCED"


class TransactionsNotCoordinated(StorageError):
    """This node coordinates no transactions. The code is one that every client takes as final."""

    code = 53
    name = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"


class FencedLeaderEpoch(StorageError):
    """The caller's leader epoch is older than the log's."""

    code = 74
    name = "FENCED_LEADER_EPOCH"

    def __init__(self, message: str, leader: int = -1, leader_epoch: int = -1) -> None:
        super().__init__(message)
        self.leader = leader
        self.leader_epoch = leader_epoch


class UnknownLeaderEpoch(StorageError):
    """The caller's leader epoch is newer than the log's."""

    code = 75
    name = "UNKNOWN_LEADER_EPOCH"


class UnsupportedCompressionType(StorageError):
    """A compression codec that is unknown, or whose library is not installed."""

    code = 76
    name = "UNSUPPORTED_COMPRESSION_TYPE"


class OffsetNotAvailable(StorageError):
    """A leader that is new does not know yet how far the records are committed."""

    code = 78
    name = "OFFSET_NOT_AVAILABLE"


class InvalidRecord(_RecordsAtFault):
    """An intact batch whose content the topic does not take."""

    code = 87
    name = "INVALID_RECORD"


class UnexpectedAppendOffset(StorageError):
    """A follower was given records whose offsets lie before its log's end."""

    code = 56
    name = "KAFKA_STORAGE_ERROR"


class DataDirectoryError(StorageError):
    """The data directory is unreadable, not ours, or in use by another process.

    `holder` is the process id of whoever holds it, where that is the reason.
    """

    def __init__(self, message: str, holder: int | None = None) -> None:
        super().__init__(message)
        self.holder = holder


# What is wrong with the logs of a node
# -------------------------------------

DISK_FULL = "disk-full"
_FULL = (errno.ENOSPC, errno.EDQUOT)


class StorageTrouble(NamedTuple):
    """One trouble: "disk-full", or "<kind>:<topic>-<partition>"."""

    name: str
    sentence: str
    times: int
    """How often it was met."""
    passing: bool
    """Whether it is over when it is not met again; else it lasts until a restart, or until the topic goes."""
    wanted: int = 0
    """How many bytes found no room."""


class StorageTroubles:
    """Those of one node: for each name the newest sentence."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._known: dict[str, StorageTrouble] = {}
        self._damages: dict[TopicPartition, str] = {}

    def current(self) -> tuple[StorageTrouble, ...]:
        with self._lock:
            return tuple(self._known.values())

    def fenced(self, tp: TopicPartition, error: Exception) -> None:
        """The log takes no appends until it is opened again."""
        self._report(_name("log-fenced", tp), error)

    def damaged(self, tp: TopicPartition, error: Exception) -> None:
        """Records that were durable cannot be read."""
        self._report(_name("log-damaged", tp), error)
        with self._lock:
            self._damages[tp] = str(error)

    def damages(self) -> Mapping[TopicPartition, str]:
        """Logs with records that were durable and cannot be read: which, in a sentence."""
        with self._lock:
            return dict(self._damages)

    def cut(self, tp: TopicPartition, loss: Exception) -> None:
        """Records that may have been acknowledged were cut off at the start."""
        self._report(_name("log-cut", tp), loss)

    def gone(self, tp: TopicPartition, error: Exception) -> None:
        """The partition's directory is not there, or not its own."""
        self._report(_name("log-gone", tp), error)

    def refused(self, tp: TopicPartition, refusal: Exception, cause: OSError, size: int = 0) -> None:
        """The system would not write or read (so many bytes); what was asked for may be asked for again."""
        name = DISK_FULL if cause.errno in _FULL else _name("log-io", tp)
        self._report(name, refusal, passing=True, wanted=size)

    def forget(self, tp: TopicPartition) -> None:
        """The partition has been removed."""
        with self._lock:
            self._known = {name: each for name, each in self._known.items() if not name.endswith(_name("", tp))}
            self._damages.pop(tp, None)

    def _report(self, name: str, error: Exception, *, passing: bool = False, wanted: int = 0) -> None:
        with self._lock:
            before = self._known.get(name)
            self._known[name] = StorageTrouble(name, str(error), before.times + 1 if before else 1, passing, wanted)


def _name(kind: str, tp: TopicPartition) -> str:
    return f"{kind}:{tp[0]}-{tp[1]}"


# Malformed requests
# ------------------

MAX_ENTRIES = 100_000
"""Of any list in one request, here as at every other door of a node."""


class MalformedRequest(Exception):
    """The request breaks its own shape; the text says how, and what was expected."""


def check_entry_count(what: str, count: int) -> None:
    if count > MAX_ENTRIES:
        raise MalformedRequest(f"The request names {count} {what}; at most {MAX_ENTRIES} are taken. Split it.")


def check_unique(what: str, names: list[str] | list[tuple[str, int]]) -> None:
    seen: set[object] = set()
    for name in names:
        if name in seen:
            raise MalformedRequest(f"The request names {what} {name} twice; expected each once.")
        seen.add(name)
