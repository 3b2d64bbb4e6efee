"""Assignments of many members as ConsumerProtocol bytes, laid out together."""

from __future__ import annotations

import struct
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from muster.assignors.data.axis import Axis
from muster.assignors.data.columns import OwnerTable
from muster.assignors.data.consumer_protocol import MAX_STRING_BYTES, encode_assignment

Bytes: TypeAlias = NDArray[np.uint8]


class EncodedTopicNames:
    """Topic names as they stand in a blob: length in two bytes, then the name; padded to one width."""

    def __init__(self, axis: Axis) -> None:
        self.axis = axis
        encoded = [topic.encode("utf-8", "surrogatepass") for topic in axis.topics]
        raw = [struct.pack(">h", min(len(name), MAX_STRING_BYTES)) + name for name in encoded]
        self.size = np.array([len(name) for name in raw] or [2], dtype=np.int64)
        self.width = int(self.size.max())
        padded = b"".join(name.ljust(self.width, b"\0") for name in raw) or bytes(self.width)
        self.bytes: Bytes = np.frombuffer(padded, dtype=np.uint8).reshape(-1, self.width)
        self.beyond = np.arange(self.width) >= self.size[:, None]
        self.number = {name: index for index, name in enumerate(raw)}

    @cached_property
    def same_size(self) -> bool:
        return bool((self.size == self.width).all())


def encode_shares(table: OwnerTable, version: int) -> dict[str, bytes]:
    """Each member's assignment as bytes."""
    axis, members = table.columns.axis, table.columns.members
    frame = encode_assignment({}, None, version)  # version, no topics, no user data
    order, start = table.index
    given = order[start[0] :]
    topic = axis.topic_of[given]
    lengths = np.diff(start)
    who = np.repeat(np.arange(len(members), dtype=np.int32), lengths)
    names = EncodedTopicNames(axis)
    head = np.ones(len(given), dtype=np.bool_)  # where an entry (member, topic) begins
    head[1:] = (topic[1:] != topic[:-1]) | (who[1:] != who[:-1])
    single = np.bincount(who[~head], minlength=len(members)) == 0  # one partition of each topic
    out: dict[str, bytes] = {}
    if names.same_size and single.any():
        body = _single_rows(axis, names, given, topic).data
        size = names.width + 8
        for number in np.flatnonzero(single).tolist():
            begin, end = int(start[number] - start[0]), int(start[number + 1] - start[0])
            count = struct.pack(">i", end - begin)
            out[members[number]] = b"".join((frame[:2], count, body[begin * size : end * size], frame[6:]))
        many = np.flatnonzero(~single)
    else:
        many = np.arange(len(members))
    if len(many):
        rows = np.isin(who, many) if len(many) < len(members) else slice(None)
        layout = _Layout(axis, names, given[rows], topic[rows], who[rows], head[rows])
        out.update(zip([members[number] for number in many.tolist()], layout.blobs(many, frame), strict=True))
    return {member: out[member] for member in members}


def _single_rows(axis: Axis, names: EncodedTopicNames, given: Any, topic: NDArray[np.int32]) -> Bytes:
    """Entries of one partition each: name, count 1, partition; all of one size, so one matrix."""
    width = names.width
    rows = np.empty((len(given), width + 8), dtype=np.uint8)
    rows[:, :width] = names.bytes[topic]
    rows[:, width : width + 4] = (0, 0, 0, 1)
    partition = (given - axis.base[topic]).astype(">i4")
    rows[:, width + 4 :] = partition.view(np.uint8).reshape(-1, 4)
    return rows.reshape(-1)


class _Layout:
    """The general case: every entry's place in one buffer, then name, count and partitions put there."""

    def __init__(
        self,
        axis: Axis,
        names: EncodedTopicNames,
        given: Any,
        topic: NDArray[np.int32],
        who: NDArray[np.int32],
        head: Any,
    ) -> None:
        self.names, self.first = names, np.flatnonzero(head)
        self.topic, self.who = topic[self.first], who[self.first]
        self.count = np.diff(np.append(self.first, len(given)))
        self.partition = given - axis.base[topic]
        self.sizes = names.size[self.topic] + 4 + 4 * self.count

    def blobs(self, members: NDArray[np.intp], frame: bytes) -> list[bytes]:
        place = np.searchsorted(members, self.who)
        ends = np.cumsum(self.sizes)
        offset = ends - self.sizes + 10 * place + 6  # 6 bytes before and 4 behind each member's entries
        entries = np.bincount(place, minlength=len(members))
        body = np.bincount(place, weights=self.sizes, minlength=len(members)).astype(np.int64)
        stops = np.cumsum(body + 10)
        begins = stops - body - 10
        buffer = np.zeros(int(stops[-1]), dtype=np.uint8)
        edges = np.frombuffer(frame, dtype=np.uint8)
        buffer[begins[:, None] + np.arange(2)] = edges[:2]
        _put_int32(buffer, begins + 2, entries)
        for size in np.unique(self.names.size).tolist():
            rows = self.names.size[self.topic] == size
            buffer[offset[rows][:, None] + np.arange(size)] = self.names.bytes[self.topic[rows], :size]
        behind = offset + self.names.size[self.topic]
        _put_int32(buffer, behind, self.count)
        rank = np.arange(len(self.partition)) - np.repeat(self.first, self.count)
        _put_int32(buffer, np.repeat(behind + 4, self.count) + 4 * rank, self.partition)
        buffer[stops[:, None] - 4 + np.arange(4)] = edges[6:]
        blob = buffer.tobytes()
        return [blob[begin:stop] for begin, stop in zip(begins.tolist(), stops.tolist(), strict=True)]


def _put_int32(buffer: Bytes, at: Any, value: Any) -> None:
    for shift, byte in ((24, 0), (16, 1), (8, 2), (0, 3)):
        buffer[at + byte] = (value >> shift) & 0xFF
