"""An answer by gRPC with many long rows is made bytes of row by row, with turns of the loop in between."""

import asyncio

import pytest
from google.protobuf.message import Message

from muster import long_work
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.server.grpc.adapter import FEW_ROWS, PIECE_BYTES, encode_answer, encode_pieces, row_fields_of


def explanation(rows: int, snapshot_bytes: int) -> pb.ExplainGroupResponse:
    return pb.ExplainGroupResponse(
        error_message="2 snapshots did not fit into one answer",
        rebalances=[
            ledger_pb2.Rebalance(number=number, group_id="g", snapshot_json="x" * snapshot_bytes)
            for number in range(rows)
        ],
    )


@pytest.mark.parametrize(
    "answer",
    [
        pb.ExplainGroupResponse(),
        pb.OffsetCommitResponse(),
        explanation(3, 500_000),
        explanation(100, 10),
        explanation(100, 30_000),
        explanation(FEW_ROWS, PIECE_BYTES),
        pb.ListGroupsResponse(
            error_code=1,
            in_cluster=True,
            groups=[pb.ListedGroup(group_id=f"group {number}") for number in range(30_000)],
        ),
    ],
)
def test_the_bytes_are_those_of_the_message(answer: Message) -> None:
    row_fields = row_fields_of(type(answer))
    assert type(answer).FromString(asyncio.run(encode_answer(answer, row_fields))) == answer


def test_others_have_turns_between_long_rows_and_no_piece_is_longer_than_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(long_work, "SLICE_S", 0.0)
    answer = explanation(50, PIECE_BYTES)
    turns = 0

    async def encode_beside_another() -> list[bytes]:
        async def take_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        other = asyncio.create_task(take_turns())
        pieces = [piece async for piece in encode_pieces(answer, dict(row_fields_of(type(answer))))]
        other.cancel()
        return pieces

    pieces = asyncio.run(encode_beside_another())
    assert max(map(len, pieces)) < PIECE_BYTES + 100
    assert turns >= 50
    assert pb.ExplainGroupResponse.FromString(b"".join(pieces)) == answer


def test_many_short_rows_are_a_piece_together() -> None:
    answer = pb.ListGroupsResponse(groups=[pb.ListedGroup(group_id=f"group {number:06}") for number in range(30_000)])

    async def encoded() -> list[bytes]:
        return [piece async for piece in encode_pieces(answer, dict(row_fields_of(type(answer))))]

    pieces = asyncio.run(encoded())
    assert len(pieces) < 30
    assert max(map(len, pieces)) < 2 * PIECE_BYTES


def test_what_has_no_rows_is_no_longer_asked_after() -> None:
    assert row_fields_of(pb.HeartbeatResponse) == ()
    assert [name for name, _ in row_fields_of(pb.ExplainGroupResponse)] == ["rebalances", "stalls", "moves"]
    assert "settings" not in dict(row_fields_of(pb.DescribeGroupSettingsResponse)), "a map has its own rules"
