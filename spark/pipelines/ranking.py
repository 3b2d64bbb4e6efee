"""Who came out best: candidates ranked by what they cost, history by history and seed by seed."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from muster.spark.pipelines.backtest import BacktestRow
from muster.spark.pipelines.scoring import SCORE_FIELDS

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
            raise ValueError(f"{word!r} is no criterion; expected some of {', '.join(CRITERIA)}")
        if not 0 <= weight < math.inf:
            raise ValueError(f"the weight of {word!r} is {weight}; expected 0 or more")
    if not any(weights.values()):
        raise ValueError("all weights are 0; expected at least one above it")
