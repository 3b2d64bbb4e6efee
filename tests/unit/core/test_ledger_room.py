"""What a group's ledger has room for, and what is told of a rebalance once it has settled."""

from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from muster.coordinator.core.model.ledger import GroupLedger, entry_weight, settle_entry
from muster.coordinator.core.model.types import (
    AUDIT_OUTCOMES,
    Cause,
    MemberPlan,
    Outcome,
    PartitionMove,
    RebalanceEntry,
    Settlement,
)


def entry(number: int, outcome: Outcome = Outcome.COMPLETED, snapshot: str = "") -> RebalanceEntry:
    return RebalanceEntry(
        number=number,
        previous_generation=0,
        generation=1,
        protocol_type="consumer",
        protocol_name="range",
        cause=Cause.MEMBER_LEFT,
        culprit="a",
        culprit_client_id="a",
        culprit_client_host="here",
        detail="a left",
        client_reason="",
        outcome=outcome,
        started_at_ms=0,
        ended_at_ms=0,
        snapshot_json=snapshot,
    )


def too_many(ledger: GroupLedger, limit: int, most_bytes: int) -> list[int]:
    """The rule, said plainly: from the newest on, what is over either limit goes, and all that is older."""
    newest_first = sorted(ledger.entries, reverse=True)
    last_rebalance = next((n for n in newest_first if ledger.entries[n].outcome not in AUDIT_OUTCOMES), None)
    over = [
        number
        for place, number in enumerate(newest_first)
        if place
        and (place >= limit or sum(entry_weight(ledger.entries[n]) for n in newest_first[: place + 1]) > most_bytes)
    ]
    return sorted(number for number in over if number != last_rebalance)


KEPT = st.tuples(
    st.integers(1, 9), st.sampled_from([Outcome.COMPLETED, Outcome.HELD]), st.sampled_from(["", "x" * 3_000])
)


@given(
    kept=st.lists(KEPT, max_size=12),
    forgotten=st.lists(st.integers(1, 9), max_size=4),
    limit=st.integers(0, 6),
    most_bytes=st.integers(0, 20_000),
)
def test_what_goes_is_over_a_limit_and_never_the_last_rebalance(
    kept: list[tuple[int, Outcome, str]], forgotten: list[int], limit: int, most_bytes: int
) -> None:
    ledger = GroupLedger()
    for number, outcome, snapshot in kept:
        ledger.keep(entry(number, outcome, snapshot))
    for number in forgotten:
        ledger.forget(number)
    assert ledger.kept_bytes == sum(map(entry_weight, ledger.entries.values()))
    assert ledger.surplus(limit, most_bytes) == too_many(ledger, limit, most_bytes)


@pytest.mark.parametrize("kind", [MemberPlan, PartitionMove])
def test_what_is_known_later_is_all_that_changes(kind: type) -> None:
    """Members and moves are made anew by hand: no field may be forgotten."""
    member = MemberPlan("m", "client", "host", "instance", (("t", (0, 1)),), joined_at_ms=4)
    move = PartitionMove("t", 0, "n", "m", -1, "n left")
    known = {name: f"{name} of it" for name in (field.name for field in fields(kind))}
    if kind is MemberPlan:
        member = MemberPlan(**known | {"member_id": "m"})
    else:
        move = PartitionMove(**known | {"topic": "t", "partition": 0})
    decided = replace(entry(1), members=(member,), moves=(move,))
    told = settle_entry(decided, Settlement(1, 9, ("m",), (("t", 0, 7),), 7, synced=(("m", 8),)))
    assert told.members == (replace(member, synced_at_ms=8),)
    assert told.moves == (replace(move, unowned_ms=7, unowned_at_least_ms=None),), "exact from then on"
    again = settle_entry(decided, Settlement(1, 9, (), (), 7))
    assert (again.members, again.moves) == (decided.members, decided.moves)
