"""Which spans a ledger entry is, and which request it is linked to."""

from dataclasses import replace

from muster.coordinator.core.model.types import (
    Cause,
    MemberPlan,
    Outcome,
    PartitionMove,
    PhaseWait,
    RebalanceEntry,
    RebalancePhase,
    WaitEnd,
)
from muster.coordinator.observability.tracing.rebalance_spans import (
    MAX_MEMBERS,
    RequestTraces,
    SpanPlan,
    is_complete,
    plan_spans,
)

ENTRY = RebalanceEntry(
    number=3,
    previous_generation=1,
    generation=2,
    protocol_type="consumer",
    protocol_name="range",
    cause=Cause.SESSION_EXPIRED,
    culprit="gone",
    culprit_client_id="c",
    culprit_client_host="h",
    detail="its session expired",
    client_reason="",
    outcome=Outcome.COMPLETED,
    started_at_ms=1_000,
    ended_at_ms=4_000,
    phases=(
        RebalancePhase("join", 2_000, ("b",)),
        RebalancePhase("plan", 1_000, ("a",)),
        RebalancePhase("settle", 500, ("b",)),
    ),
    members=(
        MemberPlan("a", "ca", "ha", None, (("t", (0, 1)),)),
        MemberPlan("b", "", "hb", "i", (("t", (2,)),)),
        MemberPlan("c", "cc", "hc", None, ()),
    ),
    moves=(PartitionMove("t", 1, "gone", "a", 700, ""), PartitionMove("t", 2, "a", "b", 800, "")),
    unowned_partition_ms=1_500,
)


def by_name(root: SpanPlan) -> dict[str, SpanPlan]:
    return {child.name: child for child in root.children}


def test_the_root_has_what_an_incident_asks_for() -> None:
    root = plan_spans("g", ENTRY)
    assert (root.start_ms, root.end_ms) == (1_000, 4_500)
    assert root.attributes["muster.rebalance.cause"] == "session_expired"
    assert root.attributes["muster.rebalance.culprit"] == "gone"
    assert root.attributes["muster.rebalance.moves"] == 2
    assert root.attributes["muster.rebalance.unowned_partition_seconds"] == 1.5


def test_phases_follow_each_other() -> None:
    children = by_name(plan_spans("g", ENTRY))
    times = [(children[name].start_ms, children[name].end_ms) for name in ("phase join", "phase plan", "phase settle")]
    assert times == [(1_000, 3_000), (3_000, 4_000), (4_000, 4_500)]
    assert children["phase settle"].attributes["muster.phase.waited_for"] == "b"


def test_a_phase_says_how_each_wait_ended_and_a_member_s_part_ends_with_its_own() -> None:
    waits = (PhaseWait("b", "", WaitEnd.JOINED, 900), PhaseWait("gone", "c", WaitEnd.EXPIRED, 2_000))
    children = by_name(plan_spans("g", replace(ENTRY, phases=(RebalancePhase("join", 2_000, ("b", "gone"), waits),))))
    assert children["phase join"].attributes["muster.phase.waits"] == "b joined after 900 ms; c expired after 2000 ms"
    assert children["member b"].end_ms == 1_900


def test_a_member_s_part_lasts_until_it_was_not_waited_for_any_more() -> None:
    children = by_name(plan_spans("g", ENTRY))
    first, second, third = children["member ca"], children["member b"], children["member cc"]
    assert [span.end_ms for span in (first, second, third)] == [4_000, 4_500, 4_000]
    told = {name: second.attributes[f"muster.member.{name}"] for name in ("revoked", "gained", "owned", "waited_for")}
    assert told == {"revoked": 0, "gained": 1, "owned": 1, "waited_for": True}
    assert first.attributes["muster.member.revoked"] == 1


def test_a_member_s_part_has_when_it_joined_and_ends_when_it_had_its_share() -> None:
    first, second, third = ENTRY.members
    known = replace(
        ENTRY,
        members=(
            replace(first, joined_at_ms=1_200, synced_at_ms=4_100),
            replace(second, joined_at_ms=3_000, synced_at_ms=4_500),
            # It never fetched its share, and says that it joined before there was anything to join.
            replace(third, joined_at_ms=900),
        ),
    )
    children = by_name(plan_spans("g", known))
    assert children["member ca"].events == (("joined", 1_200), ("synced", 4_100))
    assert children["member b"].events == (("joined", 3_000), ("synced", 4_500))
    assert children["member cc"].events == ()
    assert [children[name].end_ms for name in ("member ca", "member b", "member cc")] == [4_100, 4_500, 4_000]


def test_of_very_many_members_those_who_mattered_have_a_span() -> None:
    idle = tuple(MemberPlan(f"m{number}", f"m{number}", "h", None, ()) for number in range(2 * MAX_MEMBERS))
    root = plan_spans("g", replace(ENTRY, members=(*idle, *ENTRY.members)))
    assert root.attributes["muster.rebalance.members_left_out"] == MAX_MEMBERS + 3
    assert len(root.children) == 3 + MAX_MEMBERS
    assert {"member ca", "member b"} <= by_name(root).keys()


def test_only_what_is_completed_and_settled_is_told() -> None:
    assert is_complete(ENTRY)
    assert not is_complete(replace(ENTRY, unowned_partition_ms=-1))
    assert not is_complete(replace(ENTRY, outcome=Outcome.SUPERSEDED))


def test_no_span_ends_before_it_begins_though_the_clock_was_set_back() -> None:
    members = tuple(replace(each, joined_at_ms=8_000, synced_at_ms=3_000) for each in ENTRY.members)
    odd = replace(
        ENTRY, started_at_ms=9_000, ended_at_ms=4_000, phases=(RebalancePhase("join", -5_000),), members=members
    )
    root = plan_spans("g", odd)
    assert all(span.start_ms <= span.end_ms for span in (root, *root.children))


def by(culprit: str, number: int = 1, cause: Cause = Cause.MEMBER_JOINED) -> RebalanceEntry:
    return replace(ENTRY, culprit=culprit, number=number, cause=cause)


def test_a_request_is_linked_to_once_and_the_oldest_are_forgotten() -> None:
    causes = RequestTraces(most=2)
    for member in ("a", "b", "c"):
        causes.note("g", member, f"trace of {member}")
    causes.note("g", "", "nobody's")
    assert causes.of("g", by("a"), whole=True) == ""
    assert causes.of("g", by("c", 2), whole=True) == "trace of c"
    assert causes.of("g", by("c", 3), whole=True) == ""
    assert causes.of("other", by("b"), whole=True) == ""


def test_what_the_culprit_asks_for_before_the_entry_is_whole_belongs_to_the_next_one() -> None:
    causes = RequestTraces()
    causes.note("g", "a", "joins")
    assert causes.of("g", by("a"), whole=False) == "joins"
    causes.note("g", "a", "leaves")
    assert causes.of("g", by("a"), whole=True) == "joins"
    assert causes.of("g", by("a", 2, Cause.MEMBER_LEFT), whole=True) == "leaves"


def test_a_member_that_learns_its_id_by_the_answer_is_linked_though_that_comes_after_the_decision() -> None:
    causes = RequestTraces()
    assert causes.of("g", by("a"), whole=False) == ""
    causes.note("g", "a", "joins", late=True)
    causes.note("g", "a", "leaves")
    assert causes.of("g", by("a"), whole=True) == "joins"


def test_what_no_request_set_off_and_a_request_without_a_trace_are_linked_to_none_of_before() -> None:
    causes = RequestTraces()
    causes.note("g", "a", "joins again, as everybody does")
    assert causes.of("g", by("a", 1, Cause.SESSION_EXPIRED), whole=True) == ""
    causes.note("g", "a", "joins again, as everybody does")
    causes.note("g", "a", "")
    assert causes.of("g", by("a", 2, Cause.MEMBER_LEFT), whole=True) == ""


def test_names_and_headers_of_any_length_are_not_kept() -> None:
    causes = RequestTraces()
    causes.note("g", "a" * 2_000, "trace")
    causes.note("g" * 2_000, "a", "trace")
    causes.note("g", "a", "t" * 100)
    for group_id, culprit in (("g", "a" * 2_000), ("g" * 2_000, "a"), ("g", "a")):
        assert causes.of(group_id, by(culprit), whole=True) == ""
