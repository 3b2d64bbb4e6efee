"""Each rule fires on its case with the figures, and is silent just below it."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import pytest

from muster.coordinator.doctor.facts import Facts, Group, Member, Node, Position, TopicPartition, Trouble
from muster.coordinator.doctor.finding import Finding, Severity
from muster.coordinator.doctor.holding import drained_ids, held_words
from muster.coordinator.doctor.rules.clients import DEFECTS, numbers
from muster.coordinator.doctor.table import RULES, examine, is_wrong, of_group
from muster.coordinator.rpc.v1.ledger_pb2 import MemberPlan, Rebalance, RebalanceCause, RebalanceOutcome
from muster.coordinator.views.holds import SeenDrain, SeenHolds

NOW = 10_000_000
MINUTE = 60_000


def tp(partition: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, partition)


def member(name: str = "a", owned: Iterable[int] = (), **more: Any) -> Member:
    given: dict[str, Any] = {"client_id": name, "host": "h", "topics": ("t",)} | more
    return Member(name, owned=tuple(tp(p) for p in owned), **given)


def group(*members: Member, state: str = "Stable", **more: Any) -> Group:
    return Group("g", state, members=members, **more)


def entry(number: int, cause: str = "MEMBER_JOINED", ago_ms: int = MINUTE, **more: Any) -> Rebalance:
    members = [
        MemberPlan(member_id=m, client_id=m.partition("/")[0], client_host="h", group_instance_id=more.get("instance"))
        for m in more.get("members", ())
    ]
    return Rebalance(
        number=number,
        cause=RebalanceCause.Value("REBALANCE_CAUSE_" + cause),
        outcome=RebalanceOutcome.Value("REBALANCE_OUTCOME_" + more.get("outcome", "COMPLETED")),
        started_at_ms=NOW - ago_ms,
        ended_at_ms=NOW - ago_ms + 1_000,
        culprit=more.get("culprit", "a"),
        culprit_client_id=more.get("client", "a"),
        culprit_client_host=more.get("host", "h"),
        members=members,
    )


def at(committed: int | None, end: int, age_ms: int = 0) -> Position:
    return Position(committed, 0, end, NOW - age_ms)


def found(
    rule: str, *groups: Group, node: Node | None = None, topics: Mapping[str, int] | None = None
) -> list[Finding]:
    facts = Facts(NOW, node or Node(), groups, {"t": 4} if topics is None else topics)
    return [finding for finding in examine(facts) if finding.rule == rule]


def only(rule: str, *groups: Group, **more: Any) -> Finding:
    (finding,) = found(rule, *groups, **more)
    return finding


def test_session_under_three_heartbeats() -> None:
    rule = "session-under-three-heartbeats"
    finding = only(rule, group(member(session_timeout_ms=14_999, heartbeat_interval_ms=5_000)))
    assert finding.evidence[0] == "session timeout 15 s < 3 x heartbeat interval 5 s"
    assert not found(rule, group(member(session_timeout_ms=15_000, heartbeat_interval_ms=5_000)))
    # a classic member does not tell its interval: the clients' default stands for it, and that is said
    assert "clients' default" in only(rule, group(member(session_timeout_ms=8_999))).evidence[0]
    assert not found(rule, group(member(session_timeout_ms=9_000)))
    assert not found(rule, group(member()))


def test_an_assignor_that_is_set_and_kept_out() -> None:
    why = "assignor=lag does not count: the members voted for 'stream'"
    assert only("assignor-kept-out", replace(group(member()), kept_out=why)).evidence == (why,)
    assert not found("assignor-kept-out", group(member()))


def test_session_too_long() -> None:
    assert "10 min" in only("session-too-long", group(member(session_timeout_ms=600_000))).what
    assert not found("session-too-long", group(member(session_timeout_ms=300_000)))


def test_poll_interval_under_session() -> None:
    rule = "poll-interval-under-session"
    finding = only(rule, group(member(session_timeout_ms=45_000, rebalance_timeout_ms=44_000)))
    assert "44 s < session timeout 45 s" in finding.evidence[0]
    assert not found(rule, group(member(session_timeout_ms=45_000, rebalance_timeout_ms=45_000)))
    assert not found(rule, group(member(session_timeout_ms=45_000, rebalance_timeout_ms=-1)))


def test_rebalance_timeout_long() -> None:
    rule = "rebalance-timeout-long"
    slow = member("slow", rebalance_timeout_ms=900_001)
    assert "slow at h" in only(rule, group(slow, member("b"))).evidence[0]
    assert not found(rule, group(slow)), "nobody waits with it"
    assert not found(rule, group(member("slow", rebalance_timeout_ms=900_000), member("b")))


@pytest.mark.parametrize(
    ("rule", "cause"), [("sessions-expire", "SESSION_EXPIRED"), ("polls-late", "POLL_TIMEOUT")], ids=str
)
def test_deadlines_that_are_missed_often(rule: str, cause: str) -> None:
    entries = tuple(entry(n, cause, ago_ms=n * MINUTE) for n in (1, 2, 10))
    finding = only(rule, group(ledger=entries))
    assert "3 times" in finding.what
    assert finding.evidence == ("rebalances #1, #2, #10", "of: a at h")
    assert not found(rule, group(ledger=entries[:2]))
    assert not found(rule, group(ledger=(*entries[:2], entry(11, cause, ago_ms=10 * MINUTE + 1)))), "long ago"


def test_retries_under_session() -> None:
    def node(retries: int) -> Node:
        name = "group.central.rebalance."
        return Node(settings={name + "max.retries": str(retries), name + "backoff.ms": "2000"})

    central = group(member(session_timeout_ms=8_001), type="central")
    assert "4 x" in only("retries-under-session", central, node=node(4)).evidence[0]
    assert not found("retries-under-session", central, node=node(5))
    assert not found("retries-under-session", replace(central, type="classic"), node=node(4))
    assert not found("retries-under-session", central)


def test_static_id_used_twice() -> None:
    uuid = "-0c1ab5c1-3a5c-4b4e-9f6e-2f1d3b7f9a10"
    hosts = ("h1", "h2", "h1")
    entries = tuple(
        entry(n, "STATIC_MEMBER_REPLACED", culprit="pod-1" + uuid, client="app", host=host)
        for n, host in enumerate(hosts, 1)
    )
    finding = only("static-id-used-twice", group(ledger=entries))
    assert finding.what == "instance id 'pod-1' was taken over, or asked for by another, 3 times in 10 min"
    assert finding.evidence == ("rebalances #1, #2, #3", "from h1, h2")
    assert not found("static-id-used-twice", group(ledger=entries[:2]))


def test_static_id_used_twice_so_calmly_that_no_rebalance_tells_of_it() -> None:
    pod = member("app-2", instance_id="pod-1", taken_over=3)
    assert only("static-id-used-twice", group(pod)).evidence == ("from h", "now app-2 has it")
    assert not found("static-id-used-twice", group(replace(pod, taken_over=2)))


def test_static_id_never_reused() -> None:
    rule = "static-id-never-reused"
    entries = tuple(entry(n, members=[f"m{n}"], instance=f"pod-{n}x") for n in (1, 2, 3))
    now = member("new", instance_id="pod-4x")
    assert only(rule, group(now, ledger=entries)).what == "3 instance ids came once, and never again"
    assert not found(rule, group(now, ledger=entries[:2]))
    back = entry(4, members=["m9"], instance="pod-1x")
    assert not found(rule, group(now, ledger=(back, *entries))), "one of them has come back"


def flaps(times: int, slots: int = 1) -> tuple[Rebalance, ...]:
    """A ledger in which so many members of one name come and go again, `slots` at a time, beside one that stays."""
    rounds, number = [entry(10, members=["b"], ago_ms=20 * MINUTE)], 10
    for n in range(times):
        rounds.append(entry(number + 1, members=["b", *(f"a/{n}-{s}" for s in range(slots))], culprit=f"a/{n}-0"))
        rounds.append(entry(number + 2, "SESSION_EXPIRED", members=["b"], culprit=f"a/{n}-0"))
        number += 2
    return tuple(reversed(rounds))


def test_member_flaps() -> None:
    finding = only("member-flaps", group(ledger=flaps(4)))
    assert finding.what == "a at h joined 4 times in 10 min, and went 4 times"
    assert finding.evidence == (
        "joined with rebalances #11, #13, #15, #17", "gone with rebalances #12, #14, #16, #18 (session_expired)"
    )  # fmt: skip
    assert not found("member-flaps", group(ledger=flaps(3)))


def test_a_member_flaps_in_rebalances_that_were_overtaken_too() -> None:
    overtaken = [entry(e.number, outcome="SUPERSEDED", culprit=e.culprit) for e in flaps(4) if e.number % 2]
    gone = [
        entry(e.number, "MEMBER_LEFT", outcome="SUPERSEDED", culprit=e.culprit) for e in flaps(4) if not e.number % 2
    ]
    ledger = sorted([*overtaken, *gone[:-1]], key=lambda e: -e.number)
    assert only("member-flaps", group(ledger=tuple(ledger))).what.startswith("a at h joined 4 times")


def test_workers_of_one_name_may_be_restarted_each_once() -> None:
    assert not found("member-flaps", group(ledger=flaps(3, slots=4))), "twelve joins of four workers"
    assert only("member-flaps", group(ledger=flaps(4, slots=4))).what.startswith("a at h joined 16 times")


def test_ten_members_that_start_do_not_flap() -> None:
    entries = [entry(n, members=[f"a/{m}" for m in range(n)], ago_ms=MINUTE - n) for n in range(1, 11)]
    assert not found("member-flaps", group(ledger=tuple(reversed(entries))))


def test_rebalance_storm() -> None:
    entries = tuple(entry(n) for n in range(1, 8))
    finding = only("rebalance-storm", group(ledger=entries))
    assert finding.what == "7 rebalances in 10 min"
    assert finding.evidence[1] == "causes: member_joined 7"
    assert not found("rebalance-storm", group(ledger=entries[:6]))
    settings = tuple(entry(n, "OPERATOR", outcome="SETTINGS_CHANGED") for n in range(9))
    assert not found("rebalance-storm", group(ledger=settings)), "a change of settings moves nobody"


def test_what_is_said_to_begin_hours_from_now_is_no_matter_of_these_minutes() -> None:
    """The clock was set back when the node was started again: its ledger knows times that have yet to come."""
    later = tuple(entry(n, ago_ms=-300 * MINUTE) for n in range(1, 9))
    assert not found("rebalance-storm", group(ledger=later))
    assert found("rebalance-storm", group(ledger=tuple(entry(n, ago_ms=-1) for n in range(1, 9)))), (
        "asked for a bit later"
    )
    ahead = tuple(replace_start(each, NOW + 300 * MINUTE) for each in flaps(4))
    assert not found("member-flaps", group(ledger=ahead))
    expired = tuple(entry(n, "SESSION_EXPIRED", ago_ms=-300 * MINUTE) for n in range(9))
    assert not found("sessions-expire", group(ledger=expired))
    mixed = tuple(entry(n, outcome="SUPERSEDED", ago_ms=m * MINUTE) for n, m in ((3, 1), (2, 2), (1, -300)))
    assert only("rebalances-superseded", group(ledger=mixed)).evidence[1] == "without a plan for 0 s"


def replace_start(of: Rebalance, started_at_ms: int) -> Rebalance:
    later = Rebalance()
    later.CopyFrom(of)
    later.started_at_ms, later.ended_at_ms = started_at_ms, started_at_ms + 1_000
    return later


def test_rebalances_superseded() -> None:
    rule = "rebalances-superseded"
    entries = tuple(entry(n, outcome="SUPERSEDED") for n in (3, 2, 1))
    assert only(rule, group(ledger=entries)).evidence[0] == "rebalances #3, #2, #1"
    assert not found(rule, group(ledger=entries[:2]))
    assert not found(rule, group(ledger=(entry(4), *entries))), "the newest had a plan"


def test_leader_never_syncs() -> None:
    rule = "leader-never-syncs"
    entries = tuple(entry(n, "SYNC_TIMEOUT", ago_ms=59 * MINUTE) for n in (2, 1))
    assert "put out for it: a at h" in only(rule, group(ledger=entries)).evidence
    assert "the leader now: a at h" in only(rule, group(member(), leader="a", ledger=entries)).evidence
    assert not found(rule, group(ledger=entries[:1]))
    assert not found(rule, group(ledger=tuple(entry(n, "SYNC_TIMEOUT", ago_ms=61 * MINUTE) for n in (2, 1))))


def test_rebalance_overdue() -> None:
    late = group(member(), state="PreparingRebalance", waiting_for=("a",), waiting_until_ms=NOW - 10_001)
    assert "waits for a at h" in only("rebalance-overdue", late).evidence
    assert not found("rebalance-overdue", replace(late, waiting_until_ms=NOW - 10_000))


def test_no_plan() -> None:
    failed = entry(2, "ASSIGNOR_FAILED")
    assert only("no-plan", group(ledger=(failed, entry(1)))).evidence[0] == "rebalance #2"
    assert only("no-plan", group(ledger=(entry(2, outcome="FAILED"),)))
    assert not found("no-plan", group(ledger=(entry(3), failed))), "it has worked since"


def test_partitions_unowned() -> None:
    rule = "partitions-unowned"
    short = group(member(owned=(0, 1, 2)), positions={tp(3): at(5, 15)}, leader="a", assignor="range")
    finding = only(rule, short)
    assert finding.what == "nobody owns 1 partition of t, although the group is stable"
    assert finding.evidence[:2] == ("t-3", "waiting there: 10 records")
    assert "its leader planned with range" in finding.evidence[2]
    assert not found(rule, group(member(owned=range(4))))
    assert not found(rule, replace(short, state="PreparingRebalance"))
    some = group(member(owned=(0, 1, 2)), member("b", topics=("u",)))
    assert only(rule, some, topics={"t": 4}).evidence[2].startswith("1 of 2 members subscribe to t")


def test_what_an_operator_holds_is_the_reason_that_is_told() -> None:
    words = held_words(SeenHolds(orphans="keep"))
    short = group(member(owned=(0, 1, 2)), positions={tp(3): at(5, 15)}, leader="a", assignor="range", held=words)
    finding = only("partitions-unowned", short)
    assert finding.evidence[2] == "an operator holds the group: freeze, what loses its owner stays without one"
    assert "muster groups resume" in finding.todo
    assert finding.severity == Severity.WARNING


@pytest.mark.parametrize(
    ("by", "name"), [("member-id", "b"), ("client-id", "b"), ("instance", "pod-1"), ("host", "h2")]
)
def test_who_is_drained_is_to_have_nothing(by: str, name: str) -> None:
    busy, idle = member("a", range(8)), member("b", instance_id="pod-1", host="h2")
    drained = drained_ids([busy, idle], SeenHolds(drains=(SeenDrain(by, name, None, 0),)))
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
    assert not found("topic-abandoned", replace(left, members=())), "an empty group reads nothing, and says so"


def test_more_members_than_partitions() -> None:
    rule = "more-members-than-partitions"
    members = [member(str(n), (n,) if n < 4 else ()) for n in range(5)]
    assert only(rule, group(*members)).what == "nothing to do for 1 member of 5"
    assert not found(rule, group(*members[:4]))
    assert not is_wrong(found(rule, group(*members))), "it is advice"


def test_assignor_mixture() -> None:
    new = member("new", offers=("cooperative-sticky", "range"))
    old = member("old", offers=("range",))
    finding = only("assignor-mixture", group(new, old, assignor="range"))
    assert finding.what == (
        "preferred by 1 member: cooperative-sticky, but the group runs range and stops everybody at each rebalance"
    )
    assert finding.evidence == ("not offered by 1 member: old at h", "offered by all: range")
    assert not found("assignor-mixture", group(new, replace(old, offers=("range", "cooperative-sticky"))))


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
    assert "`muster groups reset-offsets 'a b' --topic t:1 --to +1" in only(rule, replace(sick, id="a b")).todo
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
    now = {tp(0): at(9, 9), tp(1): Position(None, 0, 40)}
    before = {tp(0): at(5, 9), tp(1): Position(None, 0, 30)}
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
    sick = member("a", (0,), refused_commits=3, refused_code="ILLEGAL_GENERATION")
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


def test_skew_by_lag() -> None:
    def lags(most: int) -> Group:
        positions = {tp(0): at(0, most), tp(1): at(0, 400)}
        return group(member("a", (0,)), member("b", (1,)), positions=positions)

    assert only("skew-by-lag", lags(1_201)).what == "a at h has 1,201 records behind, the others 400 on average"
    assert not found("skew-by-lag", lags(1_200)), "three times is not more than three times"
    few = group(member("a", (0,)), member("b", (1,)), positions={tp(0): at(0, 999), tp(1): at(0, 0)})
    assert not found("skew-by-lag", few), "under a thousand records"


def test_skew_by_rate() -> None:
    def rates(most: int) -> Group:
        now = {tp(0): at(0, most), tp(1): at(0, 50)}
        before = {tp(0): at(0, 0), tp(1): at(0, 0)}
        return group(member("a", (0,)), member("b", (1,)), positions=now, earlier=before, apart_ms=5_000)

    assert only("skew-by-rate", rates(151)).what == "a at h has 30 records/s to read, the others 10 on average"
    assert not found("skew-by-rate", rates(150))
    assert not found("skew-by-rate", replace(rates(151), earlier={}))


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda d: f"{d.software}-{d.mended}")
def test_client_defect(defect: Any) -> None:
    def runs(version: str, assignor: str = defect.assignor) -> bool:
        sick = group(member(software=f"{defect.software} {version}"), assignor=assignor)
        return any(defect.source in f.evidence[1] for f in found("client-defect", sick))

    assert runs(defect.since)
    assert not runs(defect.mended)
    major, minor, patch = numbers(defect.since)
    if minor:
        assert not runs(f"{major}.{minor - 1}.{patch}")
    if defect.assignor:
        assert not runs(defect.since, "range")


def test_older_clients_say_their_version_in_their_client_id() -> None:
    finding = only("client-defect", group(member("kafka-python-2.0.1")))
    assert "kafka-python 2.0.1" in finding.what
    assert finding.todo == "upgrade to kafka-python 2.0.2 or later"
    assert not found("client-defect", group(member("kafka-python-mine")))
    assert not found("client-defect", group(member(software="librdkafka")))


@pytest.mark.parametrize(
    ("condition", "rule"),
    [
        ("certificate-ends:grpc", "certificate-ends-soon"),
        ("certificate-ended:kafka", "certificate-ended"),
        ("certificate-not-read:http", "certificate-not-read"),
    ],
)
def test_certificates(condition: str, rule: str) -> None:
    node = Node(troubles=(Trouble(condition, "it is so; do that", NOW - 5_000),))
    assert only(rule, node=node).evidence == (f"condition {condition}",)
    assert not found("node-trouble", node=node), "it is told once"
    assert not found(rule)


def test_doors_that_stand_open() -> None:
    def opened(**settings: str) -> list[str]:
        node = Node(settings={key.replace("_", "."): value for key, value in settings.items()})
        return [finding.what for finding in found("door-open", node=node)]

    assert opened() == []
    assert opened(listeners="127.0.0.1:9290", http_listeners="PLAINTEXT://localhost:9291", kafka_listeners="") == []
    assert opened(listeners="SSL://0.0.0.0:9290", authorizer="acl") == []
    assert opened(listeners="SSL://0.0.0.0:9290") == [
        "listeners is SSL://0.0.0.0:9290: who reaches it may do everything"
    ]
    [told] = opened(kafka_listeners="SASL_PLAINTEXT://10.0.0.1:9092", listeners="QUIC://10.0.0.1:1", authorizer="acl")
    assert told.startswith("kafka.listeners is SASL_PLAINTEXT://10.0.0.1:9092: who is on the way reads")


def test_node_trouble() -> None:
    node = Node(troubles=(Trouble("shard-failed:7", "shard 7 is not served", NOW - 5_000, 3),))
    assert only("node-trouble", node=node).evidence == ("condition shard-failed:7, for 5 s, seen 3 times",)
    assert not found("node-trouble")


@pytest.mark.parametrize(
    ("rule", "sick", "well"),
    [
        ("clock-skew", {"clock_ahead_ms": -5_000}, {"clock_ahead_ms": -4_999}),
        (
            "descriptors-short",
            {"open_descriptors": 820, "descriptor_limit": 1024},
            {"open_descriptors": 819, "descriptor_limit": 1024},
        ),
        (
            "memory-short",
            {"resident_bytes": 90 << 20, "memory_bytes": 100 << 20},
            {"resident_bytes": 89 << 20, "memory_bytes": 100 << 20},
        ),
        (
            "disk-short",
            {"disk_free_bytes": 9 << 30, "disk_total_bytes": 100 << 30},
            {"disk_free_bytes": 10 << 30, "disk_total_bytes": 100 << 30},
        ),
        ("loop-late", {"loop_late_ms": 250}, {"loop_late_ms": 249}),
        ("loop-late", {"stalled_ms": 3_600, "up_ms": 3_600_000}, {"stalled_ms": 3_599, "up_ms": 3_600_000}),
        (
            "loop-late",
            {"stalled_ms": 300, "stalls": 3, "up_ms": 120_000},
            {"stalled_ms": 300, "stalls": 2, "up_ms": 120_000},
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_the_node_has_left(rule: str, sick: dict[str, int], well: dict[str, int]) -> None:
    assert only(rule, node=Node(**sick))
    assert not found(rule, node=Node(**well))


def test_a_disk_that_the_node_complains_of_is_told_once() -> None:
    node = Node(troubles=(Trouble("disk-nearly-full", "full", NOW),), disk_free_bytes=1, disk_total_bytes=100)
    assert not found("disk-short", node=node)


def test_a_healthy_group_has_no_findings() -> None:
    healthy = group(
        member("a", (0, 1), session_timeout_ms=45_000, rebalance_timeout_ms=300_000, software="librdkafka 2.12.0"),
        member(
            "b", (2, 3), session_timeout_ms=45_000, rebalance_timeout_ms=300_000, software="apache-kafka-java 4.1.1"
        ),
        positions={tp(n): at(90, 100) for n in range(4)},
        earlier={tp(n): at(80, 95) for n in range(4)},
        apart_ms=5_000,
        ledger=(entry(2), entry(1)),
        assignor="cooperative-sticky",
    )
    assert examine(Facts(NOW, Node(open_descriptors=50, descriptor_limit=1024), (healthy,), {"t": 4})) == []


def test_the_worst_comes_first_and_names_its_cure() -> None:
    sick = group(
        *(member(str(n), (n,) if n < 3 else (), session_timeout_ms=600_000) for n in range(5)),
        ledger=tuple(entry(n) for n in range(1, 8)),
    )
    facts = Facts(NOW, groups=(sick,), partitions={"t": 4})
    findings = examine(facts)
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities, reverse=True)
    assert {Severity.ERROR, Severity.ADVICE} <= set(severities)
    assert of_group(sick, facts) == findings
    assert all(finding.evidence and finding.why and finding.todo for finding in findings)


def test_every_rule_has_one_look_and_a_name_of_its_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all((rule.group is None) != (rule.node is None) for rule in RULES)
