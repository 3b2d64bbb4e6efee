"""Backtests of assignors: every history under every candidate and seed, scored and ranked, in this process or on
Spark's executors.

A candidate is written as `lag-sticky[move.budget=3,min.gain=0.1]`. A replay is pure: the same trace, candidate and
model give the same score to the last digit, on both runners. It keeps what the assignor decided, not what was
recorded, and carries a cooperative plan through its rounds as members do. Whole numbers are summed as whole numbers
and others with `math.fsum`, whose result does not depend on the order; no score depends on elapsed time. On Spark the
jobs are a small table, histories are built on the executors, and rows come back as Arrow.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from muster.assignors import registry
from muster.assignors.api import Assignment, Assignor, AssignorError, JsonValue, Member, RebalanceProtocol, Snapshot
from muster.assignors.data.columns import Axis
from muster.assignors.options import options_of
from muster.spark.assignor_deadline import DEADLINE_MS, PluginOverran, run_in_time
from muster.spark.pipelines.traces import GroupTrace, SyntheticPlan, TraceStep

# Candidates
# ----------

OPENING, CLOSING = "[{(", "]})"


@dataclass(frozen=True, slots=True)
class BacktestCandidate:
    """`word` names an assignor as everywhere; `label` is how the results call it."""

    label: str
    word: str
    options: Mapping[str, JsonValue] = field(default_factory=dict)

    def resolve(self) -> Assignor:
        return registry.resolve(self.word)


def parse_candidates(words: str | Sequence[str]) -> list[BacktestCandidate]:
    """The candidates of a comma-separated text or of a list of such texts, each once, in order.

    Raises ValueError, which names the candidate, and UnknownAssignor. Options are tried on a small group at once: a
    backtest must not find out after an hour.

    >>> [c.label for c in parse_candidates("range, lag-sticky[move.budget=3]")]
    ['range', 'lag-sticky[move.budget=3]']
    """
    texts = [words] if isinstance(words, str) else list(words)
    found = [parse_candidate(part) for text in texts for part in split_candidates(text) if part.strip()]
    if not found:
        raise ValueError(f"no assignor was named; name one or more of: {', '.join(registry.known())}")
    return list({one.label: one for one in found}.values())


def parse_candidate(text: str) -> BacktestCandidate:
    word, bracket, rest = text.strip().partition("[")
    if bracket and not rest.endswith("]"):
        raise ValueError(f"{text.strip()!r} ends without ']'; expected assignor[option=value,...]")
    options = dict(parse_option(part, text) for part in split_candidates(rest[:-1]) if part.strip()) if bracket else {}
    assignor = registry.resolve(word)
    known = options_of(assignor.name) if assignor.name in registry.BUILT_IN else None
    for name in options:
        if known is not None and name not in known:
            has = f"its options are {', '.join(known)}" if known else "it has no options"
            raise ValueError(f"{text.strip()!r}: {assignor.name} has no option {name!r}; {has}")
    # What people call it in their configuration is resolved, so that the same assignor has one name in the results.
    name = assignor.name if word.strip() not in registry.known() and ":" not in word else word.strip()
    settings = ",".join(f"{key}={format_value(value)}" for key, value in sorted(options.items()))
    chosen = BacktestCandidate(f"{name}[{settings}]" if settings else name, name, options)
    try_candidate(chosen)
    return chosen


def try_candidate(chosen: BacktestCandidate) -> None:
    """Let it decide a small group; AssignorError when it cannot, or not in time."""
    members = [Member("a", ("t",), {"t": [0, 1, 2]}, 1), Member("b", ("t",))]
    snapshot = Snapshot({"t": 3}, members, {"t": [5, 1, 1]}, None, chosen.word, chosen.options)
    run_in_time(chosen.resolve(), snapshot, DEADLINE_MS, "that was three partitions for two members; mend it")


def parse_option(part: str, text: str) -> tuple[str, JsonValue]:
    name, equals, value = part.partition("=")
    if not equals or not name.strip():
        raise ValueError(f"{text.strip()!r}: {part.strip()!r} is not an option; expected assignor[option=value,...]")
    return name.strip(), parse_value(value.strip())


def parse_value(value: str) -> JsonValue:
    """JSON where it is JSON, text otherwise."""
    try:
        found: JsonValue = json.loads(value)
    except ValueError:
        return value
    return found


def format_value(value: JsonValue) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


def split_candidates(text: str) -> list[str]:
    """At the commas outside of brackets and quotes.

    >>> split_candidates('range,lag-sticky[a=1,b={"x":2}]')
    ['range', 'lag-sticky[a=1,b={"x":2}]']
    """
    parts, depth, quoted = [""], 0, False
    for letter in text:
        quoted ^= letter == '"'
        depth += (letter in OPENING) - (letter in CLOSING) if not quoted else 0
        if letter == "," and depth == 0 and not quoted:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


# Scores
# ------

Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ReplayScore:
    """What one candidate made of one trace.

    Balance is time-weighted: the heaviest member's lag, summed over time, over the mean member's (1 is even). Unowned
    times are partition-seconds after the first plan, as the hand-over model counts them: `unowned_s` by the way the
    assignor itself hands over, the other two as if it did it the one way or the other.
    """

    decisions: int
    """Rebalances the history asked for."""
    rounds: int
    """Rounds of JoinGroup and SyncGroup that they took; a cooperative plan that moves something needs two."""
    lag_ratio: float
    """Heaviest member's lag over the mean."""
    lag_spread: float
    """Standard deviation of the members' lag over the mean."""
    count_ratio: float
    """Most partitions of a member over the mean."""
    count_spread: float
    """Standard deviation of the members' partitions, over the mean."""
    moves: int
    """Partitions that went from one member to another."""
    avoidable_moves: int
    """Those whose old owner was still there and still wanted them."""
    moved_lag: int
    """Records behind of the partitions that moved, at that moment: what another member had to pick up."""
    unowned_s: float
    unowned_eager_s: float
    unowned_cooperative_s: float
    mean_lag: float
    """Of all partitions together, over time. In a recorded history it is the same for every candidate."""
    worst_lag: int
    """The most that any member had to work off at any moment."""
    unassigned_s: float
    """Partition-seconds without a place in the plan: by limits, or because nobody subscribes."""
    unsettled: int
    """Rebalances that did not come to rest within the rounds that are allowed."""


class Holdings:
    """Who holds what under one plan, sorted by owner once, so that each look at the lag is cheap."""

    def __init__(self, owner: Ints) -> None:
        places = np.flatnonzero(owner >= 0)
        self.order: Ints = places[np.argsort(owner[places], kind="stable")]
        """The partitions that have an owner, each owner's together."""
        owners, starts = np.unique(owner[self.order], return_index=True)
        self.starts: Ints = starts
        self.sizes: Ints = np.diff(np.append(starts, len(places)))
        self.held = len(places)
        self.most = int(self.sizes.max()) if len(owners) else 0
        self._counts: list[int] = self.sizes.tolist()
        self._deviations: dict[int, float] = {}

    def loads(self, lag: Ints) -> Ints:
        """The lag of each member that holds anything."""
        return np.add.reduceat(lag[self.order], self.starts) if self.held else lag[:0]

    def deviation(self, members: int) -> float:
        """Of the members' counts."""
        if members not in self._deviations:
            self._deviations[members] = deviation(self._counts, members)
        return self._deviations[members]


SCORE_FIELDS = tuple(one.name for one in fields(ReplayScore))


@dataclass(slots=True)
class ScoreTally:
    """Gathers a score."""

    decisions: int = 0
    rounds: int = 0
    moves: int = 0
    avoidable_moves: int = 0
    moved_lag: int = 0
    unowned_eager_ms: int = 0
    unowned_cooperative_ms: int = 0
    unassigned_ms: int = 0
    unsettled: int = 0
    worst_lag: int = 0
    span_ms: int = 0
    lag_ms: int = 0
    """Records times milliseconds, all partitions."""
    heaviest: list[int] = field(default_factory=list)
    """Per stretch of time: the most, the mean and the deviation of members' lag times its length."""
    mean: list[float] = field(default_factory=list)
    deviation: list[float] = field(default_factory=list)
    most: list[int] = field(default_factory=list)
    mean_count: list[float] = field(default_factory=list)
    count_deviation: list[float] = field(default_factory=list)

    def stretch(self, holdings: Holdings, members: int, lag: Ints, existing: int, length_ms: int) -> None:
        """For so long the plan stood while this was the lag, in a group of so many members."""
        self.span_ms += length_ms
        self.lag_ms += int(lag.sum()) * length_ms
        self.unassigned_ms += (existing - holdings.held) * length_ms
        if not members:
            return
        loads = holdings.loads(lag).tolist()
        total, most = sum(loads), max(loads, default=0)
        self.worst_lag = max(self.worst_lag, most)
        self.heaviest.append(most * length_ms)
        self.mean.append(total * length_ms / members)
        self.deviation.append(deviation(loads, members) * length_ms)
        self.most.append(holdings.most * length_ms)
        self.mean_count.append(holdings.held * length_ms / members)
        self.count_deviation.append(holdings.deviation(members) * length_ms)

    def score(self, cooperative: bool) -> ReplayScore:
        eager_s, cooperative_s = self.unowned_eager_ms / 1000, self.unowned_cooperative_ms / 1000
        mean, mean_count = math.fsum(self.mean), math.fsum(self.mean_count)
        return ReplayScore(
            decisions=self.decisions,
            rounds=self.rounds,
            lag_ratio=ratio(sum(self.heaviest), mean, 1.0),
            lag_spread=ratio(math.fsum(self.deviation), mean, 0.0),
            count_ratio=ratio(sum(self.most), mean_count, 1.0),
            count_spread=ratio(math.fsum(self.count_deviation), mean_count, 0.0),
            moves=self.moves,
            avoidable_moves=self.avoidable_moves,
            moved_lag=self.moved_lag,
            unowned_s=cooperative_s if cooperative else eager_s,
            unowned_eager_s=eager_s,
            unowned_cooperative_s=cooperative_s,
            mean_lag=ratio(self.lag_ms, float(self.span_ms), 0.0),
            worst_lag=self.worst_lag,
            unassigned_s=self.unassigned_ms / 1000,
            unsettled=self.unsettled,
        )


def deviation(numbers: Sequence[int], count: int) -> float:
    """The standard deviation of `count` whole numbers, rounded once; those that are not listed are 0.

    >>> deviation([2, 4, 4, 4, 5, 5, 7, 9], 8), deviation([4], 2)
    (2.0, 2.0)
    """
    squares = count * sum(number * number for number in numbers) - sum(numbers) ** 2
    return math.sqrt(squares) / count


def ratio(part: float, whole: float, empty: float) -> float:
    """`empty` where there is nothing to compare with."""
    return part / whole if whole else empty


# One replay
# ----------

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


# All replays, here or on Spark
# -----------------------------

MAX_JOBS = 10_000_000
TASKS_PER_CORE, USUAL_CORES = 8, 4
"""Jobs differ in length: small shares keep all cores busy to the end."""
MAX_ERROR_CHARACTERS = 500


@dataclass(frozen=True, slots=True)
class Backtest:
    """What to try. A `SyntheticPlan` is made anew for each seed; a recorded `GroupTrace` gets other member ids for
    each seed but 0.
    """

    histories: tuple[SyntheticPlan | GroupTrace, ...]
    candidates: tuple[BacktestCandidate, ...]
    seeds: tuple[int, ...]
    model: HandoverModel = field(default_factory=HandoverModel)
    deadline_ms: int = DEADLINE_MS
    """For one plan of an assignor that is a plugin."""

    def __post_init__(self) -> None:
        names = [history.name for history in self.histories]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"two histories are called {twice[0]!r}; their names must differ")
        if not self.histories or not self.candidates or not self.seeds:
            raise ValueError("nothing to try; expected at least one history, one assignor and one seed")
        if len(self.jobs) > MAX_JOBS:
            raise ValueError(f"{len(self.jobs)} replays are too many; expected at most {MAX_JOBS}")

    @property
    def jobs(self) -> range:
        """Their numbers: histories, in each the seeds, in each the candidates."""
        return range(len(self.histories) * len(self.seeds) * len(self.candidates))

    def place(self, job: int) -> tuple[int, int, int]:
        """(history, seed, candidate) of a job, as places in the three lists."""
        rest, candidate = divmod(job, len(self.candidates))
        history, seed = divmod(rest, len(self.seeds))
        return history, seed, candidate


class BacktestRow(NamedTuple):
    """What came of one job; `score` None: the assignor failed, `error` says how."""

    job: int
    history: str
    seed: int
    candidate: str
    error: str
    score: ReplayScore | None

    def flat(self) -> dict[str, Any]:
        """One level, as tables and files want it."""
        score = astuple(self.score) if self.score is not None else (None,) * len(SCORE_FIELDS)
        return {
            "job": self.job,
            "history": self.history,
            "seed": self.seed,
            "candidate": self.candidate,
            "error": self.error,
        } | dict(zip(SCORE_FIELDS, score, strict=True))


def run_here(test: Backtest) -> Iterator[BacktestRow]:
    """One job after the other in this process."""
    return replay_jobs(test, test.jobs)


def replay_jobs(test: Backtest, jobs: Iterable[int]) -> Iterator[BacktestRow]:
    """Neighbouring jobs share their history, which is made once. Who overran a deadline is not tried again here:
    each of its jobs would cost as long.
    """
    overran: dict[int, str] = {}

    @lru_cache(maxsize=1)
    def made(history: int, seed: int) -> GroupTrace:
        chosen = test.histories[history]
        return chosen.make(seed) if isinstance(chosen, SyntheticPlan) else chosen.renamed(seed)

    for job in jobs:
        history, number, which = test.place(job)
        seed, candidate = test.seeds[number], test.candidates[which]
        score, error = None, overran.get(which, "")
        try:
            score = None if error else replay(made(history, seed), candidate, test.model, test.deadline_ms)
        except AssignorError as failure:
            error = str(failure)[:MAX_ERROR_CHARACTERS]
            if isinstance(failure, PluginOverran):
                overran[which] = error
        yield BacktestRow(job, test.histories[history].name, seed, candidate.label, error, score)


def run_on_spark(test: Backtest, spark: Any, tasks: int | None = None) -> list[BacktestRow]:
    """The same rows from a Spark session; `tasks` is the number of tasks, a multiple of the cores unless given.

    The assignors of plugins must be importable on the executors. Raises ImportError without pyspark and pyarrow.
    """
    import pyarrow as pa
    from pyspark.sql.functions import arrow_udf  # type: ignore[attr-defined]

    def replayed(jobs: pa.Array) -> pa.Array:
        find_plugins_here()
        return build_arrow_table(replay_jobs(test, jobs.to_pylist())).to_struct_array().combine_chunks()

    # An Arrow function from column to column. `applyInArrow` and `mapInArrow` refuse a driver without pandas, though
    # no executor of theirs uses it; grouping would also deal jobs out by hash, and a history be made more than once.
    wanted = tasks or TASKS_PER_CORE * count_cores(spark)
    numbers = spark.range(0, len(test.jobs), 1, min(wanted, len(test.jobs)))
    rows = numbers.select(arrow_udf(replayed, build_spark_schema())("id").alias("row")).select("row.*")
    return sorted(read_arrow_table(rows.toArrow()), key=lambda row: row.job)


def count_cores(spark: Any) -> int:
    """A session of Spark Connect does not tell; there, as many as usual."""
    from pyspark.errors import PySparkException

    try:
        return int(spark.sparkContext.defaultParallelism)
    except PySparkException:
        return USUAL_CORES


def find_plugins_here() -> None:
    """Where executors run in the driver's directory, plugins of it are found as they are found without Spark."""
    import sys

    if "" not in sys.path:
        sys.path.append("")


WHOLE_NUMBER_COLUMNS = ("decisions", "rounds", "moves", "avoidable_moves", "moved_lag", "worst_lag", "unsettled")
HEAD_COLUMNS = {"job": "long", "history": "string", "seed": "long", "candidate": "string", "error": "string"}


def build_spark_schema() -> str:
    """The rows' columns in Spark's words."""
    return ", ".join(f"{name} {kind}" for name, kind in list_columns().items())


def list_columns() -> dict[str, str]:
    return HEAD_COLUMNS | {name: "long" if name in WHOLE_NUMBER_COLUMNS else "double" for name in SCORE_FIELDS}


def build_arrow_table(rows: Iterable[BacktestRow]) -> Any:
    """The rows as an Arrow table; also what the Parquet file holds."""
    import pyarrow as pa

    kinds = {"long": pa.int64(), "double": pa.float64(), "string": pa.string()}
    schema = pa.schema([(name, kinds[kind]) for name, kind in list_columns().items()])
    return pa.Table.from_pylist([row.flat() for row in rows], schema=schema)


def read_arrow_table(table: Any) -> Iterator[BacktestRow]:
    """The rows of a table that `build_arrow_table` made."""
    for row in table.to_pylist():
        score = None if row["error"] else ReplayScore(**{name: row[name] for name in SCORE_FIELDS})
        yield BacktestRow(row["job"], row["history"], row["seed"], row["candidate"], row["error"], score)


def are_same_rows(one: Sequence[BacktestRow], other: Sequence[BacktestRow]) -> bool:
    """Equal to the last digit: floats are compared by their bits."""
    return [row_digits(row) for row in one] == [row_digits(row) for row in other]


def row_digits(row: BacktestRow) -> tuple[object, ...]:
    return tuple(value.hex() if isinstance(value, float) else value for value in row.flat().values())


# Ranking
# -------

CRITERIA: Mapping[str, str] = {
    "lag": "lag_ratio",
    "backlog": "mean_lag",
    "count": "count_ratio",
    "moves": "moves",
    "unowned": "unowned_s",
}
"""What may weigh in the ranking, by the column that measures it; less is better in each."""
EVEN: Mapping[str, float] = dict.fromkeys(CRITERIA, 1.0)


@dataclass(frozen=True, slots=True)
class CandidateStanding:
    """One candidate over all its replays.

    `rank` is the weighted mean of its places by each criterion among all candidates on the same history and seed: 1
    is best everywhere. `means` are its mean scores over the replays that did not fail.
    """

    candidate: str
    rank: float
    replays: int
    failed: int
    places: Mapping[str, float]
    means: Mapping[str, float]


def rank_candidates(rows: Iterable[BacktestRow], weights: Mapping[str, float] = EVEN) -> list[CandidateStanding]:
    """The best first; equal ranks by name. ValueError for weights that cannot be."""
    check_weights(weights)
    by_candidate: dict[str, list[BacktestRow]] = {}
    rounds: dict[tuple[str, int], list[BacktestRow]] = {}
    for row in rows:
        by_candidate.setdefault(row.candidate, []).append(row)
        rounds.setdefault((row.history, row.seed), []).append(row)
    places: dict[str, dict[str, list[float]]] = {name: {word: [] for word in CRITERIA} for name in by_candidate}
    for contestants in rounds.values():
        for word, column in CRITERIA.items():
            for row, place in zip(
                contestants, place_costs([replay_cost(row, column) for row in contestants]), strict=True
            ):
                places[row.candidate][word].append(place)
    standings = [build_standing(name, mine, places[name], weights) for name, mine in by_candidate.items()]
    return sorted(standings, key=lambda one: (one.rank, one.candidate))


def build_standing(
    name: str, rows: Sequence[BacktestRow], places: Mapping[str, Sequence[float]], weights: Mapping[str, float]
) -> CandidateStanding:
    mean_places = {word: mean_or_zero(found) for word, found in places.items()}
    whole = math.fsum(weights.values())
    rank = math.fsum(weights.get(word, 0.0) * place for word, place in mean_places.items()) / whole
    scored = [row.score for row in rows if row.score is not None]
    means = {column: mean_or_zero([float(getattr(score, column)) for score in scored]) for column in SCORE_FIELDS}
    return CandidateStanding(name, rank, len(rows), len(rows) - len(scored), mean_places, means)


def replay_cost(row: BacktestRow, column: str) -> float:
    """A replay that failed costs more than any that did not; a plan that never comes to rest as well."""
    if row.score is None or row.score.unsettled:
        return math.inf
    return float(getattr(row.score, column))


def place_costs(costs: Sequence[float]) -> list[float]:
    """Places from 1; who is level shares the mean of the places.

    >>> place_costs([5.0, 1.0, 5.0])
    [2.5, 1.0, 2.5]
    """
    order = sorted(costs)
    return [(order.index(one) + 1 + len(order) - order[::-1].index(one)) / 2 for one in costs]


def mean_or_zero(numbers: Sequence[float]) -> float:
    """0 for nothing."""
    return math.fsum(numbers) / len(numbers) if numbers else 0.0


def check_weights(weights: Mapping[str, float]) -> None:
    for word, weight in weights.items():
        if word not in CRITERIA:
            raise ValueError(f"{word!r} is not a criterion; expected some of {', '.join(CRITERIA)}")
        if not 0 <= weight < math.inf:
            raise ValueError(f"the weight of {word!r} is {weight}; expected 0 or more")
    if not any(weights.values()):
        raise ValueError("all weights are 0; expected at least one above it")
