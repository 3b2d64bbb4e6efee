"""Entries of the ledger that are read share what they have in common, and say the same."""

from dataclasses import replace

from muster.coordinator.core.model.ledger import SharedEntries
from muster.coordinator.core.model.records import RebalanceDecided, RebalanceForgotten
from muster.coordinator.core.model.types import Cause, MemberPlan, Outcome, PartitionMove, RebalanceEntry
from muster.coordinator.runtime.own_records import decode_ledger, encode_ledger


def member(number: int, joined_at_ms: int = -1, **said: str) -> MemberPlan:
    name = f"consumer-{number}-0f8fad5b-d9cb-469f-a165-708677289504-and-some-more-that-nobody-keeps-once"
    given = {"client_id": "client " * 20, "client_host": "/10.0.0.1", "group_instance_id": None} | said
    return MemberPlan(name, assigned=(("orders", (number,)),), joined_at_ms=joined_at_ms, **given)


def entry(number: int, *members: MemberPlan) -> RebalanceEntry:
    return RebalanceEntry(
        number, number, number + 1, "consumer", "range", Cause.MEMBER_LEFT, members[0].member_id, "", "", "left",
        "", Outcome.COMPLETED, 1_000 * number, 1_000 * number + 9, (), members,
        (PartitionMove("orders", 0, "", members[0].member_id, 9, "nobody owned it", 3),),
        '{"topics":{"orders":2}}', "records", ("something else",), 9, 3,
    )  # fmt: skip


def read(made: RebalanceEntry) -> RebalanceEntry:
    """As a log gives it back: nothing of it is of another's."""
    (stored,) = encode_ledger(RebalanceDecided("g", made))
    decided = decode_ledger(stored)
    assert isinstance(decided, RebalanceDecided)
    return decided.entry


def test_what_is_shared_is_equal_and_kept_once() -> None:
    made = [
        entry(1, member(0), member(1)),
        entry(2, member(0), member(1, joined_at_ms=5)),
        entry(3, member(0, client_host="/10.0.0.2"), member(1, joined_at_ms=7)),
        replace(entry(4, member(0)), members=(), moves=(), snapshot_json="", also=()),
    ]
    shared = SharedEntries()
    told = [shared.share(read(each)) for each in made]
    assert told == [read(each) for each in made]
    assert [each.members for each in told] == [each.members for each in made]
    first, second, third, _ = told
    assert second.members[0] is first.members[0]
    assert second.members[1].assigned is first.members[1].assigned
    assert third.members[1].client_id is first.members[1].client_id
    assert third.members[0].client_id is first.members[0].client_id
    assert third.moves[0].target is first.moves[0].target
    assert third.snapshot_json is first.snapshot_json


def test_what_is_remembered_is_bounded() -> None:
    shared = SharedEntries(most_bytes=10_000)
    for number in range(200):
        made = replace(entry(number, member(number)), snapshot_json=str(number) * 500)
        assert shared.share(made) == made
        assert len(shared._texts) + len(shared._members) < 60


def test_other_facts_stay_as_they_are() -> None:
    forgotten = RebalanceForgotten("g", 1)
    assert SharedEntries().share_decided(forgotten) is forgotten
    amended = RebalanceDecided("g", entry(1, member(0)), amends=True)
    assert SharedEntries().share_decided(amended) == amended
