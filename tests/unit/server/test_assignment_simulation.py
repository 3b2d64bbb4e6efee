"""SimulateAssignment with a snapshot of the caller's: what is long about it happens beside the event loop."""

import asyncio
import json
from typing import Any, cast

import pytest

from muster.assignors.api import Member, Snapshot
from muster.assignors.run import run
from muster.coordinator.core.model.effects import OffsetFetchReply
from muster.coordinator.core.model.types import CommittedOffset
from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.errors import Overloaded
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.services.assignment_simulation import MAX_AT_ONCE, AssignmentSimulator, compute_lag
from tests.support.turns import turns_of_others

TOPICS = {f"topic-{number}": 10 for number in range(20)}
MEMBERS = [Member(f"member-{number}", tuple(TOPICS)) for number in range(2_000)]
TEXT = Snapshot(TOPICS, MEMBERS).to_json()


def simulator() -> AssignmentSimulator:
    nobody = cast(Any, None)  # no group is asked
    return AssignmentSimulator(
        nobody, shard_of=lambda _: 0, partitions=dict, spans=lambda _: {}, decide=run, plugins={}, elsewhere=None
    )


async def simulate(text: str, who: AssignmentSimulator, *assignors: str) -> pb.SimulateAssignmentResponse:
    request = pb.SimulateAssignmentRequest(snapshot_json=text, assignors=assignors)
    return await who.simulate(request, cast(Any, None))


def test_a_large_snapshot_is_read_and_written_beside_the_others() -> None:
    answers: list[pb.SimulateAssignmentResponse] = []

    async def without_an_assignor() -> None:
        answers.append(await simulate(TEXT, simulator()))

    assert asyncio.run(turns_of_others(without_an_assignor())) > 10
    assert json.loads(answers[0].snapshot_json) == json.loads(TEXT)


def test_few_at_a_time_are_read() -> None:
    async def many() -> list[Any]:
        who = simulator()
        asked = [simulate(TEXT, who, "range") for _ in range(MAX_AT_ONCE + 1)]
        return await asyncio.gather(*asked, return_exceptions=True)

    *good, last = asyncio.run(many())
    assert all(answer.assignments[0].forecast_json for answer in good)
    assert isinstance(last, Overloaded)


def test_what_is_no_snapshot_is_refused_as_the_callers_mistake() -> None:
    with pytest.raises(MalformedGroupRequest, match="snapshot_json cannot be read"):
        asyncio.run(simulate("[]", simulator(), "range"))


def test_lags_are_those_that_an_assignor_on_the_coordinator_is_told() -> None:
    """Only what can still be read counts; without a commit that is all, unless a client would begin at the end."""
    spans = {("t", 0): (10, 50)}
    nothing, early, late = (
        OffsetFetchReply(offsets={} if offset is None else {("t", 0): CommittedOffset(offset)})
        for offset in (None, 3, 45)
    )
    assert [compute_lag(reply, {}, spans, ("t", 0), "") for reply in (nothing, early, late)] == [40, 40, 5]
    assert compute_lag(nothing, {}, spans, ("t", 0), "latest") == 0
