"""What a dry run says would move is what the ledger says has moved: members of every kind, every built-in assignor."""

import json
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from muster.assignors.data.values import HELD
from muster.assignors.registry import BUILT_IN
from muster.assignors.run import run
from muster.assignors.tools.problem import solve
from muster.assignors.tools.what_if import what_if
from muster.coordinator.core.groups.state import Step
from muster.coordinator.core.kinds.registry import KINDS
from muster.coordinator.core.model.effects import CanaryReply, Effects, HoldsReply
from muster.coordinator.core.model.events import Event, Planned
from muster.coordinator.core.model.plan import compute_plan
from muster.coordinator.core.model.plan_correction import decide_with_overrides
from muster.coordinator.core.model.records import HoldsStored
from muster.coordinator.core.model.types import GroupState, Outcome
from tests.support.stories.script import Stage

TopicPartition = tuple[str, int]
Moves = dict[TopicPartition, tuple[str, str]]

CLASSIC = {
    "eager": "range",
    "eager sticky": "sticky",
    "mixed": "cooperative-sticky,range",
    "cooperative": "cooperative-sticky",
}
KINDS_OF_MEMBERS = [*CLASSIC, "static", "static cooperative", "consumer", "central"]
NAMES = ("a", "b", "c", "d")
ROUNDS = 30


class RememberingStage(Stage):
    """Keeps the last answer to a command about overrides, or a canary."""

    holds: HoldsReply | CanaryReply | None = None

    def replies(self, effects: Effects):
        for _, reply in effects.replies:
            if isinstance(reply, HoldsReply | CanaryReply):
                self.holds = reply
        return super().replies(effects)


class Play:
    """A group of members of one kind, whose members do what they are told. `lags` are what assignors see."""

    def __init__(self, kind: str, assignor: str, topics: dict[str, int]) -> None:
        self.kind, self.topics = kind, topics
        self.lags = {topic: [0] * count for topic, count in topics.items()}
        self.stage = RememberingStage()
        self.members: list[str] = []
        self.answered = 0
        self.do("limits consumer_assignment_interval_ms=0 initial_rebalance_delay_ms=0")
        self.do(f"topics {' '.join(f'{topic}={count}' for topic, count in topics.items())}")
        self.do("follow g")
        self.stage.run(["set g", f'assignor "{assignor}"'])

    def do(self, command: str) -> None:
        self.stage.run([command])

    # Members

    def enter(self, name: str) -> None:
        topics = f"topics={','.join(self.topics)}"
        self.members.append(name)
        if self.kind == "consumer":
            self.do(f"enter g {name} {topics}")
        elif self.kind == "central":
            self.do(f"register g {name} {topics} session=600s")
        else:
            self.join(name)
        self.settle()

    def leave(self, name: str) -> None:
        self.members.remove(name)
        self.do({"consumer": f"depart g {name}", "central": f"deregister g {name}"}.get(self.kind, f"leave g {name}"))
        if self.kind not in ("consumer", "central"):
            self.do(f"restart g {name}")
        self.settle()

    def join(self, name: str) -> None:
        """As clients do: cooperative ones say what they hold, eager ones hold nothing, `sticky` remembers."""
        word = self.kind.removeprefix("static ") if self.kind != "static" else "eager"
        held = ",".join(f"{topic}-{partition}" for topic, partition in self.share(name))
        said = {"cooperative": f"owned={held}", "eager sticky": f"had={held}"}.get(word, "")
        instance = f" instance=i{name}" if self.kind.startswith("static") else ""
        topics = f"topics={','.join(self.topics)}"
        self.do(f"join g {name} session=600000 rebalance=600000 {topics} protocols={CLASSIC[word]} {said}{instance}")

    def member_id(self, name: str) -> str:
        """As the group knows it: a static member learns its id only with the generation."""
        group = self.stage.shard.groups.get("g")
        return next((m.id for m in group.members.values() if m.client_id == name), "") if group else ""

    def share(self, name: str) -> list[TopicPartition]:
        return [cell for cell, owner in self.owners().items() if owner == self.member_id(name)]

    def settle(self) -> None:
        """Until every member has what the last plan gives it, and nothing is about to follow."""
        for _ in range(ROUNDS):
            busy = self.answer_plans()
            match self.kind:
                case "consumer":
                    before = len(self.stage.records)
                    for name in self.members:
                        self.do(f"beat g {name} owned=all")
                    busy |= len(self.stage.records) > before
                case "central":
                    self.stage.obeyed([])
                case _:
                    busy |= self.settle_classic()
            before = len(self.stage.records)
            self.do("advance 1ms")
            if not busy and len(self.stage.records) == before and self.stage.shard.groups.get("g") is None:
                return
            if not busy and len(self.stage.records) == before and self.at_rest():
                return
        raise AssertionError(f"not settled after {ROUNDS} rounds")

    def settle_classic(self) -> bool:
        group = self.stage.shard.groups["g"]
        if group.state is GroupState.PREPARING_REBALANCE:
            for name in self.members:
                if not group.members[self.member_id(name)].joining:
                    self.join(name)
            return True
        waiting = {member.id for member in group.members.values()} & group.pending_syncs
        for name in self.members:
            if self.member_id(name) in waiting:
                self.do(f"sync g {name}")
        if group.state is GroupState.STABLE and group.carried:
            # Whoever let go says so by joining again.
            losers = {withheld.holder for withheld in group.carried.values()}
            for name in self.members:
                if self.member_id(name) in losers:
                    self.join(name)
            return True
        return bool(waiting)

    def at_rest(self) -> bool:
        group = self.stage.shard.state.groups["g"]
        return KINDS[type(group)].at_rest(group)

    # Plans

    def answer_plans(self) -> bool:
        """What was put off is computed from the lags of this moment, as the edge does."""
        asked = self.stage.asked_plans.get("g", [])
        due = asked[self.answered :]
        self.answered = len(asked)
        for request in due:
            seen = replace(request.snapshot, lags={topic: self.lags[topic] for topic in request.snapshot.topics})
            plan = compute_plan(replace(request, snapshot=seen))
            self.step(Planned("g", request.epoch, plan, "", seen))
        return bool(due)

    def step(self, event: Event) -> None:
        self.stage.obeyed(self.stage.step(event))

    # What is compared

    def owners(self) -> dict[TopicPartition, str]:
        """By the plan that stands."""
        group = self.stage.shard.state.groups.get("g")
        if group is None or not group.members:
            return {}
        snapshot = KINDS[type(group)].snapshot(group, Step(self.stage.shard.state, self.stage.now_ms))
        return {} if snapshot is None else snapshot.owners()

    def forecast(self, verb: str) -> Moves | None:
        """None: refused."""
        self.stage.holds = None
        self.do(f"{verb} dry")
        self.answer_plans()
        reply = self.stage.holds
        assert reply is not None, "a dry run was not answered"
        if reply.code:
            return None
        assert not reply.moves_unknown
        return {(move.topic, move.partition): (move.source, move.target) for move in reply.moves}

    def carry_out(self, verb: str) -> Moves:
        """What the ledger says has moved since, over all rounds."""
        known = max(self.stage.shard.ledgers["g"].entries, default=0)
        self.do(verb)
        self.settle()
        moved: Moves = {}
        for number, entry in sorted(self.stage.shard.ledgers["g"].entries.items()):
            if number <= known or entry.outcome is not Outcome.COMPLETED:
                continue
            for move in entry.moves:
                source, _ = moved.get((move.topic, move.partition), (move.source, ""))
                moved[move.topic, move.partition] = source, move.target
        return {cell: (source, target) for cell, (source, target) in moved.items() if source != target}

    def check_snapshots(self) -> None:
        """`muster assign` gives each plan on record for its snapshot, unless an operator's word came after it."""
        for entry in self.stage.shard.ledgers["g"].entries.values():
            problem = json.loads(entry.snapshot_json) if entry.snapshot_json else {"options": {HELD: "nothing"}}
            if HELD not in problem.get("options", {}):
                plan = {member: share for member, share in solve(problem).items() if share}
                assert plan == {
                    member.member_id: {topic: list(partitions) for topic, partitions in member.assigned}
                    for member in entry.members
                    if member.assigned
                }


histories = st.lists(st.sampled_from(NAMES), min_size=2, max_size=7)
topic_counts = st.dictionaries(st.sampled_from(["t", "u"]), st.integers(1, 6), min_size=1)
lags = st.lists(st.sampled_from([0, 1, 10, 500]), min_size=12, max_size=12)


def played(kind: str, assignor: str, topics: dict[str, int], history: list[str], figures: list[int]) -> Play:
    """A member of the history that is there leaves, if it is not the last; one that is not there comes."""
    play = Play(kind, assignor, topics)
    for name in history:
        if name not in play.members:
            play.enter(name)
        elif len(play.members) > 1:
            play.leave(name)
    rest = iter(figures)
    play.lags = {topic: [next(rest) for _ in range(count)] for topic, count in topics.items()}
    return play


@pytest.mark.parametrize("kind", KINDS_OF_MEMBERS)
@settings(max_examples=25, deadline=None)
@given(
    assignor=st.sampled_from(sorted(BUILT_IN)),
    topics=topic_counts,
    history=histories,
    figures=lags,
    name=st.sampled_from(NAMES),
    verb=st.sampled_from(["drain", "pin", "freeze", "deploy"]),
)
def test_a_dry_run_says_what_then_moves(
    kind: str, assignor: str, topics: dict[str, int], history: list[str], figures: list[int], name: str, verb: str
) -> None:
    play = played(kind, assignor, topics, history, figures)
    words = {
        "drain": f"drain g by=client-id name={name}",
        "pin": f"pin g at={min(topics)}-0 name={name}",
        "freeze": "freeze g",
        "deploy": "deploy g expect=1",
    }
    foreseen = play.forecast(words[verb])
    if foreseen is not None:
        assert play.carry_out(words[verb]) == foreseen
        foreseen = play.forecast("resume g")
        assert play.carry_out("resume g") == foreseen
    play.check_snapshots()


@pytest.mark.parametrize("kind", KINDS_OF_MEMBERS)
@pytest.mark.parametrize("assignor", sorted(BUILT_IN))
def test_a_drain_of_one_of_three_members_comes_true(kind: str, assignor: str) -> None:
    play = played(kind, assignor, {"t": 6}, ["a", "b", "c"], [0, 500, 10, 0, 1, 10] * 2)
    foreseen = play.forecast("drain g by=client-id name=c")
    assert foreseen
    assert play.carry_out("drain g by=client-id name=c") == foreseen
    if assignor in ("sticky", "cooperative-sticky", "uniform"):
        assert len(foreseen) == 2, "a sticky assignor moves no more than it must"


@pytest.mark.parametrize("kind", KINDS_OF_MEMBERS)
@settings(max_examples=15, deadline=None)
@given(
    assignors=st.tuples(st.sampled_from(sorted(BUILT_IN)), st.sampled_from(sorted(BUILT_IN))),
    topics=topic_counts,
    history=histories,
    figures=lags,
    drained=st.sampled_from([*NAMES, ""]),
)
def test_a_dry_run_of_a_canary_says_what_then_moves(
    kind: str,
    assignors: tuple[str, str],
    topics: dict[str, int],
    history: list[str],
    figures: list[int],
    drained: str,
) -> None:
    former, candidate = assignors
    play = played(kind, former, topics, history, figures)
    if drained:
        play.carry_out(f"drain g by=client-id name={drained}")
    foreseen = play.forecast(f"canary g {candidate} for=30m")
    if foreseen is not None:
        assert play.carry_out(f"canary g {candidate} for=30m") == foreseen


@pytest.mark.parametrize("kind", ["cooperative", "consumer", "central"])
@settings(max_examples=20, deadline=None)
@given(
    candidate=st.sampled_from(sorted(BUILT_IN)),
    topics=topic_counts,
    history=histories,
    figures=lags,
    held=st.sampled_from(["", "drain g by=client-id name=a", "pin g at=t-0 name=b", "freeze g"]),
)
def test_a_preview_under_what_is_held_is_what_a_canary_would_move(
    kind: str, candidate: str, topics: dict[str, int], history: list[str], figures: list[int], held: str
) -> None:
    play = played(kind, "range", topics, history, figures)
    if held:
        play.carry_out(held)
    foreseen = play.forecast(f"canary g {candidate} for=30m")
    if foreseen is None:
        return
    state = play.stage.shard.state
    group = state.groups["g"]
    step = Step(state, play.stage.now_ms)
    snapshot, situation = KINDS[type(group)].snapshot(group, step), KINDS[type(group)].situation(group, step)
    assert snapshot is not None
    seen = replace(snapshot, lags={topic: play.lags[topic] for topic in snapshot.topics}, options={})
    decide = decide_with_overrides(state.holds.get("g") or HoldsStored("g"), situation.who, run)
    preview = what_if(seen, candidate, decide=decide)
    moves = {(move.topic, move.partition): (move.source or "", move.target or "") for move in preview.moves}
    assert moves == foreseen or (not foreseen and candidate == "range")
    assert ("as operators hold the group" in preview.note) is (not (state.holds.get("g") or HoldsStored("g")).nothing)
