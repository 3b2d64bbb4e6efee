"""Each rule fires on its case with the figures, and is silent just below it: settings and rebalances; all together."""

from dataclasses import replace

import pytest

from muster.assignors.data.values import readable_lag
from muster.coordinator.observability.doctor.model import DoctorFacts, ExaminedNode, Severity
from muster.coordinator.observability.doctor.table import RULES, examine_facts, examine_group
from muster.coordinator.observability.read_model.groups import PartitionLag, TopicPartition
from muster.coordinator.rpc.v1.ledger_pb2 import NodeStall, Rebalance
from tests.support.doctor import MINUTE, NOW, at, described_as, entry, found, group, member, only, tp


def test_session_under_three_heartbeats() -> None:
    rule = "session-under-three-heartbeats"
    finding = only(rule, group(member(session_timeout_ms=14_999, heartbeat_interval_ms=5_000)))
    assert finding.evidence[0] == "session timeout 15 s < 3 x heartbeat interval 5 s"
    assert not found(rule, group(member(session_timeout_ms=15_000, heartbeat_interval_ms=5_000)))
    assert not found(rule, group(member()))


def test_an_interval_that_a_member_keeps_to_itself_is_measured() -> None:
    """Sessions of 6 s with a heartbeat each second were told to have fewer than three."""
    rule, short = "session-under-three-heartbeats", member(session_timeout_ms=6_000)
    assert not found(rule, group(short)), "nobody looked twice"
    assert not found(rule, group(short, beats={"a": 1_012}))
    assert not found(rule, group(short, beats={"a": 2_000}))
    assert only(rule, group(short, beats={"a": 3_013})).evidence[0] == (
        "session timeout 6 s < 3 x heartbeat interval 3 s, as measured between two heartbeats"
    )


def test_an_assignor_that_is_set_and_kept_out() -> None:
    why = "assignor=lag does not count: the members voted for 'stream'"
    assert only("assignor-kept-out", group(member(), kept_out=why)).evidence == (why,)
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
    def node(retries: int) -> ExaminedNode:
        name = "group.central.rebalance."
        return ExaminedNode(settings={name + "max.retries": str(retries), name + "backoff.ms": "2000"})

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
    pod = member("app-2", group_instance_id="pod-1", taken_over=3)
    assert only("static-id-used-twice", group(pod)).evidence == ("from h", "now app-2 has it")
    assert not found("static-id-used-twice", group(replace(pod, taken_over=2)))


def test_static_id_never_reused() -> None:
    rule = "static-id-never-reused"
    entries = tuple(entry(n, members=[f"m{n}"], instance=f"pod-{n}x") for n in (1, 2, 3))
    now = member("new", group_instance_id="pod-4x")
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
    assert finding.what == "crash loop: a restarted 3 times in 1.00 s. It is not there now"
    assert finding.evidence == (
        "rebalances #18, #17, #16, #15, #14 and 2 more",
        "client id a, host h: stopped answering 4 times",
    )
    assert not found("member-flaps", group(ledger=flaps(3)))


def test_a_member_flaps_in_rebalances_that_were_overtaken_too() -> None:
    overtaken = [entry(e.number, outcome="SUPERSEDED", culprit=e.culprit) for e in flaps(4) if e.number % 2]
    gone = [
        entry(e.number, "MEMBER_LEFT", outcome="SUPERSEDED", culprit=e.culprit) for e in flaps(4) if not e.number % 2
    ]
    ledger = sorted([*overtaken, *gone[:-1]], key=lambda e: -e.number)
    assert only("member-flaps", group(ledger=tuple(ledger))).what.startswith("crash loop: a restarted 3 times")


def test_workers_of_one_name_may_be_restarted_each_once() -> None:
    assert not found("member-flaps", group(ledger=flaps(3, slots=4))), "twelve joins of four workers"
    assert only("member-flaps", group(ledger=flaps(4, slots=4))).what.startswith("crash loop: a restarted 12 times")


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
    assert not found("rebalance-overdue", described_as(late, waiting_until_ms=NOW - 10_000))


def test_no_plan() -> None:
    failed = entry(2, "ASSIGNOR_FAILED")
    assert only("no-plan", group(ledger=(failed, entry(1)))).evidence[0] == "rebalance #2"
    assert only("no-plan", group(ledger=(entry(2, outcome="FAILED"),)))
    assert not found("no-plan", group(ledger=(entry(3), failed))), "it has worked since"


def test_a_healthy_group_has_no_findings() -> None:
    healthy = group(
        member(
            "a", (0, 1), session_timeout_ms=45_000, rebalance_timeout_ms=300_000, client_software="librdkafka 2.12.0"
        ),
        member(
            "b",
            (2, 3),
            session_timeout_ms=45_000,
            rebalance_timeout_ms=300_000,
            client_software="apache-kafka-java 4.1.1",
        ),
        positions={tp(n): at(90, 100) for n in range(4)},
        earlier={tp(n): at(80, 95) for n in range(4)},
        apart_ms=5_000,
        ledger=(entry(2), entry(1)),
        assignor="cooperative-sticky",
    )
    assert (
        examine_facts(DoctorFacts(NOW, ExaminedNode(open_descriptors=50, descriptor_limit=1024), (healthy,), {"t": 4}))
        == []
    )


def test_the_worst_comes_first_and_names_its_cure() -> None:
    sick = group(
        *(member(str(n), (n,) if n < 3 else (), session_timeout_ms=600_000) for n in range(5)),
        ledger=tuple(entry(n) for n in range(1, 8)),
    )
    facts = DoctorFacts(NOW, groups=(sick,), partitions={"t": 4})
    findings = examine_facts(facts)
    severities = [finding.severity for finding in findings]
    assert severities == sorted(severities, reverse=True)
    assert {Severity.ERROR, Severity.ADVICE} <= set(severities)
    assert examine_group(sick, facts) == findings
    assert all(finding.evidence and finding.why and finding.todo for finding in findings)


def test_every_rule_has_one_look_and_a_name_of_its_own() -> None:
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all((rule.group is None) != (rule.node is None) for rule in RULES)


def test_a_rolling_restart_is_no_storm() -> None:
    """Each of four members goes and comes back once, with a second round of the cooperative protocol."""
    everybody = ["w1/0", "w2/0", "w3/0", "w4/0"]
    rows = [entry(1, members=everybody, ago_ms=20 * MINUTE, culprit="w4/0", client="w4")]
    for n in range(1, 5):
        new = f"w{n}/1"
        rest = [each for each in everybody if not each.startswith(f"w{n}/")]
        number = rows[-1].number
        rows.append(entry(number + 1, "MEMBER_LEFT", members=rest, culprit=f"w{n}/0", client=f"w{n}"))
        everybody = [*rest, new]
        rows.append(entry(number + 2, members=everybody, culprit=new, client=f"w{n}"))
        rows.append(entry(number + 3, "REVOCATION_FOLLOW_UP", members=everybody, culprit=new, client=f"w{n}"))
    restarted = tuple(reversed(rows))
    assert not found("rebalance-storm", group(ledger=restarted))
    more = tuple(entry(20 + n, "SUBSCRIPTION_CHANGED", culprit="w1/1", client="w1") for n in range(7))
    assert only("rebalance-storm", group(ledger=(*reversed(more), *restarted))).what == "7 rebalances in 10 min"


def test_a_crash_loop_faster_than_the_session_is_one_member() -> None:
    """Its earlier incarnations are members until their sessions end, and do not count as workers of its name."""
    rows = [entry(10, members=["b"], ago_ms=20 * MINUTE)]
    for n in range(4):
        living = entry(11 + n, members=["b", *(f"a/{k}" for k in range(n + 1))], culprit=f"a/{n}")
        if n:
            living.incarnations.add(member_id=f"a/{n}", previous_id=f"a/{n - 1}", how="still counted")
        rows.append(living)
    finding = only("member-flaps", group(ledger=tuple(reversed(rows))))
    assert finding.what == "crash loop: a restarted 3 times in 1.00 s"


def rolling(names: str, client: str = "") -> tuple[Rebalance, ...]:
    """Each member goes and comes back, ten seconds after the one before; `client`: the client id of them all."""
    began, there = MINUTE * len(names) // 2, {name: f"{client or name}/{name}0" for name in names}
    rows = [entry(1, members=there.values(), ago_ms=20 * MINUTE, client=client or "a")]
    for turn, name in enumerate(names):
        ago_ms, gone = began - 10_000 * turn, there.pop(name)
        given = {"client": client or name}
        rows.append(entry(len(rows) + 1, "MEMBER_LEFT", ago_ms, members=there.values(), culprit=gone, **given))
        there[name] = f"{client or name}/{name}1"
        rows.append(entry(len(rows) + 1, ago_ms=ago_ms - 4_000, members=there.values(), culprit=there[name], **given))
    return tuple(reversed(rows))


@pytest.mark.parametrize("client", ["", "app"])
@pytest.mark.parametrize("names", ["ab", "abcd", "abcdefgh"])
def test_a_rolling_restart_finds_nothing(names: str, client: str) -> None:
    facts = DoctorFacts(NOW, groups=(group(ledger=rolling(names, client)),))
    assert examine_facts(facts) == []


def test_two_deploys_in_ten_minutes_are_no_storm() -> None:
    first = rolling("abcd")
    later = [replace_start(each, NOW - 30_000 + 1_000 * each.number) for each in rolling("abcd")[:-1]]
    for each in later:
        each.number += 8
        each.culprit = each.culprit.replace("1", "2").replace("0", "1")
        for known in each.members:
            known.member_id = known.member_id.replace("1", "2").replace("0", "1")
    assert not found("rebalance-storm", group(ledger=(*later, *first)))


def test_a_crash_loop_is_told_once() -> None:
    """Its sessions end because its processes do, and its rebalances are no storm beside it."""
    facts = DoctorFacts(NOW, groups=(group(ledger=flaps(6)),))
    assert [finding.rule for finding in examine_facts(facts)] == ["member-flaps"]


def test_a_roll_out_of_an_assignor_is_no_storm() -> None:
    members = list("abcdefgh")
    rows = [entry(1, members=members, ago_ms=20 * MINUTE)]
    rows += [
        entry(n, "PROTOCOLS_CHANGED", MINUTE - 1_000 * n, members=members, culprit=name, client=name)
        for n, name in enumerate(members, 2)
    ]
    assert examine_facts(DoctorFacts(NOW, groups=(group(ledger=tuple(reversed(rows))),))) == []


def test_members_that_died_together_are_no_storm() -> None:
    """Twelve of them had 36 rebalances, each overtaken by the next."""
    members = [f"m{n}" for n in range(12)]
    rows = [entry(1, members=[*members, "x"], ago_ms=20 * MINUTE)]
    rows += [
        entry(n, "SESSION_EXPIRED", MINUTE - 100 * n, outcome="SUPERSEDED", culprit=f"m{n % 12}", client=f"m{n % 12}")
        for n in range(2, 38)
    ]
    rows.append(entry(38, "SESSION_EXPIRED", MINUTE - 3_800, members=["x"], culprit="m1", client="m1"))
    assert not found("rebalance-storm", group(ledger=tuple(reversed(rows))))


def test_what_a_stall_of_the_node_caused_is_no_fault_of_members() -> None:
    members = [f"m{n}" for n in range(9)]
    rows = [entry(1, members=members, ago_ms=20 * MINUTE)]
    for n in range(8):
        gone = members.pop(0)
        rows.append(entry(n + 2, "SESSION_EXPIRED", MINUTE - 1_000 * n, members=members, culprit=gone, client=gone))
    ledger = tuple(reversed(rows))
    assert found("sessions-expire", group(ledger=ledger))
    stall = NodeStall(ended_at_ms=NOW - MINUTE + 500, stalled_ms=10_000)
    stalled = group(ledger=ledger, stalls=(stall,))
    assert examine_facts(DoctorFacts(NOW, groups=(stalled,))) == []


def test_a_storm_says_what_has_happened() -> None:
    plans = ["abc", "abce", "bce", "bcef", "cef", "cefg", "efg", "efgh"]
    rows = [entry(1, members="abcd", ago_ms=20 * MINUTE)]
    for n, plan in enumerate(plans, 2):
        by, cause = ("dabc"[n // 2 - 1], "MEMBER_LEFT") if n % 2 == 0 else (plan[-1], "MEMBER_JOINED")
        rows.append(entry(n, cause, MINUTE - 5_000 * n, members=plan, culprit=by, client=by))
    finding = only("rebalance-storm", group(ledger=tuple(reversed(rows))))
    assert finding.severity is Severity.ERROR
    assert finding.what == "8 rebalances in 10 min"
    assert finding.evidence[2] == (
        "8 rebalances in 36.00 s without one cause: 4 members (a, b, c and d) left; 4 members (e, f, g and h) joined."
    )


def test_records_removed_unread() -> None:
    def positions(**starts: int) -> dict[TopicPartition, PartitionLag]:
        placed = enumerate(starts.values())
        return {tp(n): PartitionLag(tp(n), 5, start, 5_000, readable_lag(5, start, 5_000)) for n, start in placed}

    rule = "records-removed-unread"
    finding = only(rule, group(member(), positions=positions(a=4_995, b=5_000, c=0)))
    assert finding.what == "9,985 records were removed by retention before g read them"
    assert finding.evidence == (
        "t-1: committed 5, the log begins at 5,000: 4,995 records",
        "t-0: committed 5, the log begins at 4,995: 4,990 records",
        "5,000 records can still be read",
    )
    assert not found(rule, group(member(), positions=positions(a=5, b=0)))
