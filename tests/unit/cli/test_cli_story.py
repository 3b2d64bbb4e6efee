"""A ledger entry as people read it."""

import io

import pytest
from rich.console import Console

from muster.coordinator.cli.groups.story import INDENT, MAX_MOVE_LINES, tell
from muster.coordinator.rpc.v1 import ledger_pb2 as pb
from muster.coordinator.views.ledger import document

KILLED = "worker-2-1f0e5d3c-0000-4000-8000-000000000002"
LEFT = "worker-1-2f0e5d3c-0000-4000-8000-000000000001"


def entry() -> pb.Rebalance:
    found = pb.Rebalance(
        group_id="demo",
        number=2,
        previous_generation=1,
        generation=2,
        protocol_name="sticky",
        cause=pb.REBALANCE_CAUSE_SESSION_EXPIRED,
        culprit=KILLED,
        culprit_client_host="10.0.0.2",
        detail=f"member {KILLED} was not heard of for 3000 ms",
        outcome=pb.REBALANCE_OUTCOME_COMPLETED,
        started_at_ms=1_750_000_000_000,
        ended_at_ms=1_750_000_000_420,
        unowned_partition_seconds=6.84,
        also=[f"member {LEFT} rejoined"],
    )
    found.phases.add(name="join", duration_ms=400, waited_for=["x", LEFT])
    found.phases.add(name="plan", duration_ms=20, waited_for=[LEFT])
    for partition, unowned_ms in ((4, 3420), (5, 3420), (6, -1)):
        found.moves.add(
            topic="t", partition=partition, source=KILLED, target=LEFT, unowned_ms=unowned_ms, why="expired"
        )
    found.moves.add(topic="t", partition=7, source=KILLED, target="", unowned_ms=-1, why="withheld")
    found.members.add(member_id=LEFT).assigned.add(topic="t", partitions=[4, 5, 6])
    return found


def story(found: pb.Rebalance, *, full: bool = False) -> str:
    out = Console(file=io.StringIO(), record=True, width=60)
    tell(out, [found], full=full)
    return out.export_text()


def test_g9_where_the_coordinator_moved_stands_among_the_rebalances() -> None:
    before, after = entry(), entry()
    after.started_at_ms += 60_000
    move = pb.CoordinatorMove(
        from_node=1, to_node=2, cause="node 1 died", last_heard_ms=before.started_at_ms + 30_000, members=340
    )
    move.serving_ms = move.last_heard_ms + 1_200
    out = Console(file=io.StringIO(), record=True, width=120)
    tell(out, [before, after], [move])
    heads = [line for line in out.export_text().splitlines() if line.startswith(("Rebalance", "Coordinator"))]
    assert [head.split()[0] for head in heads] == ["Rebalance", "Coordinator", "Rebalance"]
    assert heads[1].startswith("Coordinator moved   node 1 -> 2   ")
    assert heads[1].endswith("took 1.20 s   node 1 died; 340 members kept")


def test_cause_culprit_phases_moves_and_unowned_times_are_told() -> None:
    text = story(entry())
    assert "Rebalance 2   generation 1 -> 2" in text
    assert "took 420 ms   completed" in text
    assert "cause    session expired   by worker-2 at 10.0.0.2" in text
    assert "why      member worker-2 was not heard of for 3000 ms" in text
    assert "join 400 ms (last to join worker-1)   plan 20 ms (planned by worker-1)" in text
    assert "assignor sticky" in text
    assert "4 partitions, 6.84 partition-seconds unowned" in text
    assert "t[4-6]   worker-2 -> worker-1   unowned 3.42 s   expired" in text
    assert "t[7]   worker-2 -> nobody   withheld" in text
    assert "also     member worker-1 rejoined" in text


def test_a_terminal_gets_long_lines_wrapped_below_their_beginning() -> None:
    out = Console(file=io.StringIO(), record=True, width=60, force_terminal=True)
    tell(out, [entry(), entry()])
    lines = out.export_text().splitlines()
    assert max(len(line) for line in lines[1:] if line.startswith(" ")) <= 60
    wrapped = next(at for at, line in enumerate(lines) if line.startswith("  phases")) + 1
    assert lines[wrapped].startswith(" " * INDENT + "(planned")


def test_an_assignor_that_ran_on_the_coordinator_is_named_and_not_the_members_protocol() -> None:
    found = entry()
    found.snapshot_source = "remote"
    found.snapshot_json = '{"assignor": "uniform"}'
    assert "assignor uniform (on the coordinator)" in story(found)


def test_full_names_are_shown_when_asked_for() -> None:
    assert f"by {KILLED} at 10.0.0.2" in story(entry(), full=True)


def test_a_partition_that_still_waits_for_its_owner_says_so() -> None:
    found = entry()
    del found.moves[:]
    found.moves.add(topic="t", partition=1, source="", target=LEFT, unowned_ms=-1)
    assert "t[1]   nobody -> worker-1   still unowned" in story(found)


def test_many_moves_are_cut_with_a_remark() -> None:
    found = entry()
    for number in range(40):
        found.moves.add(topic=f"t{number:02}", partition=0, source=KILLED, target=LEFT, unowned_ms=1)
    assert f"... and {42 - MAX_MOVE_LINES} lines more; -o json shows them all" in story(found)


def test_the_clients_own_reason_is_told_unless_the_sentence_has_it() -> None:
    found = entry()
    found.client_reason = "poll timeout"
    assert 'said     "poll timeout"' in story(found)
    found.detail += ": poll timeout"
    assert "said" not in story(found)


def test_an_assignor_that_failed_is_told_with_what_the_group_got_instead() -> None:
    found = entry()
    found.snapshot_json = '{"options": {"fallback": "range", "reason": "assignor \'mine\': raised ValueError()"}}'
    text = story(found)
    assert "FAILED: assignor 'mine': raised ValueError()" in text
    assert "the group got this plan instead: range" in text


@pytest.mark.parametrize("snapshot", ["", "{}", "[]", "no json", '{"options": [1]}', '{"options": {}}'])
def test_snapshots_of_any_kind_are_borne(snapshot: str) -> None:
    found = entry()
    found.snapshot_json = snapshot
    assert "FAILED" not in story(found)


def test_json_holds_every_field_numbers_as_numbers_and_the_snapshot_unpacked() -> None:
    found = entry()
    found.snapshot_json = '{"topics": {"t": 8}}'
    told_to_programs = document(found)
    assert told_to_programs["number"] == 2
    assert told_to_programs["cause"] == "SESSION_EXPIRED"
    assert told_to_programs["outcome"] == "COMPLETED"
    assert told_to_programs["phases"][0] == {"name": "join", "duration_ms": 400, "waited_for": ["x", LEFT]}
    assert told_to_programs["moves"][2]["unowned_ms"] == -1
    assert told_to_programs["client_reason"] == ""
    assert told_to_programs["snapshot"] == {"topics": {"t": 8}}
