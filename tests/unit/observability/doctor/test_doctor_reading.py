"""The same of who reads what, and how far."""

from dataclasses import replace

import pytest

from muster.coordinator.observability.doctor.model import (
    ExaminedGroup,
    Severity,
    drained_ids,
    override_lines,
)
from muster.coordinator.observability.doctor.table import has_problem
from muster.coordinator.observability.read_model.groups import GroupHolds, HeldDrain
from tests.support.doctor import at, described_as, entry, found, group, member, only, tp


def test_partitions_unowned() -> None:
    rule = "partitions-unowned"
    short = group(member(owned=(0, 1, 2)), positions={tp(3): at(5, 15)}, leader="a", assignor="range")
    finding = only(rule, short)
    assert finding.what == "nobody owns 1 partition of t, although the group is stable"
    assert finding.evidence[:2] == ("t-3", "waiting there: 10 records")
    assert "its leader planned with range" in finding.evidence[2]
    assert not found(rule, group(member(owned=range(4))))
    assert not found(rule, described_as(short, state="PreparingRebalance"))
    some = group(member(owned=(0, 1, 2)), member("b", topics=("u",)))
    assert only(rule, some, topics={"t": 4}).evidence[2].startswith("1 of 2 members subscribe to t")


def test_what_an_operator_holds_is_the_reason_that_is_told() -> None:
    words = override_lines(GroupHolds(orphans="keep"))
    short = group(member(owned=(0, 1, 2)), positions={tp(3): at(5, 15)}, leader="a", assignor="range", held=words)
    finding = only("partitions-unowned", short)
    assert finding.evidence[2] == "an operator holds the group: freeze, partitions that lose their owner stay unowned"
    assert "muster groups resume" in finding.todo
    assert finding.severity == Severity.WARNING


@pytest.mark.parametrize(
    ("by", "name"), [("member-id", "b"), ("client-id", "b"), ("instance", "pod-1"), ("host", "h2")]
)
def test_who_is_drained_is_to_have_nothing(by: str, name: str) -> None:
    busy, idle = member("a", range(8)), member("b", group_instance_id="pod-1", client_host="h2")
    drained = drained_ids([busy, idle], GroupHolds(drains=(HeldDrain(by, name, None, 0),)))
    assert drained == {"b"}
    positions = {tp(0): at(0, 5_000)}
    rules = ("skew-by-count", "skew-by-lag", "more-members-than-partitions")
    alone = group(busy, idle, positions=positions)
    assert [rule for rule in rules if found(rule, alone, topics={"t": 1})] == list(rules)
    assert not any(found(rule, replace(alone, drained=drained), topics={"t": 1}) for rule in rules)


def test_topic_abandoned() -> None:
    left = group(member(owned=range(4)), positions={tp(0, "old"): at(1, 9)})
    assert only("topic-abandoned", left).evidence[0].startswith("8 records behind")
    assert not found("topic-abandoned", replace(left, positions={tp(0, "old"): at(9, 9)}))
    assert not found("topic-abandoned", described_as(left, members=())), "an empty group reads nothing, and says so"


def test_more_members_than_partitions() -> None:
    rule = "more-members-than-partitions"
    members = [member(str(n), (n,) if n < 4 else ()) for n in range(5)]
    assert only(rule, group(*members)).what == "nothing to do for 1 member of 5"
    assert not found(rule, group(*members[:4]))
    assert not has_problem(found(rule, group(*members))), "it is advice"


def test_assignor_mixture() -> None:
    new = member("new", offered_assignors=("cooperative-sticky", "range"))
    old = member("old", offered_assignors=("range",))
    finding = only("assignor-mixture", group(new, old, assignor="range"))
    assert finding.what == (
        "preferred by 1 member: cooperative-sticky, but the group runs range and stops everybody at each rebalance"
    )
    assert finding.evidence == ("not offered by 1 member: old at h", "offered by all: range")
    assert not found("assignor-mixture", group(new, replace(old, offered_assignors=("range", "cooperative-sticky"))))


def test_partition_stuck_at_a_record() -> None:
    rule = "partition-stuck"
    going = {tp(0): at(50, 60), tp(1): at(7, 30)}
    before = {tp(0): at(40, 60, 5_000), tp(1): at(7, 30, 5_000)}
    sick = group(member(owned=(0, 1)), positions=going, earlier=before, apart_ms=5_000)
    finding = only(rule, sick)
    assert finding.what == "t-1 stands still at offset 7, with 23 records behind it"
    assert finding.evidence[1:] == (
        "committed again at offset 7 within 5 s (STALL)", "meanwhile its owner moved on in t-0"
    )  # fmt: skip
    assert "`muster consume --topic t --partition 1 --from 7 --max-messages 1`" in finding.todo
    assert (
        "`muster groups reset-offsets 'a b' --topic t:1 --to +1" in only(rule, described_as(sick, group_id="a b")).todo
    )
    assert not found(rule, replace(sick, earlier=before | {tp(1): at(6, 30, 5_000)})), "it moved"
    assert not found(rule, replace(sick, positions=going | {tp(1): at(30, 30)}, earlier=before | {tp(1): at(30, 30)}))
    assert not found(rule, replace(sick, earlier={})), "one look cannot tell"
    # not committed again: only when that is long ago
    old = replace(sick, positions=going | {tp(1): at(7, 30, 300_000)}, earlier=before | {tp(1): at(7, 30, 300_000)})
    assert "(STOP)" in only(rule, old).evidence[1]
    young = {tp(1): at(7, 30, 299_999)}
    assert not found(rule, replace(old, positions=going | young, earlier=before | young))


def test_a_partition_that_starves_beside_others() -> None:
    rule = "partition-stuck"
    now = {tp(0): at(9, 9), tp(1): replace(at(None, 40), committed_at_ms=None)}
    before = {tp(0): at(5, 9), tp(1): replace(at(None, 30), committed_at_ms=None)}
    ledger = (entry(4, ago_ms=301_000),)
    hungry = group(member(owned=(0, 1)), positions=now, earlier=before, apart_ms=3_000, ledger=ledger)
    finding = only(rule, hungry)
    assert finding.what == "t-1 starves: it is written to, and nothing of it was ever committed"
    assert finding.evidence == (
        "owner: a at h, for 5 min at least (rebalance #4)",
        "40 records wait, 10 of them new within 3 s",
        "meanwhile its owner moved on in t-0",
    )
    assert not found(rule, replace(hungry, ledger=(entry(4, ago_ms=300_000),))), "it has had it for a short time"
    assert not found(rule, replace(hungry, earlier=before | {tp(1): now[tp(1)]})), "who begins at the end reads none"
    assert not found(rule, replace(hungry, earlier=before | {tp(0): now[tp(0)]})), "nothing of its owner moves"


def test_group_stopped() -> None:
    old = {tp(0): at(1, 9, 300_000), tp(1): at(2, 9, 400_000)}
    stopped = group(member(owned=(0, 1)), positions=old)
    assert only("group-stopped", stopped).what.endswith("15 records behind in 2 partitions")
    assert not found("group-stopped", replace(stopped, positions=old | {tp(0): at(1, 9, 299_999)}))
    assert not found("group-stopped", replace(stopped, positions={tp(0): at(9, 9, 400_000)})), "nothing waits"


def test_member_does_not_commit() -> None:
    rule = "member-does-not-commit"
    positions = {tp(0): at(1, 9, 300_000), tp(1): at(2, 9, 1_000)}
    sick = group(member("a", (0,)), member("b", (1,)), positions=positions)
    assert only(rule, sick).what == "a at h lives, but has committed nothing for 5 min"
    assert not found(rule, replace(sick, positions=positions | {tp(0): at(1, 9, 299_000)}))
    assert not found(rule, replace(sick, positions=positions | {tp(1): at(2, 9, 300_000)})), "nobody commits"


def test_commits_refused() -> None:
    rule = "commits-refused"
    sick = member("a", (0,), refused_commits=3, refused_commit_code="ILLEGAL_GENERATION")
    finding = only(rule, group(sick, member("b", (1,)), positions={tp(0): at(1, 9)}))
    assert finding.what == "the last 3 commits of a at h were refused"
    assert finding.evidence == ("the newest with ILLEGAL_GENERATION", "it has 1 partition, 8 records behind")
    assert finding.severity is Severity.ERROR
    assert not found(rule, group(replace(sick, refused_commits=2)))


def test_skew_by_count() -> None:
    rule = "skew-by-count"
    assert only(rule, group(member("a", range(4)), member("b", (4,))), topics={"t": 5}).what == (
        "a at h has 4 partitions, b at h has 1"
    )
    assert not found(rule, group(member("a", range(3)), member("b", (3,))), topics={"t": 4})
    assert not found(rule, group(member("a", range(4)), member("b", (4,), topics=("t", "u"))), topics={"t": 5})

    same = group(member("a", range(4), topics=("t", "u")), member("b", (4,), topics=("u", "t")))
    assert found(rule, same, topics={"t": 5, "u": 1}), "the order of a subscription says nothing"


def test_skew_by_lag() -> None:
    def lags(most: int) -> ExaminedGroup:
        positions = {tp(0): at(0, most), tp(1): at(0, 400)}
        return group(member("a", (0,)), member("b", (1,)), positions=positions)

    assert only("skew-by-lag", lags(1_201)).what == "a at h has 1,201 records behind, the others 400 on average"
    assert not found("skew-by-lag", lags(1_200)), "three times is not more than three times"
    few = group(member("a", (0,)), member("b", (1,)), positions={tp(0): at(0, 999), tp(1): at(0, 0)})
    assert not found("skew-by-lag", few), "under a thousand records"


def test_skew_by_rate() -> None:
    def rates(most: int) -> ExaminedGroup:
        now = {tp(0): at(0, most), tp(1): at(0, 50)}
        before = {tp(0): at(0, 0), tp(1): at(0, 0)}
        return group(member("a", (0,)), member("b", (1,)), positions=now, earlier=before, apart_ms=5_000)

    assert only("skew-by-rate", rates(151)).what == "a at h has 30 records/s to read, the others 10 on average"
    assert not found("skew-by-rate", rates(150))
    assert not found("skew-by-rate", replace(rates(151), earlier={}))
