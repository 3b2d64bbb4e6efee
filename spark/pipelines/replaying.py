"""One history under one assignor. Pure: the same trace, candidate and model give the same score, digit for digit.

A replay keeps what the assignor decided: what members own at a rebalance is what the last plan gave them, not what
was recorded. A cooperative plan is carried through its rounds as members carry it through: what must be let go
first is given out in the next round, for which the assignor is asked again.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from muster.assignors.api import Assignment, Assignor, JsonValue, Member, RebalanceProtocol, Snapshot
from muster.assignors.data.axis import Axis
from muster.spark.assignor_deadline import DEADLINE_MS, run_in_time
from muster.spark.pipelines.candidates import BacktestCandidate
from muster.spark.pipelines.scoring import Holdings, Ints, ReplayScore, ScoreTally
from muster.spark.pipelines.trace import GroupTrace, TraceStep

NOBODY = -1
NEVER = -1
MAX_ROUNDS = 8
"""Of one rebalance; whoever has not come to rest then is counted as unsettled."""
LONGER = "mend it, or give it longer by --deadline"


@dataclass(frozen=True, slots=True)
class HandoverModel:
    """How long members need. `round_ms`: from the call to rejoin until the share is fetched; a heartbeat interval, at
    which members hear of it when nothing is pushed to them, is Kafka's figure."""

    round_ms: int = 3_000

    def __post_init__(self) -> None:
        if not 0 <= self.round_ms <= 3_600_000:
            raise ValueError(f"round_ms is {self.round_ms}; expected 0 to 3600000")


def replay(
    trace: GroupTrace, candidate: BacktestCandidate, model: HandoverModel, deadline_ms: int = DEADLINE_MS
) -> ReplayScore:
    """Raises AssignorError as soon as the assignor fails; a replay with a failed plan has no score.

    `deadline_ms` is for one plan of an assignor that is a plugin; Overran is raised at its end.
    """
    return GroupReplay(trace, candidate, model, deadline_ms).run()


class GroupReplay:
    """The group between two steps of a history."""

    def __init__(self, trace: GroupTrace, candidate: BacktestCandidate, model: HandoverModel, deadline_ms: int) -> None:
        self._trace, self._candidate, self._model, self._deadline_ms = trace, candidate, model, deadline_ms
        self._assignor: Assignor = candidate.resolve()
        self._cooperative = self._assignor.protocol is RebalanceProtocol.COOPERATIVE
        self._recalls = bool(getattr(self._assignor, "wants_moves", self._assignor.name == "lag-sticky"))
        self._axis: Axis = trace.axis
        size = self._axis.size
        self._places = [(topic, n) for topic, most in zip(trace.topics, trace.counts, strict=True) for n in range(most)]
        """The axis, place by place."""
        self._tally = ScoreTally()
        self._owner = np.full(size, NOBODY, dtype=np.int64)
        self._lag = np.zeros(size, dtype=np.int64)
        self._idle_since = np.full(size, NEVER, dtype=np.int64)
        """Since when a partition that had an owner is without one."""
        self._stopped_ms = np.zeros(size, dtype=np.int64)
        """How long after the last decision a partition still stood still."""
        self._stopped = False
        self._holdings = Holdings(self._owner)
        self._moved_at: dict[int, int] = {}
        self._known: set[int] = set()
        self._generation = 0
        self._number = {member.id: number for number, member in enumerate(trace.members)}

    def run(self) -> ReplayScore:
        steps = self._trace.steps
        for at, step in enumerate(steps):
            self._let_pass(at)
            if step.cause:
                self._decide(step)
            until_ms = steps[at + 1].at_ms if at + 1 < len(steps) else self._trace.end_ms
            length_ms, existing = until_ms - step.at_ms, sum(step.counts)
            self._tally.stretch(self._holdings, len(step.present), self._lag, existing, length_ms)
        return self._tally.score(self._cooperative)

    def _let_pass(self, at: int) -> None:
        """What arrived and what was worked off between the step before and this one."""
        load = self._trace.load[at]
        if not self._trace.drain_per_s:
            self._lag = load
            return
        self._lag = self._lag + load
        if at:
            before = self._trace.steps[at - 1]
            self._work(before, self._trace.steps[at].at_ms - before.at_ms)

    def _work(self, step: TraceStep, length_ms: int) -> None:
        """Members work off their lag, first without what still stands still after the decision."""
        if not step.silent and not self._stopped:
            budget = self._trace.drain_per_s * length_ms // 1000
            self._lag = work_off_all(self._lag, self._holdings, budget)
            return
        if step.silent:
            self._stopped_ms[np.isin(self._owner, step.silent)] = length_ms
        edges = np.unique(np.minimum(self._stopped_ms, length_ms))
        done_ms = 0
        for edge in [*edges.tolist(), length_ms]:
            if edge > done_ms:
                running = (self._owner >= 0) & (self._stopped_ms <= done_ms)
                budget = self._trace.drain_per_s * (edge - done_ms) // 1000
                self._lag = work_off(self._lag, self._owner, running, budget)
                done_ms = edge
        self._stopped_ms = np.maximum(self._stopped_ms - length_ms, 0)
        self._stopped = bool(self._stopped_ms.any())

    def _decide(self, step: TraceStep) -> None:
        before = self._owner.copy()
        for member, since_ms in step.lost:
            mine = (before == member) & (self._idle_since == NEVER)
            self._idle_since[mine] = since_ms
        fresh = self._rebalance(step)
        self._tally.decisions += 1
        self._count_moves(step, before)
        if not fresh:
            self._count_unowned(step, before)
        self._idle_since[self._owner >= 0] = NEVER
        self._holdings = Holdings(self._owner)
        self._stopped = bool(self._stopped_ms.any())

    def _rebalance(self, step: TraceStep) -> bool:
        """Round after round until nothing is withheld. True when this was the group's first plan."""
        first = self._generation == 0
        self._owner[~np.isin(self._owner, step.present)] = NOBODY
        for _ in range(MAX_ROUNDS):
            answer = run_in_time(self._assignor, self._snapshot(step), self._deadline_ms, LONGER)
            self._generation += 1
            self._tally.rounds += 1
            self._known = set(step.present)
            self._owner = self._owners(answer)
            if not answer.withheld:
                return first
        self._tally.unsettled += 1
        return first

    def _snapshot(self, step: TraceStep) -> Snapshot:
        trace = self._trace
        rows = zip(step.present, step.subscriptions, strict=True)
        topics = dict(zip(trace.topics, step.counts, strict=True))
        owned = self._owned()
        members = [self._member(number, trace.subscriptions[kind], owned) for number, kind in rows]
        base = self._axis.base.tolist()
        lags = {
            topic: self._lag[start : start + topics[topic]].tolist()
            for topic, start in zip(trace.topics, base, strict=False)
        }
        return Snapshot(topics, members, lags, None, self._candidate.word, self._options(step.at_ms))

    def _owned(self) -> dict[int, dict[str, list[int]]]:
        """What each member reports to own; one that has no plan yet reports nothing."""
        owned: dict[int, dict[str, list[int]]] = {number: {} for number in self._known}
        for (topic, partition), number in zip(self._places, self._owner.tolist(), strict=True):
            if number >= 0:
                owned[number].setdefault(topic, []).append(partition)
        return owned

    def _member(self, number: int, topics: tuple[str, ...], owned: dict[int, dict[str, list[int]]]) -> Member:
        who = self._trace.members[number]
        generation = self._generation if number in owned else -1
        return Member(who.id, topics, owned.get(number), generation, who.instance_id, who.rack)

    def _options(self, at_ms: int) -> dict[str, JsonValue]:
        """As the group's leader adds them: when partitions last moved, for those who know a cooldown."""
        if not self._recalls:
            return dict(self._candidate.options)
        moved: dict[str, Any] = {}
        for place, when in sorted(self._moved_at.items()):
            topic, partition = self._places[place]
            moved.setdefault(topic, {})[str(partition)] = when
        return {"now.ms": at_ms, "moved.at.ms": moved, **self._candidate.options}

    def _owners(self, answer: Assignment) -> Ints:
        owner = np.full(self._axis.size, NOBODY, dtype=np.int64)
        for member, share in answer.members.items():
            for topic, partitions in share.items():
                start = int(self._axis.base[self._axis.place[topic]])
                owner[start + np.asarray(partitions, dtype=np.int64)] = self._number[member]
        return owner

    def _count_moves(self, step: TraceStep, before: Ints) -> None:
        moved = (before >= 0) & (self._owner >= 0) & (before != self._owner)
        self._tally.moves += int(moved.sum())
        self._tally.moved_lag += int(self._lag[moved].sum())
        places = np.flatnonzero(moved)
        kinds = dict(zip(step.present, step.subscriptions, strict=True))
        for place, source in zip(places.tolist(), before[places].tolist(), strict=True):
            wanted = source in kinds and self._places[place][0] in self._trace.subscriptions[kinds[source]]
            self._tally.avoidable_moves += wanted
            self._moved_at[place] = step.at_ms

    def _count_unowned(self, step: TraceStep, before: Ints) -> None:
        """Both ways of handing over: eager members let go of everything, cooperative ones of what moves."""
        exists, now_ms = self._existing(step), step.at_ms
        given = exists & (self._owner >= 0)
        free = self._idle_since != NEVER
        appeared = exists & (before < 0) & ~free
        self._idle_since[appeared] = now_ms
        since = np.where(self._idle_since != NEVER, self._idle_since, now_ms)
        waited = now_ms - since + self._model.round_ms
        changed = given & (before != self._owner)
        self._tally.unowned_eager_ms += int(waited[given].sum())
        self._tally.unowned_cooperative_ms += int(waited[changed].sum())
        stops = changed if self._cooperative else given
        self._stopped_ms = np.where(stops, self._model.round_ms, 0)
        left = exists & (self._owner < 0) & (self._idle_since == NEVER)
        self._idle_since[left] = now_ms

    def _existing(self, step: TraceStep) -> NDArray[np.bool_]:
        mask = np.zeros(self._axis.size, dtype=np.bool_)
        for start, count in zip(self._axis.base.tolist(), step.counts, strict=False):
            mask[start : start + count] = True
        return mask


def work_off_all(lag: Ints, holdings: Holdings, budget: int) -> Ints:
    """As `work_off` when nothing stands still."""
    out = lag.copy()
    mine = lag[holdings.order]
    loads = np.repeat(holdings.loads(lag), holdings.sizes)
    out[holdings.order] = np.where(loads > budget, mine - share_budget(mine, budget, np.maximum(loads, 1)), 0)
    return out


def share_budget(lag: Ints, budget: int, loads: Ints) -> Ints:
    """What of the budget falls to each partition, rounded down; in Python's whole numbers where 64 bits do not do."""
    if len(lag) and int(lag.max()) * budget < 1 << 63:
        return lag * budget // loads
    rows = zip(lag.tolist(), loads.tolist(), strict=True)
    return np.array([one * budget // load for one, load in rows], dtype=np.int64)


def work_off(lag: Ints, owner: Ints, running: NDArray[np.bool_], budget: int) -> Ints:
    """The lag after each owner worked off `budget` records, shared out over its running partitions by their lag.

    >>> work_off(np.array([30, 10, 5]), np.array([0, 0, 1]), np.array([True, True, True]), 20).tolist()
    [15, 5, 0]
    """
    places = np.flatnonzero(running)
    if not len(places) or budget <= 0:
        return lag
    whose = owner[places]
    loads = np.zeros(int(whose.max()) + 1, dtype=np.int64)
    np.add.at(loads, whose, lag[places])
    out = lag.copy()
    rich = loads[whose] > budget
    out[places[~rich]] = 0
    heavy = places[rich]
    out[heavy] -= share_budget(lag[heavy], budget, loads[owner[heavy]])
    return out
