"""Reads OffsetCommit requests; a fast path for a member that commits the same partitions again with new offsets.

Each connection has a reader. Once two of its requests were equal in all but the offsets, the next ones are compared
with them as bytes, and only the offsets are read. The general way decodes by the schema;
tests/property/kafka/test_kafka_commit_reader.py holds both together.
"""

import struct as packing
from collections.abc import Mapping, Sequence
from itertools import repeat
from typing import Any, Final, TypeAlias

from muster.coordinator.core.model.types import Position
from muster.coordinator.edge.request_limits import LARGE_BYTES
from muster.coordinator.kafka.codec.codec import Frame, decoder_of, encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer
from muster.coordinator.values import frozen_value

LONGEST_KEPT: Final = 4_096
"""Bytes of a request that may be kept for comparison: some hundred partitions."""

OFFSET_BYTES: Final = 8
NO_EPOCH: Final = -1

MESSAGE: Final = "OffsetCommitRequest"
ANSWER: Final = "OffsetCommitResponse"


CommitHeader: TypeAlias = tuple[tuple[str, str, str | None, int], tuple[int | None, bool, str]]
"""What an event has of a request before its positions (group, member, instance, generation), and behind them (retention
in ms, whether it does not know GROUP_ID_NOT_FOUND, the operator)."""


class CommitShape:
    """What a request says besides its offsets, and what can be worked out from that alone, or of its connection.

    The offsets in `request` mean nothing.
    """

    __slots__ = ("all_well", "epochs", "notes", "places", "request", "rows", "said", "spans")

    def __init__(self, request: Any) -> None:
        self.request = request
        self.rows: list[Any] = []
        self.places: list[tuple[str, int]] = []
        self.spans: list[tuple[str, int, int]] = []
        """Of each topic the lowest and the highest partition."""
        for topic in request.topics:
            numbers = [row.partition_index for row in topic.partitions]
            self.rows += topic.partitions
            self.places += zip(repeat(topic.name), numbers)
            self.spans.append((topic.name, min(numbers, default=0), max(numbers, default=-1)))
        epochs = [row.committed_leader_epoch for row in self.rows]
        self.epochs = epochs if min(epochs, default=0) >= NO_EPOCH else [max(epoch, NO_EPOCH) for epoch in epochs]
        self.notes = [row.committed_metadata or "" for row in self.rows]
        self.all_well: EncodedAnswer | None = None
        """The answer that refuses nothing, once it has been given."""
        self.said: CommitHeader | None = None
        """What an event takes of it, once one has been made."""

    def within(self, catalog: Mapping[str, int]) -> bool:
        """Whether all these partitions exist."""
        for topic, lowest, highest in self.spans:  # noqa: SIM110  # every commit asks: a generator would be felt
            if lowest < 0 or highest >= catalog.get(topic, 0):
                return False
        return True

    def resembles(self, other: "CommitShape") -> bool:
        """Whether both speak for the same group, of the same partitions, in the same words."""
        return (
            self.request.group_id == other.request.group_id
            and self.places == other.places
            and self.epochs == other.epochs
            and self.notes == other.notes
        )


@frozen_value
class OffsetCommitRequest:
    """One request: its offsets are in the order of the shape's places. The last of several for one place counts."""

    shape: CommitShape
    offsets: Sequence[int]
    made: dict[tuple[str, int], Position] | None = None
    """The positions, where they were made in advance."""

    def positions(self) -> dict[tuple[str, int], Position]:
        if self.made is not None:
            return self.made
        shape = self.shape
        return dict(zip(shape.places, zip(self.offsets, shape.epochs, shape.notes, strict=True), strict=True))


class RepeatedCommit:
    """Requests with the bytes of one that has been read, but for the offsets."""

    __slots__ = ("_layout", "_said", "shape")

    def __init__(self, layout: packing.Struct, body: Frame, shape: CommitShape) -> None:
        self._layout = layout
        self._said = layout.unpack(body)[::2]
        self.shape = shape

    def offsets(self, frame: Frame, position: int) -> tuple[int, ...] | None:
        """The offsets of the request at `position`; None if it is none of these."""
        if len(frame) - position != self._layout.size:
            return None
        fields = self._layout.unpack_from(frame, position)
        return fields[1::2] if fields[::2] == self._said else None


class CommitReader:
    """Reads the requests of one connection: a decoder that gives a `OffsetCommitRequest`."""

    __slots__ = ("_alike", "_before", "_decode", "_version")

    def __init__(self, version: int) -> None:
        self._version = version
        self._decode = decoder_of(MESSAGE, version)
        self._alike: RepeatedCommit | None = None
        self._before: CommitShape | None = None

    def __call__(self, frame: Frame, position: int = 0) -> tuple[OffsetCommitRequest, int]:
        if self._alike is not None:
            offsets = self._alike.offsets(frame, position)
            if offsets is not None:
                return OffsetCommitRequest(self._alike.shape, offsets), len(frame)
        request, end = self._decode(frame, position)
        commit = make_commit(request)
        if len(frame) - position <= LONGEST_KEPT:
            self._keep(frame[position:], commit.shape)
        elif len(frame) > LARGE_BYTES:  # this is a thread: the loop has no time for so many
            commit.shape.all_well = success_answer(commit.shape, self._version)
            commit = OffsetCommitRequest(commit.shape, commit.offsets, commit.positions())
        return commit, end

    def _keep(self, body: Frame, shape: CommitShape) -> None:
        """The second in a row of a kind is worth the look for its offsets."""
        before, self._before = self._before, shape
        if before is None or not before.resembles(shape):
            return
        if body.startswith(encode_request(self._version, shape.request)):  # what follows a request is passed over
            places = find_offset_positions(self._version, shape)
            self._alike = RepeatedCommit(layout_of(places, len(body)), body, shape)


def make_commit(request: Any) -> OffsetCommitRequest:
    """A request as the message's decoder gives it."""
    shape = CommitShape(request)
    return OffsetCommitRequest(shape, [row.committed_offset for row in shape.rows])


def success_answer(shape: CommitShape, version: int) -> EncodedAnswer:
    """The answer that refuses nothing."""
    # The request's rows have all the fields of the answer's but the code, whose default says that all is well.
    return EncodedAnswer(encode(ANSWER, version, struct(ANSWER)(topics=shape.request.topics)))


def encode_request(version: int, request: Any) -> bytes:
    return b"".join(encode(MESSAGE, version, request))


def find_offset_positions(version: int, shape: CommitShape) -> list[int]:
    """Where the offsets lie in the request's bytes: that is what changes with them. Leaves -1 as each row's offset."""
    for row in shape.rows:
        row.committed_offset = 0
    zeros = encode_request(version, shape.request)
    for row in shape.rows:
        row.committed_offset = -1
    ones = encode_request(version, shape.request)
    return [at for at, (zero, one) in enumerate(zip(zeros, ones, strict=True)) if zero != one][::OFFSET_BYTES]


def layout_of(places: Sequence[int], size: int) -> packing.Struct:
    """A request of `size` bytes with an offset at each of these places, and what lies between them."""
    form, at = ">", 0
    for place in places:
        form += f"{place - at}sq"
        at = place + OFFSET_BYTES
    return packing.Struct(f"{form}{size - at}s")
