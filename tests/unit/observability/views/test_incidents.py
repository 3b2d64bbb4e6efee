"""Entries of a ledger that belong together are one incident, told in one sentence."""

from itertools import pairwise
from typing import Any

import pytest

from muster.coordinator.observability.views.incidents import KINDS, GroupIncident, find_incidents
from muster.coordinator.observability.views.member_names import names_of
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import CoordinatorMove, Incarnation, NodeStall, Rebalance, TopicChange
from tests.support.ledger_entries import BEGIN_MS, ledger_entry, member_id


def incidents(*entries: Rebalance, **more: Any) -> list[GroupIncident]:
    return find_incidents(entries, names_of(entries), **more)


def only(*entries: Rebalance, **more: Any) -> GroupIncident:
    (found,) = incidents(*entries, **more)
    assert found.entries == tuple(entry.number for entry in entries)
    assert found.kind in KINDS
    return found


STARTED = ledger_entry(1, "MEMBER_JOINED", 0, ["a", "b", "c", "d"], by="a")


def rolling(names: str, number: int = 2, at_s: float = 3600) -> list[Rebalance]:
    """Each gone and back, one after the other, ten seconds apart."""
    there = {name: f"{name}1" for name in "abcd"}
    found = []
    for name in names:
        old = there.pop(name)
        found.append(ledger_entry(number, "MEMBER_LEFT", at_s, list(there.values()), by=old, moves=[(old, "x")]))
        there[name] = f"{name}2"
        found.append(ledger_entry(number + 1, "MEMBER_JOINED", at_s + 3, list(there.values()), by=f"{name}2"))
        number, at_s = number + 2, at_s + 10
    return found


def test_a_rolling_restart_is_one_incident() -> None:
    start, restarted = incidents(STARTED, *rolling("abcd"))
    assert start.kind == "start"
    assert restarted.kind == "rolling_restart"
    assert restarted.entries == tuple(range(2, 10))
    assert restarted.sentence == (
        "Rolling restart: 4 members (a, b, c and d) were restarted one after the other in 33.10 s."
    )
    assert (restarted.rebalances, restarted.superseded, restarted.moved) == (8, 0, 4)


def test_a_leader_that_plans_again_for_no_known_reason_does_not_divide_a_rolling_restart() -> None:
    """kafka-python's leader does so. When it goes on and on, that is told."""

    def again(number: int, at_s: float) -> Rebalance:
        return ledger_entry(
            number, "LEADER_REJOINED", at_s, ["a2", "b2", "c1", "d1"], by="b2", certainty="CERTAINTY_UNKNOWN"
        )

    first, rest = rolling("abcd")[:4], rolling("abcd")[4:]
    for entry in rest:
        entry.number += 1
    _, restarted = incidents(STARTED, *first, again(6, 3614), *rest)
    assert restarted.kind == "rolling_restart"
    assert restarted.entries == tuple(range(2, 11))
    endless = [again(number, 3614 + 5 * number) for number in range(6, 16)]
    assert [found.kind for found in incidents(STARTED, *first, *endless)][-1] == "storm"


def test_one_that_restarted_says_for_how_long_it_was_away() -> None:
    _, restarted = incidents(STARTED, *rolling("b"))
    assert (restarted.kind, restarted.sentence) == ("restart", "b restarted; it was away for 3.00 s.")


def test_a_restart_within_one_rebalance_takes_the_ledger_s_word() -> None:
    back = ledger_entry(
        2,
        "MEMBER_RESTARTED",
        3600,
        ["a2", "b", "c", "d"],
        by="a2",
        incarnations=[
            Incarnation(member_id=member_id("a2"), previous_id=member_id("a"), away_ms=5200, how="still counted")
        ],
    )
    _, restarted = incidents(STARTED, back)
    assert (restarted.kind, restarted.sentence) == ("restart", "a restarted; it was away for 5.20 s.")


def test_a_crash_loop_names_the_member() -> None:
    entries, number, at_s = [ledger_entry(1, "MEMBER_JOINED", 0, ["a", "b"], by="a")], 2, 3600.0
    for life in range(2, 6):
        entries.append(ledger_entry(number, "SESSION_EXPIRED", at_s, ["b"], by=f"a{life - 1}"))
        entries.append(ledger_entry(number + 1, "MEMBER_JOINED", at_s + 50, [f"a{life}", "b"], by=f"a{life}"))
        number, at_s = number + 2, at_s + 200
    _, loop = incidents(*entries)
    assert loop.kind == "crash_loop"
    assert loop.sentence == "a restarted 4 times in 10 min 50 s."
    assert loop.entries == tuple(range(2, 10))


def test_a_crash_loop_faster_than_the_session_is_one_member() -> None:
    """Plans have its earlier processes until their sessions end."""
    entries = [ledger_entry(1, "MEMBER_JOINED", 0, ["b"], by="b")]
    for life in range(1, 5):
        counted = [f"a{each}" for each in range(1, life + 1)]
        came = ledger_entry(1 + life, "MEMBER_JOINED", 3600 + 2 * life, ["b", *counted], by=f"a{life}")
        if life > 1:
            came.incarnations.add(
                member_id=member_id(f"a{life}"), previous_id=member_id(f"a{life - 1}"), how="still counted"
            )
        entries.append(came)
    *_, loop = incidents(*entries)
    assert loop.kind == "crash_loop"
    assert loop.sentence == "a restarted 3 times in 4.10 s."


def test_lives_that_began_and_ended_within_one_rebalance_count() -> None:
    lives = ["a", "a2", "a3", "a4"]
    back = ledger_entry(
        2,
        "MEMBER_RESTARTED",
        3600,
        ["a2", "a3", "a4", "b"],
        by="a2",
        incarnations=[
            Incarnation(member_id=member_id(new), previous_id=member_id(old), away_ms=600, how="still counted")
            for old, new in pairwise(lives)
        ],
    )
    late = ledger_entry(3, "SESSION_EXPIRED", 3610, ["a4", "b"], by="a2")
    _, loop = incidents(ledger_entry(1, "MEMBER_JOINED", 0, ["a", "b"], by="a"), back, late)
    assert (loop.kind, loop.entries) == ("crash_loop", (2, 3))
    assert loop.sentence == "a restarted 3 times in 10.10 s."


def test_a_start_and_a_stop_of_all() -> None:
    one_by_one = [
        ledger_entry(1, "MEMBER_JOINED", 0, ["a"], by="a"),
        ledger_entry(2, "MEMBER_JOINED", 4, ["a", "b"], by="b"),
        ledger_entry(3, "MEMBER_JOINED", 8, ["a", "b", "c"], by="c"),
    ]
    assert only(*one_by_one).sentence == "The group started with 3 members (a, b and c)."
    stopped = [
        ledger_entry(4, "MEMBER_LEFT", 7200, ["b", "c"], by="a"),
        ledger_entry(5, "MEMBER_LEFT", 7201, ["c"], by="b"),
        ledger_entry(6, "MEMBER_LEFT", 7202, [], by="c", outcome="EMPTIED"),
    ]
    _, stop = incidents(*one_by_one, *stopped)
    assert stop.kind == "stop"
    assert stop.sentence == "All members are gone: 3 members (a, b and c) left. Nobody is in the group."
    again = [
        ledger_entry(7, "MEMBER_JOINED", 7210, ["a2"], by="a2"),
        ledger_entry(8, "MEMBER_JOINED", 7211, ["a2", "b2", "c2"], by="b2"),
    ]
    _, both = incidents(*one_by_one, *stopped, *again)
    assert both.kind == "stop_and_start"
    assert both.sentence == "All 3 members stopped, and 3 started again, within 11.10 s."


def test_rounds_that_were_overtaken_are_of_the_one_that_ended() -> None:
    """Twelve that died together had 36 rebalances."""
    dying = [
        ledger_entry(at, "SESSION_EXPIRED", 3600 + at, by=name, outcome="SUPERSEDED")
        for at, name in enumerate("abc", 2)
    ]
    end = ledger_entry(5, "SESSION_EXPIRED", 3606, ["d"], by="c")
    _, died = incidents(STARTED, *dying, end)
    assert died.entries == (2, 3, 4, 5)
    assert (died.rebalances, died.superseded) == (1, 3)
    assert died.sentence == "3 members (a, b and c) stopped answering."


def test_a_topic_that_grew_and_the_second_round_of_it() -> None:
    change = TopicChange(topic="orders", kind=ledger_pb2.TOPIC_CHANGE_KIND_GREW, before=3, after=5, at_ms=BEGIN_MS)
    grew = ledger_entry(2, "PARTITIONS_CHANGED", 3600, ["a", "b", "c", "d"], topics=[change])
    second = ledger_entry(3, "REVOCATION_FOLLOW_UP", 3601, ["a", "b", "c", "d"], by="a", moves=[("", "a"), ("", "b")])
    _, found = incidents(STARTED, grew, second)
    assert found.kind == "topic_change"
    assert found.sentence == "orders grew from 3 to 5 partitions; 2 rebalances, 2 partitions moved."
    assert found.entries == (2, 3)


def test_a_roll_out_of_an_assignor_says_how_far_it_is() -> None:
    changed = [
        ledger_entry(
            at, "PROTOCOLS_CHANGED", 3600 * at, "abcd", by=name, detail=f"{at - 1} of 4 members now offer lag too"
        )
        for at, name in enumerate("ab", 2)
    ]
    changed[1].started_at_ms = changed[0].started_at_ms + 60_000
    changed[1].ended_at_ms = changed[1].started_at_ms
    _, found = incidents(STARTED, *changed)
    assert (found.kind, found.entries) == ("assignor_rollout", (2, 3))
    assert found.sentence == "2 of 4 members now offer lag too."


def test_members_restarted_one_after_the_other_with_another_assignor_are_a_roll_out() -> None:
    restarted = rolling("abc")
    for count, back in enumerate(restarted[1::2], 1):
        who = f"member {back.culprit} ({back.culprit[0]} at host)"
        back.detail = f"{who} is back; it offers other assignors: +lag; {count} of 4 members offer lag now"
    _, found = incidents(STARTED, *restarted)
    assert found.kind == "assignor_rollout"
    assert found.sentence == (
        "Roll-out of other assignors: 3 members (a, b and c) restarted in 23.10 s and offer +lag; "
        "3 of 4 members offer lag now."
    )


def test_an_operator_s_act_has_what_followed() -> None:
    act = ledger_entry(2, "UNSPECIFIED", 3600, outcome="SETTINGS_CHANGED", culprit="operator at 10.0.0.9", detail="set")
    change = ledger_entry(3, "ASSIGNOR_CHANGED", 3601, ["a", "b", "c", "d"], moves=[("a", "b")])
    _, found = incidents(STARTED, act, change)
    assert found.kind == "operator"
    assert found.sentence == ("An operator changed the group's settings; nobody moved; 1 rebalance, 1 partition moved.")


def test_members_that_gave_up_while_the_node_stood_still_are_not_blamed() -> None:
    stall = NodeStall(ended_at_ms=BEGIN_MS + 3_600_000, stalled_ms=10_000)
    gave_up = ledger_entry(2, "SESSION_EXPIRED", 3601, ["c", "d"], by="a")
    _, found = incidents(STARTED, gave_up, stalls=[stall])
    assert found.kind == "node_stall"
    assert found.sentence == "The node stood still for 10.0 s; 1 rebalance, 0 partitions moved."
    assert (found.entries, found.certainty) == ((2,), "inferred")


def test_a_failover_that_moved_nobody_is_an_incident_without_entries() -> None:
    move = CoordinatorMove(
        from_node=1, to_node=2, cause="node 1 died", last_heard_ms=BEGIN_MS, serving_ms=BEGIN_MS + 3200, members=5
    )
    (found,) = incidents(moves=[move])
    assert found.sentence == (
        "The coordinator moved from node 1 to node 2 (node 1 died): 3.20 s without answers, 5 members kept."
    )
    assert found.entries == ()


def test_changes_without_one_cause_are_a_storm() -> None:
    entries = [STARTED]
    plans = ["abc", "abce", "bce", "bcef", "cef", "cefg", "efg", "efgh"]
    for number, plan in enumerate(plans, 2):
        by, cause = ("d", "MEMBER_LEFT") if number % 2 == 0 else (plan[-1], "MEMBER_JOINED")
        entries.append(ledger_entry(number, cause, 3600 + 5 * number, plan, by=by))
    _, found = incidents(*entries)
    assert found.kind == "storm"
    assert found.sentence.startswith("8 rebalances in 35.10 s without one cause: ")


def test_a_rolling_restart_of_members_that_started_one_by_one() -> None:
    names, number, at_s = "abcdef", 0, 0.0
    entries, there = [], {}
    for name in names:
        there[name], number, at_s = f"{name}1", number + 1, at_s + 3
        entries.append(ledger_entry(number, "MEMBER_JOINED", at_s, list(there.values()), by=f"{name}1"))
    for name in names:
        del there[name]
        entries.append(ledger_entry(number + 1, "MEMBER_LEFT", at_s + 3, list(there.values()), by=f"{name}1"))
        there[name], number, at_s = f"{name}2", number + 2, at_s + 6
        entries.append(ledger_entry(number, "MEMBER_RESTARTED", at_s, list(there.values()), by=f"{name}2"))
    start, restarted = incidents(*entries)
    assert (start.kind, restarted.kind) == ("start", "rolling_restart")


def test_a_start_a_replacement_and_a_rolling_restart_are_told_one_by_one() -> None:
    """Seconds apart, as on a busy day: eight rebalances in forty seconds, and no storm."""
    start = ledger_entry(1, "MEMBER_JOINED", 0, ["a", "b", "c"], by="a", took_s=6)
    replaced = ledger_entry(2, "MEMBER_JOINED", 9, ["a", "c", "d"], by="d", took_s=3.6, waits={"b": ("EXPIRED", 3.6)})
    replaced.triggers.add(cause=ledger_pb2.REBALANCE_CAUSE_SESSION_EXPIRED, culprit=member_id("b"))
    there, rest = {name: name for name in "acd"}, []
    for at, name in enumerate("acd"):
        gone = there.pop(name)
        rest.append(ledger_entry(3 + 2 * at, "MEMBER_LEFT", 17 + 9 * at, list(there.values()), by=gone))
        there[name] = f"{name}2"
        rest.append(ledger_entry(4 + 2 * at, "MEMBER_RESTARTED", 21 + 9 * at, list(there.values()), by=f"{name}2"))
    stop = ledger_entry(9, "MEMBER_LEFT", 80, [], by="a2", outcome="EMPTIED")
    assert [(each.kind, each.sentence) for each in incidents(start, replaced, *rest, stop)] == [
        ("start", "The group started with 3 members (a, b and c)."),
        ("members_changed", "b stopped answering; d joined."),
        (
            "rolling_restart",
            "Rolling restart: 3 members (a, c and d) were restarted one after the other in 22.10 s.",
        ),
        ("stop", "All members are gone: 3 members (a, c and d) left. Nobody is in the group."),
    ]


def test_the_only_member_restarted() -> None:
    start = ledger_entry(1, "MEMBER_JOINED", 0, ["a"], by="a")
    gone = ledger_entry(2, "MEMBER_LEFT", 3600, [], by="a", outcome="EMPTIED")
    back = ledger_entry(3, "MEMBER_JOINED", 3605, ["a2"], by="a2")
    _, restart = incidents(start, gone, back)
    assert (restart.kind, restart.sentence) == ("restart", "a restarted; it was away for 5.00 s.")


def test_two_things_at_once_are_two_incidents() -> None:
    """A topic grows in the middle of a rolling restart."""
    change = TopicChange(topic="t", kind=ledger_pb2.TOPIC_CHANGE_KIND_GREW, before=3, after=5)
    first = rolling("a")
    grew = ledger_entry(4, "PARTITIONS_CHANGED", 3605, ["a2", "b1", "c1", "d1"], topics=[change])
    rest = [
        ledger_entry(5, "MEMBER_LEFT", 3610, ["a2", "c1", "d1"], by="b1"),
        ledger_entry(6, "MEMBER_JOINED", 3613, ["a2", "b2", "c1", "d1"], by="b2"),
    ]
    assert [each.entries for each in incidents(STARTED, *first, grew, *rest)] == [(1,), (2, 3, 5, 6), (4,)]


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_every_kind_says_what_it_is(kind: str) -> None:
    assert KINDS[kind]
