"""A connection's commits are read as each would be on its own, whatever came before it, and answered with the bytes."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.coordinator.core.model.effects import OffsetCommitReply
from muster.coordinator.core.model.events import OffsetCommit
from muster.coordinator.core.model.types import CommittedOffset
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import MalformedFrame, decode, encode, struct
from muster.coordinator.kafka.dispatch import ClientPeer, KafkaCall
from muster.coordinator.kafka.handlers import offset_commit_reader
from muster.coordinator.kafka.handlers.committed_offsets import make_commit_event, make_commit_response
from muster.coordinator.kafka.handlers.offset_commit_reader import LONGEST_KEPT, CommitReader, CommitShape

VERSIONS = range(2, 10)
INT32 = st.integers(-(2**31), 2**31 - 1)
OFFSETS = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([0, -1, 5])
FEW = st.sampled_from(["", "a", "bench"])
BEHIND = st.sampled_from([b"", b"\0", b"behind"])
"""Kafka passes over what follows a request."""

Row = tuple[int, int, str | None]
"""Partition, leader epoch, metadata."""

ROWS = st.lists(
    st.tuples(st.integers(-1, 3) | INT32, st.sampled_from([-1, -2, 0]) | INT32, st.none() | FEW), max_size=4
)
SHAPES = st.tuples(FEW, st.sampled_from([-1, 3]), FEW, st.lists(st.tuples(FEW, ROWS), max_size=3), BEHIND)


def request_of(version: int, shape: Any, offsets: list[int]) -> bytes:
    group_id, generation, member_id, topics, behind = shape
    row, topic = struct("OffsetCommitRequest.topics.partitions"), struct("OffsetCommitRequest.topics")
    left = iter(offsets)
    request = struct("OffsetCommitRequest")(
        group_id=group_id,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=[
            topic(
                name=name,
                partitions=[
                    row(
                        partition_index=number,
                        committed_offset=next(left),
                        committed_leader_epoch=epoch,
                        committed_metadata=note,
                    )
                    for number, epoch, note in rows
                ],
            )
            for name, rows in topics
        ],
    )
    return b"".join(encode("OffsetCommitRequest", version, request)) + bytes(behind)


@st.composite
def connections(draw: st.DrawFn) -> tuple[int, list[bytes]]:
    """What one client sends: a few kinds of requests, each some times in a row."""
    version = draw(st.sampled_from(VERSIONS))
    frames = []
    for shape in draw(st.lists(SHAPES, min_size=1, max_size=3)):
        rows = sum(len(each) for _, each in shape[3])
        each = st.lists(OFFSETS, min_size=rows, max_size=rows)
        frames += [request_of(version, shape, offsets) for offsets in draw(st.lists(each, min_size=1, max_size=4))]
    return version, frames


def plainly(version: int, frame: bytes) -> tuple[Any, dict[tuple[str, int], CommittedOffset]]:
    """The message, and its positions by the protocol's words."""
    request, _ = decode("OffsetCommitRequest", version, frame)
    positions = {
        (topic.name, row.partition_index): CommittedOffset(
            row.committed_offset, max(row.committed_leader_epoch, -1), row.committed_metadata or ""
        )
        for topic in request.topics
        for row in topic.partitions
    }
    return request, positions


@settings(deadline=None)
@given(connections(), st.sampled_from([bytes, bytearray]), st.binary(max_size=9))
def test_each_request_is_read_as_on_its_own(
    sent: tuple[int, list[bytes]], as_type: type[bytes] | type[bytearray], before: bytes
) -> None:
    version, frames = sent
    reader = CommitReader(version)
    for frame in frames:
        commit, _ = reader(as_type(before + frame), len(before))
        request, positions = plainly(version, frame)
        assert commit.positions() == positions
        assert list(commit.positions()) == list(positions)
        assert list(commit.offsets) == [row.committed_offset for topic in request.topics for row in topic.partitions]
        said = commit.shape.request
        for name in (
            "group_id",
            "generation_id_or_member_epoch",
            "member_id",
            "group_instance_id",
            "retention_time_ms",
        ):
            assert getattr(said, name) == getattr(request, name)


def event_of(version: int, host: str, request: Any, positions: dict[tuple[str, int], CommittedOffset]) -> OffsetCommit:
    """What the core is told of a request, by the protocol's words."""
    retention_ms = getattr(request, "retention_time_ms", -1)
    stranger = request.generation_id_or_member_epoch < 0 and not request.member_id
    return OffsetCommit(
        7,
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        positions,
        None if retention_ms == -1 else retention_ms,
        missing_group_code_is_illegal_generation=version < 9,
        operator=f"operator at {host}" if stranger else "",
    )


@settings(deadline=None)
@given(connections())
def test_the_core_is_told_of_each_request_as_of_one_on_its_own(sent: tuple[int, list[bytes]]) -> None:
    version, frames = sent
    reader, call = (
        CommitReader(version),
        KafkaCall(version, "client", cast(ClientPeer, SimpleNamespace(host="10.0.0.7"))),
    )
    for frame in frames:
        commit, _ = reader(frame, 0)
        told = make_commit_event(commit.shape, call, 7, commit.positions())
        assert told == event_of(version, "10.0.0.7", *plainly(version, frame))


@settings(deadline=None)
@given(connections(), st.booleans())
def test_each_answer_has_the_bytes_of_one_made_anew(sent: tuple[int, list[bytes]], refused: bool) -> None:
    version, frames = sent
    reader = CommitReader(version)
    for frame in frames:
        commit, _ = reader(frame, 0)
        request, positions = plainly(version, frame)
        codes = dict.fromkeys(list(positions)[:1], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) if refused else {}
        row, topic = struct("OffsetCommitResponse.topics.partitions"), struct("OffsetCommitResponse.topics")
        expected = struct("OffsetCommitResponse")(
            topics=[
                topic(
                    name=each.name,
                    partitions=[
                        row(
                            partition_index=one.partition_index,
                            error_code=codes.get((each.name, one.partition_index), ErrorCode.NONE),
                        )
                        for one in each.partitions
                    ],
                )
                for each in request.topics
            ]
        )
        answer = make_commit_response(commit.shape, version, codes, OffsetCommitReply())
        assert b"".join(answer.body) == b"".join(encode("OffsetCommitResponse", version, expected))


@settings(deadline=None)
@given(connections(), st.data())
def test_a_damaged_request_is_read_or_refused_as_on_its_own(sent: tuple[int, list[bytes]], data: st.DataObject) -> None:
    version, frames = sent
    reader = CommitReader(version)
    for frame in frames:
        reader(frame, 0)
    damaged = bytearray(frames[-1])
    damaged[data.draw(st.integers(0, len(damaged) - 1))] = data.draw(st.integers(0, 255))
    damaged = damaged[: data.draw(st.integers(0, len(damaged)))]
    try:
        _, positions = plainly(version, damaged)
    except MalformedFrame:
        with pytest.raises(MalformedFrame, match="OffsetCommitRequest"):
            reader(damaged, 0)
    else:
        assert reader(damaged, 0)[0].positions() == positions


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_member_says_every_time_is_read_twice(version: int) -> None:
    shape = ("g", 3, "m", [("t", [(0, -1, ""), (1, 0, "note")]), ("u", [(7, -1, None)])], b"")
    reader = CommitReader(version)
    shapes = [reader(request_of(version, shape, [at, at + 1, at + 2]), 0)[0].shape for at in range(4)]
    assert shapes[0] is not shapes[1]
    assert shapes[1] is shapes[2] is shapes[3]


def test_commits_for_one_group_after_the_other_are_not_searched_for_their_offsets(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Tools that copy the positions of many groups would pay for it with each of them, and never gain by it."""

    def searched(version: int, shape: CommitShape) -> list[int]:
        raise AssertionError(f"a commit for {shape.request.group_id!r} was searched")

    monkeypatch.setattr(offset_commit_reader, "find_offset_positions", searched)
    reader = CommitReader(9)
    for number in range(5):
        reader(request_of(9, (f"group-{number}", -1, "", [("t", [(0, -1, "")])], b""), [number]), 0)


def test_a_request_written_otherwise_than_here_is_read_rightly() -> None:
    """Its offsets do not lie where ours would: a length has two bytes where one would do."""
    usual = request_of(9, ("g", 3, "m", [("t", [(0, -1, ""), (1, -1, "")])], b""), [0, 0])
    assert usual.startswith(b"\x02g")
    reader = CommitReader(9)
    for first in range(3):
        reader(b"\x82\x00" + usual[1:], 0)
        commit, _ = reader(b"\x82\x00" + usual[1:].replace(bytes(8), first.to_bytes(8, "big"), 1), 0)
        assert (
            commit.positions() == plainly(9, b"\x82\x00" + usual[1:].replace(bytes(8), first.to_bytes(8, "big"), 1))[1]
        )


def test_a_long_request_is_not_kept() -> None:
    rows: list[Row] = [(number, -1, "") for number in range(LONGEST_KEPT // 16)]
    reader = CommitReader(9)
    first, second, third = (
        reader(request_of(9, ("g", 3, "m", [("t", rows)], b""), [at] * len(rows)), 0)[0].shape for at in range(3)
    )
    assert first is not second is not third
