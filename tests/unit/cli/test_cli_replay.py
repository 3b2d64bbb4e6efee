"""`muster replay` on recorded ledgers: the same plan again, another plan, and whatever cannot be replayed."""

import json
from pathlib import Path
from typing import Any

import pytest

from muster.assignors.api import Member, Snapshot
from muster.assignors.registry import resolve
from muster.assignors.run import run
from muster.cli.common.commands import Exit
from muster.cli.main import main
from muster.client.members.actions import MakePlan
from muster.client.members.delayed_rebalance import DelayedLeader
from muster.coordinator.core.model.types import DELAYED
from tests.support.stories.delayed import shares, worker


def entry(number: int, snapshot: Snapshot | None, plan: dict[str, dict[str, list[int]]], **more: Any) -> dict[str, Any]:
    members = [
        {"member_id": member, "assigned": [{"topic": t, "partitions": ps} for t, ps in share.items()]}
        for member, share in plan.items()
    ]
    return {
        "number": number,
        "generation": number,
        "cause": "MEMBER_JOINED",
        "outcome": "COMPLETED",
        "protocol_name": snapshot.assignor if snapshot else "range",
        "snapshot_source": "leader" if snapshot else "",
        "members": members,
        "snapshot": json.loads(snapshot.to_json()) if snapshot else None,
    } | more


def group_of(*members: str, assignor: str = "range", **options: Any) -> Snapshot:
    return Snapshot({"t": 4}, [Member(name, ("t",)) for name in members], assignor=assignor, options=options)


def decided(number: int, *members: str) -> dict[str, Any]:
    snapshot = group_of(*members)
    return entry(number, snapshot, run(resolve("range"), snapshot).to_dict())


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.json"


def replay(
    capsys: pytest.CaptureFixture[str], ledger: Path, entries: object, *arguments: str
) -> tuple[int, list[dict[str, Any]], str]:
    ledger.write_text(json.dumps(entries))
    code = main(["replay", str(ledger), "-o", "json", *arguments])
    out, err = capsys.readouterr()
    return code, json.loads(out) if out else [], err


def test_a_plan_comes_out_as_recorded(capsys: pytest.CaptureFixture[str], ledger: Path) -> None:
    code, rows, _ = replay(capsys, ledger, [decided(2, "a", "b"), decided(1, "a")])
    assert code == Exit.OK
    assert [(row["number"], row["plan"], row["moves"], row["spread"]) for row in rows] == [
        (1, "same", 0, "4-4"),
        (2, "same", 2, "2-2"),
    ]


def test_the_assignor_that_the_coordinator_ran_is_named(capsys: pytest.CaptureFixture[str], ledger: Path) -> None:
    snapshot = group_of("a", "b", assignor="uniform")
    plan = run(resolve("uniform"), snapshot).to_dict()
    recorded = entry(1, snapshot, plan, protocol_name="range", snapshot_source="setting")
    code, rows, _ = replay(capsys, ledger, [recorded])
    assert code == Exit.OK
    assert [(row["assignor"], row["plan"]) for row in rows] == [("uniform", "same")]


def test_another_assignor_is_shown_beside_it(capsys: pytest.CaptureFixture[str], ledger: Path) -> None:
    code, rows, _ = replay(capsys, ledger, [decided(1, "a"), decided(2, "a", "b")], "--assignor", "roundrobin")
    assert code == Exit.OK
    assert [(row["other_moves"], row["other_spread"]) for row in rows] == [(0, "4-4"), (2, "2-2")]


def test_a_plan_that_nobody_would_make_again_is_named(capsys: pytest.CaptureFixture[str], ledger: Path) -> None:
    lied = entry(1, group_of("a", "b"), {"a": {"t": [0, 1, 2]}, "b": {"t": [3]}})
    code, rows, _ = replay(capsys, ledger, [lied])
    assert code == Exit.FAILURE
    assert (rows[0]["plan"], rows[0]["detail"]) == ("differs", "t-2 went to a, now to b")
    assert main(["replay", str(ledger)]) == Exit.FAILURE
    out, err = capsys.readouterr()
    assert "differs" in out
    assert "0 of 1 plans came out as recorded." in err
    assert "Rebalance 1: t-2 went to a, now to b." in err


def test_what_cannot_be_replayed_says_why(capsys: pytest.CaptureFixture[str], ledger: Path) -> None:
    failed = group_of("a", fallback="range", reason="out of cheese")
    entries = [
        entry(1, None, {"a": {"t": [0]}}, snapshot_source="left out: too large"),
        entry(2, failed, {"a": {"t": [0, 1, 2, 3]}}),
        entry(3, group_of("a", assignor="no-such-thing"), {"a": {}}),
        entry(4, None, {}, outcome="SUPERSEDED"),
    ]
    code, rows, _ = replay(capsys, ledger, entries)
    assert code == Exit.FAILURE
    assert [row["plan"] for row in rows] == ["no snapshot", "fallback", "failed"]
    assert rows[0]["detail"] == "left out: too large"
    assert "out of cheese" in rows[1]["detail"]
    assert "no-such-thing" in rows[2]["detail"]


def test_what_an_operator_held_is_shown_with_another_assignor_beside_it(
    capsys: pytest.CaptureFixture[str], ledger: Path
) -> None:
    held = entry(1, group_of("a", "b", held="pins"), {"a": {"t": [0]}, "b": {"t": [1, 2, 3]}})
    code, rows, _ = replay(capsys, ledger, [held], "--assignor", "uniform")
    assert (code, rows[0]["plan"], rows[0]["detail"]) == (Exit.OK, "held", "the assignor's word was not the last: pins")
    assert rows[0]["other_spread"] == "2-2"


def test_a_delayed_group_is_replayed_with_what_its_leader_knew(
    capsys: pytest.CaptureFixture[str], ledger: Path
) -> None:
    leader = DelayedLeader(300_000)
    entries = []
    for number, members in ((1, (worker("a"), worker("b"))), (2, (worker("a", "r", "t"),))):
        planned = leader.plan(MakePlan(number, DELAYED, members, number - 1 or -1), number * 1_000)
        plan = {member: {name: [0] for name in names} for member, names in shares(planned).items()}
        entries.append(entry(number, Snapshot.from_json(planned.snapshot), plan))
    code, rows, _ = replay(capsys, ledger, entries)
    assert (code, [row["plan"] for row in rows]) == (Exit.OK, ["same", "same"])


def test_a_plan_of_the_coordinator_holds_back_what_members_still_have(
    capsys: pytest.CaptureFixture[str], ledger: Path
) -> None:
    members = [Member("a", ("t",), {"t": [0, 1, 2, 3]}, 1), Member("b", ("t",), {}, 1)]
    snapshot = Snapshot({"t": 4}, members, assignor="range")
    code, rows, _ = replay(
        capsys, ledger, [entry(1, snapshot, {"a": {"t": [0, 1]}, "b": {}}, snapshot_source="remote")]
    )
    assert (code, rows[0]["plan"]) == (Exit.OK, "same")


def test_a_target_is_the_whole_plan(capsys: pytest.CaptureFixture[str], ledger: Path) -> None:
    members = [Member("a", ("t",), {"t": [0, 1, 2, 3]}, 1), Member("b", ("t",), {}, 1)]
    snapshot = Snapshot({"t": 4}, members, assignor="uniform")
    plan = {"a": {"t": [0, 1]}, "b": {"t": [2, 3]}}
    code, rows, _ = replay(capsys, ledger, [entry(1, snapshot, plan, snapshot_source="target")])
    assert (code, rows[0]["plan"]) == (Exit.OK, "same")


def test_a_range_of_numbers_is_replayed_against_the_plan_before_it(
    capsys: pytest.CaptureFixture[str], ledger: Path
) -> None:
    entries = [decided(1, "a"), decided(2, "a", "b"), decided(3, "a", "b")]
    _, rows, _ = replay(capsys, ledger, entries, "--from", "2", "--to", "2")
    assert [(row["number"], row["moves"]) for row in rows] == [(2, 2)]
    assert main(["replay", str(ledger), "--from", "9"]) == Exit.OK
    assert "No rebalance" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "exactly one of the two"),
        (["--from", "3", "--to", "2"], "--to 2 is before --from 3"),
        (["--assignor", "rnge"], "rnge"),
    ],
)
def test_wrong_use_is_explained(
    capsys: pytest.CaptureFixture[str], ledger: Path, arguments: list[str], said: str
) -> None:
    ledger.write_text(json.dumps([decided(1, "a")]))
    code = main(["replay", *([str(ledger)] if arguments else []), *arguments])
    assert code == Exit.USAGE
    assert said in capsys.readouterr().err


@pytest.mark.parametrize("text", ["{}", "no json", "[1]", '[{"outcome": "COMPLETED"}]'])
def test_a_file_that_is_no_ledger_is_a_usage_error(capsys: pytest.CaptureFixture[str], ledger: Path, text: str) -> None:
    ledger.write_text(text)
    assert main(["replay", str(ledger)]) == Exit.USAGE
    assert "error:" in capsys.readouterr().err
