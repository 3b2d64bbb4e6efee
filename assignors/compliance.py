"""The compliance suite that every assignor must pass, built in or a plugin.

With pytest, three lines:

    from muster.assignors.compliance import AssignorCompliance
    class TestMine(AssignorCompliance):
        assignor = MyAssignor()

Without pytest: `examine(MyAssignor())` returns a report.

Each check of a plugin runs in a process of its own, with a deadline of `deadline_ms`: a plugin that hangs, exits or
uses too much memory fails the check. A class that another process cannot import (one inside a function) is checked in
a thread of this process, where a deadline cannot interrupt a long call in C.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from muster.assignors.api import Assignment, Assignor, AssignorError, Member, RebalanceProtocol, Snapshot
from muster.assignors.data.values import raw_claims
from muster.assignors.plugin_pool import DEADLINE_MS, run_in_thread, shared_isolation
from muster.assignors.plugin_process import PluginEnded, PluginOverran, UnsendablePlugin
from muster.assignors.run import is_ours, run

MAX_ROUNDS = 2  # A cooperative hand-over: let go, then take.
LATE = "was not done after {deadline_ms} ms; mend it, or give it longer"


@dataclass(frozen=True, slots=True)
class Finding:
    """One check on one group: `problem` is empty when it passed."""

    check: str
    group: str
    problem: str

    @property
    def passed(self) -> bool:
        return not self.problem


@dataclass(frozen=True, slots=True)
class Report:
    """All findings about one assignor."""

    assignor: str
    findings: tuple[Finding, ...]

    @property
    def passed(self) -> bool:
        return all(finding.passed for finding in self.findings)

    def failures(self) -> list[Finding]:
        return [finding for finding in self.findings if not finding.passed]

    def __str__(self) -> str:
        bad = self.failures()
        lines = [f"{self.assignor}: {len(self.findings) - len(bad)} of {len(self.findings)} checks passed"]
        lines += [f"  {finding.check} [{finding.group}]: {finding.problem}" for finding in bad]
        return "\n".join(lines)


def groups() -> dict[str, Snapshot]:
    """Return named groups that have broken assignors before; small enough to read."""
    both = ("t", "u")
    return {
        "nobody": Snapshot({"t": 3}, []),
        "no topics": Snapshot({}, [Member("a", ("t",))]),
        "empty topic": Snapshot({"t": 0, "u": 2}, [Member("a", both)]),
        "alone": Snapshot({"t": 5}, [Member("a", ("t",))]),
        "equal": Snapshot({"t": 7, "u": 3}, [Member(word, both) for word in "abc"]),
        "more members than partitions": Snapshot({"t": 2}, [Member(word, ("t",)) for word in "abcde"]),
        "unequal": Snapshot(
            {"t": 4, "u": 4, "v": 1},
            [Member("a", ("t",)), Member("b", both), Member("c", ("u", "v")), Member("d", ("v",))],
        ),
        # A pattern that matches nothing: Java 4.3.0 gives such a member partitions it never asked for.
        "empty subscription": Snapshot({"t": 4}, [Member("a", ()), Member("b", ("t",)), Member("c", ("t",))]),
        "unknown topic": Snapshot({"t": 2}, [Member("a", ("t", "gone")), Member("b", ("gone",))]),
        "static and dynamic": Snapshot(
            {"t": 5}, [Member("z", ("t",), instance_id="i1"), Member("a", ("t",)), Member("b", ("t",))]
        ),
        "owned": _owned({"a": {"t": [0, 1, 2], "u": [0]}, "b": {"t": [3], "u": [1, 2]}}, {"t": 4, "u": 3}),
        "newcomer": Snapshot(
            {"t": 6},
            [Member("a", ("t",), {"t": [0, 1, 2]}, 4), Member("b", ("t",), {"t": [3, 4, 5]}, 4), Member("c", ("t",))],
        ),
        # Claims beyond the end of a topic that was made anew with fewer partitions.
        "shrunk": _owned({"a": {"t": [0, 5]}, "b": {"t": [1, 4]}}, {"t": 3}),
        "conflicting claims": Snapshot(
            {"t": 4},
            [
                Member("a", ("t",), {"t": [0, 1]}, 3),
                Member("b", ("t",), {"t": [1, 2]}, 5),
                Member("c", ("t",), {"t": [3]}, 5),
            ],
        ),
        "tied claims": Snapshot({"t": 2}, [Member("a", ("t",), {"t": [0, 1]}, 3), Member("b", ("t",), {"t": [0]}, 3)]),
        "stale claim to a topic no longer read": Snapshot(
            {"t": 2, "u": 2}, [Member("a", ("u",), {"t": [0, 1]}, 2), Member("b", both, {"u": [0]}, 3)]
        ),
        "racks": Snapshot(
            {"t": 4},
            [Member("a", ("t",), rack="r1"), Member("b", ("t",), rack="r2")],
            racks={"t": [["r2"], ["r1"], ["r2"], ["r1"]]},
        ),
        "lags": Snapshot({"t": 4}, [Member("a", ("t",)), Member("b", ("t",))], lags={"t": [900, 5, 0, 40]}),
        "many": Snapshot(
            {f"t{n}": n for n in range(1, 13)},
            [Member(f"m{n}", tuple(f"t{k}" for k in range(1 + n % 3, 13))) for n in range(9)],
        ),
    }


def examine(assignor: Assignor, deadline_ms: int = DEADLINE_MS) -> Report:
    """Run every check on every group. After a check that hung or ended its process, no more are tried."""
    findings: list[Finding] = []
    stopped = ""
    for check in CHECKS:
        for name in groups():
            problem = stopped
            if not stopped:
                try:
                    problem = outcome(check, name, assignor, deadline_ms)
                except (PluginOverran, PluginEnded) as error:
                    problem, stopped = str(error), f"not tried after [{name}] of {check!r}"
            findings.append(Finding(check, name, problem))
    return Report(assignor.name, tuple(findings))


def outcome(check: str, group: str, assignor: Assignor, deadline_ms: int) -> str:
    """What is wrong, or nothing. Raises PluginOverran and PluginEnded."""
    if is_ours(assignor):
        return found(check, group, assignor)
    try:
        answer, _ = shared_isolation().ask_plugin(assignor, {"check": check, "group": group}, b"", deadline_ms, LATE)
    except UnsendablePlugin as error:
        warnings.warn(f"{error}; it is checked in this process", stacklevel=2)
        late = LATE.format(deadline_ms=deadline_ms)
        return run_in_thread(assignor.name, lambda: found(check, group, assignor), deadline_ms, late)
    except (PluginOverran, PluginEnded):
        raise
    except AssignorError as error:
        return str(error)
    return str(answer["problem"])


def found(check: str, group: str, assignor: Assignor) -> str:
    """One check on one group, here and untimed: what is wrong, or nothing."""
    try:
        return CHECKS[check](assignor, groups()[group])
    except ValueError as error:
        return str(error)


def check_valid(assignor: Assignor, snapshot: Snapshot) -> str:
    """Each partition of a subscribed topic goes to exactly one subscriber."""
    run(assignor, snapshot)
    return ""


def check_repeatable(assignor: Assignor, snapshot: Snapshot) -> str:
    """The same snapshot gives the same assignment, also after a trip through the ledger."""
    first = _plan(assignor, snapshot)
    if _plan(assignor, snapshot) != first:
        return "two runs on the same snapshot differ"
    if _plan(assignor, Snapshot.from_json(snapshot.to_json())) != first:
        return "the snapshot read back from JSON gives another assignment"
    return ""


def check_order_blind(assignor: Assignor, snapshot: Snapshot) -> str:
    """The order in which members and topics are listed does not matter."""
    turned = replace(
        snapshot,
        topics=dict(reversed(list(snapshot.topics.items()))),
        members=[replace(member, topics=tuple(reversed(member.topics))) for member in reversed(snapshot.members)],
    )
    same = _plan(assignor, snapshot) == _plan(assignor, turned)
    return "" if same else "another order of members or topics gives another assignment"


def check_leaves_snapshot_alone(assignor: Assignor, snapshot: Snapshot) -> str:
    """Assigning changes nothing in the snapshot."""
    before = snapshot.to_json()
    run(assignor, snapshot)
    return "" if snapshot.to_json() == before else "the snapshot was changed; copy what you want to change"


def check_converges(assignor: Assignor, snapshot: Snapshot) -> str:
    """A cooperative assignor has handed everything out after two rounds; nothing is given out too early."""
    if assignor.protocol is not RebalanceProtocol.COOPERATIVE:
        return ""
    current = run(assignor, snapshot)
    claimed = raw_claims(snapshot.members)
    unclaimed = [tp for tp in current.withheld if tp not in claimed]
    if unclaimed:
        return f"{unclaimed[0]} was withheld although nobody claims it"
    rounds = 1
    while current.withheld:
        if rounds == MAX_ROUNDS:
            return f"{len(current.withheld)} partitions are still withheld after {MAX_ROUNDS} rounds"
        snapshot = settled(snapshot, current)
        current = run(assignor, snapshot)
        rounds += 1
    return ""


def settled(snapshot: Snapshot, assignment: Assignment) -> Snapshot:
    """The next round: every member owns exactly what it was given."""
    generation = max((member.generation for member in snapshot.members), default=0) + 1
    members = [
        replace(member, owned=assignment.members[member.id], generation=generation) for member in snapshot.members
    ]
    return replace(snapshot, members=members)


CHECKS: Mapping[str, Callable[[Assignor, Snapshot], str]] = {
    "valid": check_valid,
    "repeatable": check_repeatable,
    "order-blind": check_order_blind,
    "leaves the snapshot alone": check_leaves_snapshot_alone,
    "converges": check_converges,
}


class AssignorCompliance:
    """Subclass it in a test module, name it Test..., and set `assignor`."""

    assignor: Assignor
    deadline_ms: int = DEADLINE_MS
    """For one check on one group."""

    def test_gives_each_partition_to_one_subscriber(self) -> None:
        self._all("valid")

    def test_answers_the_same_twice(self) -> None:
        self._all("repeatable")

    def test_does_not_look_at_the_order_of_the_lists(self) -> None:
        self._all("order-blind")

    def test_leaves_the_snapshot_alone(self) -> None:
        self._all("leaves the snapshot alone")

    def test_hands_over_in_two_rounds(self) -> None:
        self._all("converges")

    def _all(self, check: str) -> None:
        for name, snapshot in groups().items():
            try:
                problem = outcome(check, name, self.assignor, self.deadline_ms)
            except (PluginOverran, PluginEnded) as error:
                problem = str(error)
            if problem:
                raise AssertionError(f"{self.assignor.name} [{name}]: {problem}\n{snapshot.to_json()}")


def _plan(assignor: Assignor, snapshot: Snapshot) -> str:
    return json.dumps(run(assignor, snapshot).to_dict(), sort_keys=True)


def _owned(owned: Mapping[str, Mapping[str, list[int]]], topics: Mapping[str, int]) -> Snapshot:
    return Snapshot(topics, [Member(word, tuple(topics), claim, 7) for word, claim in owned.items()])
