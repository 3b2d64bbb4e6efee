"""What `groups explain` says of an entry, line by line."""

import io
import time

import pytest
from rich.console import Console

from muster.assignors.api import Member, Snapshot
from muster.cli.groups.rebalance_story import assignor_lines, merge_by_time, print_story
from muster.coordinator.rpc.v1 import ledger_pb2
from tests.support.ledger_entries import BEGIN_MS, ledger_entry, member_id

GROUP = Snapshot({"t": 3}, [Member("a", ("t",))], assignor="lag")


@pytest.mark.parametrize(
    ("snapshot", "said"),
    [
        (Snapshot(GROUP.topics, GROUP.members, {"t": [1, 2, 3]}), []),
        (
            Snapshot(GROUP.topics, GROUP.members, {"t": [1, 2, 3]}, stale={"t": [0, 2]}),
            ["the lags of 2 partitions are those of when their leaders last answered"],
        ),
        (
            Snapshot(GROUP.topics, GROUP.members, stale={"t": [1]}),
            ["planned by count, without lags: nobody has said where the logs of 1 partition end"],
        ),
    ],
)
def test_what_lags_rest_on_is_told(snapshot: Snapshot, said: list[str]) -> None:
    entry = ledger_pb2.Rebalance(protocol_name="lag", snapshot_json=snapshot.to_json())
    assert [line.plain for line in assignor_lines(entry)] == ["lag", *said]


def test_nodes_whose_clocks_are_apart_tell_of_one_thing_after_the_other() -> None:
    """By time alone what a node an hour behind had told came before what had led to it."""
    hour_ms = 3_600_000
    entries = [
        ledger_pb2.Rebalance(number=1, started_at_ms=2 * hour_ms),
        ledger_pb2.Rebalance(number=2, started_at_ms=5),
    ]
    moves = [
        ledger_pb2.CoordinatorMove(to_node=2, serving_ms=hour_ms),
        ledger_pb2.CoordinatorMove(to_node=3, serving_ms=9 * hour_ms),
        ledger_pb2.CoordinatorMove(to_node=1, serving_ms=1),
    ]
    told = [
        f"to {each.to_node}" if isinstance(each, ledger_pb2.CoordinatorMove) else f"#{each.number}"
        for each in merge_by_time(entries, moves)
    ]
    assert told == ["to 2", "#1", "#2", "to 3", "to 1"]


def story(*entries: ledger_pb2.Rebalance) -> str:
    out = Console(width=200, file=io.StringIO(), highlight=False, markup=False, emoji=False)
    print_story(out, entries)
    assert isinstance(out.file, io.StringIO)
    return out.file.getvalue()


def test_a_phase_names_who_had_not_come_and_nobody_else() -> None:
    """`kill -9 b`, and c at once: the wait was for b, and a, who came in 0.9 s, was blamed."""
    told = story(
        ledger_entry(
            3, "MEMBER_JOINED", 0, ["a", "c"], by="c", took_s=4.88, waits={"b": ("EXPIRED", 4.88), "a": ("JOINED", 0.9)}
        )
    )
    assert "join 4.88 s (waited 4.88 s for b, which never came: it expired; waited 900 ms for a)" in told
    assert "last to join" not in told


def test_an_entry_of_an_older_version_says_who_came_last_and_blames_nobody() -> None:
    old = ledger_pb2.RebalancePhase(name="join", duration_ms=4880, waited_for=[member_id("a")])
    entry = ledger_entry(3, "MEMBER_JOINED", 0, ["a"])
    del entry.phases[:]
    entry.phases.append(old)
    assert "join 4.88 s (last to join a)" in story(entry)


def test_the_initial_delay_is_a_setting_s_and_no_member_s() -> None:
    entry = ledger_entry(1, "MEMBER_JOINED", 0, ["a"], by="a")
    entry.phases.insert(0, ledger_pb2.RebalancePhase(name="initial delay", duration_ms=3000))
    assert "initial delay 3.00 s (group.initial.rebalance.delay.ms)" in story(entry)


def test_a_cause_says_how_it_is_known() -> None:
    inferred = ledger_entry(
        2,
        "POLL_TIMEOUT",
        0,
        ["b"],
        by="a",
        certainty=ledger_pb2.CERTAINTY_INFERRED,
        evidence=f"member {member_id('a')} left, its connection stayed open, and it came back 12 s later",
    )
    unknown = ledger_entry(3, "LEADER_REJOINED", 9, ["b"], by="b", certainty=ledger_pb2.CERTAINTY_UNKNOWN)
    told = story(inferred, unknown)
    assert "poll timeout   by a at 10.0.0.1   inferred: member a left, its connection stayed open" in told
    assert "leader rejoined   by b at 10.0.0.2   unknown" in told


def test_topics_and_who_came_back_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    entry = ledger_entry(
        4,
        "PARTITIONS_CHANGED",
        0,
        ["a2", "b"],
        topics=[
            ledger_pb2.TopicChange(
                topic="orders", kind=ledger_pb2.TOPIC_CHANGE_KIND_GREW, before=3, after=5, at_ms=BEGIN_MS, by="admin"
            )
        ],
        incarnations=[
            ledger_pb2.Incarnation(member_id=member_id("a2"), previous_id=member_id("a"), away_ms=3000, how="left")
        ],
        late_fetches=[
            ledger_pb2.LateFetch(
                member_id=member_id("b"),
                topic="orders",
                partitions=[0, 2],
                after_ms=4200,
                certainty=ledger_pb2.CERTAINTY_RECORDED,
            )
        ],
        triggers=[ledger_pb2.FurtherTrigger(detail=f"member {member_id('b')} joined", at_ms=BEGIN_MS)],
    )
    told = story(entry)
    assert "orders grew from 3 to 5 partitions at 22:13:20 by admin" in told
    assert "a is back under a new id, 3.00 s after a-0000 left" in told
    assert "b was gone, but its client still fetched orders-0 and orders-2 4.20 s later" in told
    assert "22:13:20  member b joined" in told
