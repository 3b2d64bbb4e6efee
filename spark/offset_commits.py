"""Commits what Spark has read: after batch jobs, and for the last batch of a stream.

A stream's driver commits each batch that Spark confirms. The last batch of a query that ends is never confirmed to a
source; `OffsetCommitter` learns of it from Spark's progress reports.
"""

import json
import logging
import threading
from collections.abc import Mapping
from concurrent.futures import Future
from typing import Any

from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.config import ClientConfig, load
from muster.client.errors import ClientError, ConfigError, Refused
from muster.client.twins import shared_loop
from muster.client.types import GroupMetadata, OffsetAndMetadata, TopicPartition
from muster.spark.lookup import LookupKey, NodeLookup
from muster.spark.options import check_read_options
from muster.spark.read_options import OptionError, ReadOptions
from muster.spark.stream_offsets import MARKER, OffsetError, StreamOffset, find_positions_ahead, parse_offset

log = logging.getLogger("muster.spark")

ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, FENCED, STALE_EPOCH = 22, 25, 27, 82, 113
NOT_AS_THIS_MEMBER = frozenset({ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING, FENCED, STALE_EPOCH})
FIRST_WAIT_S, LONGEST_WAIT_S = 0.1, 5.0
ENDINGS = ("endingoffsets", "endingtimestamp", "endingoffsetsbytimestamp")
STARTINGS = (
    "startingoffsets",
    "startingtimestamp",
    "startingoffsetsbytimestamp",
    "startingoffsetsbytimestampstrategy",
    "startingoffsetsfallback",
)
SOURCES = ("subscribe", "subscribepattern", "assign")


# Batch jobs


def pin_batch(options: Mapping[str, str]) -> dict[str, str]:
    """The same read with its bounds settled now: options whose partitions, starting and ending offsets are explicit.

    A batch query settles its bounds when it is planned and tells nobody, so a job that wants to commit them, or to run
    the same query twice, has to know them before. Raises OptionError, without a group.id too: what nobody can commit is
    told before the job and not after it, or for an end that is before its start. And what a node can refuse.
    """
    known = check_has_group("pin_batch", options)
    lookup = NodeLookup(known)
    try:
        starts, ends = lookup.run(lookup.span())
    finally:
        lookup.close()
    settled = {*ENDINGS, *STARTINGS, *SOURCES}
    kept = {name: value for name, value in options.items() if name.lower() not in settled}
    partitions: dict[str, list[int]] = {}
    for topic, number in sorted(ends):
        partitions.setdefault(topic, []).append(number)
    return {
        **kept,
        "assign": json.dumps(partitions),
        "startingOffsets": encode_positions(starts),
        "endingOffsets": encode_positions(ends),
    }


def check_has_group(who: str, options: Mapping[str, str]) -> ReadOptions:
    known = check_read_options(options, streaming=False)
    if known.group_id is None:
        raise OptionError(
            f"{who} needs a group.id, the group whose progress a batch job commits; a read that commits nothing needs "
            "no pinning: give it startingOffsets and endingOffsets as JSON"
        )
    return known


def commit_batch(options: Mapping[str, str]) -> dict[LookupKey, int]:
    """Commit the ending offsets of a pinned read to its group, and return them. Call it when the job's output is safe.

    `options` are those of `pin_batch`, with the group.id. The group must have no members: they commit for themselves.
    Raises OptionError for offsets behind the end of a log, and for such as would take the group back.
    """
    known = check_has_group("commit_batch", options)
    ends = {(topic, number): at for topic, row in known.ending.offsets.items() for number, at in row.items()}
    if not ends or min(ends.values()) < 0:
        raise OptionError(
            "commit_batch needs the endingOffsets that were read, as JSON with a number for each partition; "
            "take the options of pin_batch for the read and for this"
        )
    lookup = NodeLookup(known)
    try:
        assert lookup.group is not None, "the options name a group"
        lookup.run(check_ends(lookup, known, ends))
        lookup.run(commit_without_membership(lookup.group, ends))
    finally:
        lookup.close()
    return ends


async def check_ends(lookup: NodeLookup, options: ReadOptions, ends: Mapping[LookupKey, int]) -> None:
    """Raise OptionError unless every log reaches that far and the group is not further on."""
    bounds = await lookup.bounds(ends)
    committed = await lookup.committed(ends)
    for tp, end in sorted(ends.items()):
        what = f"endingOffsets: {tp[0]}-{tp[1]} has {end}"
        if end > bounds[tp].end:
            raise OptionError(f"{what}, but the log ends at {bounds[tp].end}; take the options that pin_batch gave")
        if end < committed.get(tp, 0):
            raise OptionError(
                f"{what}, but group {options.group_id!r} has committed {committed[tp]}; commit_batch takes no group "
                "back, muster groups reset-offsets does"
            )


async def commit_without_membership(calls: GroupCalls, positions: Mapping[LookupKey, int]) -> None:
    try:
        await calls.commit(decode_positions(positions), None)
    except Refused as error:
        if error.code != UNKNOWN_MEMBER:
            raise
        raise ConfigError(
            f"group {calls.group_id!r} has members, who commit for themselves; stop them, or use another group.id"
        ) from None


def encode_positions(positions: Mapping[LookupKey, int]) -> str:
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(positions.items()):
        topics.setdefault(topic, {})[str(number)] = offset
    return json.dumps(topics)


def decode_positions(positions: Mapping[LookupKey, int]) -> dict[TopicPartition, OffsetAndMetadata]:
    return {TopicPartition(*tp): OffsetAndMetadata(offset) for tp, offset in positions.items()}


# Streams


class OffsetCommitter(StreamingQueryListener):
    """Commits the end of every batch that Spark reports as done, the last one too, for queries with a group.id.

        committer = OffsetCommitter(spark)
        query.awaitTermination()
        committer.flush(query)

    Reports arrive a moment after a query has ended; `flush` waits for them. Queries of other sources and without a
    group are left alone. A commit never takes a group back.
    """

    def __init__(self, spark: Any, **properties: Any) -> None:
        """`properties` are of the client, such as `request_timeout_ms`. Raises ConfigError."""
        load(ClientConfig, {}, properties)
        self._spark = spark
        self._properties = properties
        self._loop = shared_loop()
        self._changed = threading.Condition()
        self._ended: set[str] = set()
        self._pending: dict[tuple[str, str, str], StreamOffset] = {}
        self._closing = threading.Event()
        self._failure: Exception | None = None
        self._transports: dict[str, Transport] = {}
        self._thread = threading.Thread(target=self._commit_all, name="muster-offsets", daemon=True)
        self._thread.start()
        spark.streams.addListener(self)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Nothing is read yet."""

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Nothing is new."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        for source in event.progress.sources:
            offset = parse_group_offset(source.endOffset)
            if offset is not None:
                with self._changed:
                    # Only the newest counts, so this never holds more than one entry per query and group.
                    self._pending[str(event.progress.id), offset.servers, offset.group] = offset
                    self._changed.notify_all()

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        with self._changed:
            self._ended.add(str(event.runId))
            self._changed.notify_all()

    def flush(self, query: Any = None, timeout_s: float = 60.0) -> None:
        """Wait until all that was reported is committed; with `query` also until its end has been reported.

        Raises TimeoutError naming what is missing, and what the last attempt failed with.
        """
        run = None if query is None else str(query.runId)

        def settled() -> bool:
            return not self._pending and (run is None or run in self._ended)

        with self._changed:
            if self._changed.wait_for(settled, timeout_s):
                return
            groups = sorted({group for _, _, group in self._pending})
        what = f"offsets of {', '.join(map(repr, groups))} are not committed" if groups else "the query has not ended"
        because = f" ({self._failure})" if self._failure is not None else ""
        raise TimeoutError(f"after {timeout_s:g} s {what}{because}; stop the query, or look at its group's members")

    def close(self) -> None:
        """Stop listening. What is not committed yet stays so; `flush` first."""
        self._spark.streams.removeListener(self)
        self._closing.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join()
        transports, self._transports = self._transports, {}
        for transport in transports.values():
            self._loop.run(transport.close())

    def _commit_all(self) -> None:
        wait_s = FIRST_WAIT_S
        while not self._closing.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._pending or self._closing.is_set())
                waiting = dict(self._pending)
            done = [key for key, offset in waiting.items() if self._committed(offset)]
            for key in done:
                self._forget(key, waiting[key])
            wait_s = FIRST_WAIT_S if done else min(2 * wait_s, LONGEST_WAIT_S)
            if self._pending:
                self._closing.wait(wait_s)

    def _forget(self, key: tuple[str, str, str], offset: StreamOffset) -> None:
        with self._changed:
            if self._pending.get(key) == offset:
                del self._pending[key]
            self._changed.notify_all()

    def _committed(self, offset: StreamOffset) -> bool:
        try:
            future: Future[bool] = self._loop.submit(commit_reported(self._calls(offset), offset))
            return future.result()
        except ClientError as error:
            log.warning("offsets of group %r are not committed yet: %s", offset.group, error)
            self._failure = error
            return False
        except Exception as error:  # the offsets of other groups do not wait for it
            log.error("offsets of group %r cannot be committed", offset.group, exc_info=error)
            self._failure = error
            return False

    def _calls(self, offset: StreamOffset) -> GroupCalls:
        if offset.servers not in self._transports:
            config = load(ClientConfig, {"bootstrap.servers": offset.servers}, self._properties)
            self._transports[offset.servers] = Transport(config)
        return GroupCalls(self._transports[offset.servers], offset.group)


def parse_group_offset(text: str | None) -> StreamOffset | None:
    """The offset of a source of ours that is in a group; None for any other."""
    try:
        read = json.loads(text or "null")
        offset = parse_offset(read) if isinstance(read, dict) and MARKER in read else None
    except (ValueError, OffsetError):
        return None
    return offset if offset is not None and offset.group else None


async def commit_reported(calls: GroupCalls, offset: StreamOffset) -> bool:
    """Commit as the member that read it; when that is gone, as nobody, which a group without members allows."""
    committed = await calls.committed([TopicPartition(*tp) for tp in offset.partitions])
    known = {(tp.topic, tp.partition): entry.offset for tp, entry in committed.items() if entry is not None}
    fresh = {
        # What the drivers noted stays: see `muster.spark.group_stream`.
        tp: entry._replace(metadata=before.metadata) if (before := committed.get(tp)) is not None else entry
        for tp, entry in decode_positions(find_positions_ahead(offset, known)).items()
    }
    if not fresh:
        return True
    member = GroupMetadata(offset.group, offset.generation, offset.member, None)
    for identity in (member, None) if offset.member else (None,):
        try:
            await calls.commit(fresh, identity)
            return True
        except Refused as error:
            if error.code not in NOT_AS_THIS_MEMBER:
                raise
    return False
