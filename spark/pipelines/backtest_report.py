"""The backtest's report: who ranks where and why, in charts."""

from collections.abc import Mapping, Sequence
from typing import Any

from muster.spark.pipelines.backtest import Backtest, BacktestRow
from muster.spark.pipelines.page import ReportPage, choose_colour, draw_bars, format_short
from muster.spark.pipelines.ranking import CRITERIA, EVEN, CandidateStanding, rank_candidates

MAX_CHARTED = 24
"""Candidates in a chart, the best; the tables have them all."""
WORDS: Mapping[str, str] = {
    "lag": "balance of lag",
    "backlog": "records waiting",
    "count": "balance of count",
    "moves": "moves",
    "unowned": "unowned time",
}


def build_backtest_report(test: Backtest, rows: Sequence[BacktestRow], weights: Mapping[str, float] = EVEN) -> str:
    """One HTML page. Raises NoPlotting."""
    standings = rank_candidates(rows, weights)
    charted = standings[:MAX_CHARTED]
    page = ReportPage(
        "Assignor backtest",
        f"{len(rows):,} replays: {len(test.histories)} histories, {len(test.seeds)} seeds, {len(test.candidates)} "
        "candidates. Every candidate met the same histories with the same seeds; only the plans differ.",
    )
    page.facts(backtest_facts(test, rows, standings))
    height = 1.0 + 0.34 * len(charted)
    page.table("Ranking", describe_ranking(weights), build_ranking_rows(standings), first=True)
    page.chart(
        "What the rank is made of",
        "Each candidate's mean place by each criterion among all candidates on the same history and seed, times its "
        "weight. Shorter is better.",
        lambda figure: draw_places(figure, charted, weights),
        height,
    )
    page.chart(
        "Even or quiet",
        "Records waiting on average against partitions moved per rebalance: towards the lower left both are better.",
        lambda figure: draw_scatter(figure, charted),
        4.4,
    )
    page.chart(
        "What it costs",
        "Means over all replays.",
        lambda figure: draw_costs(figure, charted),
        height,
    )
    page.chart(
        "By history",
        "Mean rank on each history over the seeds. Green is good. A candidate that is good everywhere has an even row.",
        lambda figure: draw_histories(figure, charted, rows, weights),
        1.6 + 0.34 * len(charted),
    )
    page.table("Failures", "Replays in which an assignor failed or never came to rest.", list_failures(rows))
    return page.html()


def backtest_facts(
    test: Backtest, rows: Sequence[BacktestRow], standings: Sequence[CandidateStanding]
) -> dict[str, object]:
    scored = [row.score for row in rows if row.score is not None]
    return {
        "best": standings[0].candidate,
        "replays": len(rows),
        "rebalances decided": sum(score.decisions for score in scored),
        "rounds planned": sum(score.rounds for score in scored),
        "histories": len(test.histories),
        "seeds": len(test.seeds),
    }


def describe_ranking(weights: Mapping[str, float]) -> str:
    weighed = ", ".join(f"{WORDS[word]} {weight:g}" for word, weight in weights.items() if weight)
    return (
        f"Weights: {weighed}. Lag and count ratios are the heaviest member over the mean, weighted by time: "
        "1 is even. Unowned are partition-seconds by the way each assignor hands over."
    )


def build_ranking_rows(standings: Sequence[CandidateStanding]) -> list[dict[str, object]]:
    return [
        {
            "candidate": one.candidate,
            "rank": one.rank,
            "lag ratio": one.means["lag_ratio"],
            "waiting": one.means["mean_lag"],
            "count ratio": one.means["count_ratio"],
            "moves": one.means["moves"],
            "avoidable": one.means["avoidable_moves"],
            "moved lag": one.means["moved_lag"],
            "unowned s": one.means["unowned_s"],
            "rounds": one.means["rounds"],
            "failed": one.failed,
        }
        for one in standings
    ]


def draw_places(figure: Any, standings: Sequence[CandidateStanding], weights: Mapping[str, float]) -> None:
    axis = figure.subplots()
    whole = sum(weights.values())
    left = [0.0] * len(standings)
    for number, word in enumerate(word for word in CRITERIA if weights.get(word)):
        parts = [one.places[word] * weights[word] / whole for one in standings]
        axis.barh(range(len(standings)), parts, 0.68, left=left, color=choose_colour(number), label=WORDS[word])
        left = [start + part for start, part in zip(left, parts, strict=True)]
    for at, end in enumerate(left):
        axis.annotate(
            f"{end:.2f}", (end, at), (4, 0), textcoords="offset points", va="center", fontsize=8.5, color="#57606a"
        )
    axis.set_yticks(range(len(standings)), [one.candidate for one in standings])
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.set_xlabel("mean place, weighted")
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=5)


def draw_scatter(figure: Any, standings: Sequence[CandidateStanding]) -> None:
    axis = figure.subplots()
    places = [(one.means["moves"] / (one.means["decisions"] or 1.0), one.means["mean_lag"]) for one in standings]
    for number, one in enumerate(standings):
        # Who comes to the same as one that is drawn later would lie hidden beneath it.
        size = 70 * (1 + places[number + 1 :].count(places[number]))
        x, y = places[number]
        axis.scatter([x], [y], s=size, color=choose_colour(number), zorder=3, label=one.candidate)
    axis.set_xlabel("partitions moved per rebalance")
    axis.set_ylabel("records waiting, mean")
    axis.set_ylim(bottom=0)
    axis.set_xlim(left=0)
    axis.yaxis.set_major_formatter(lambda value, _: format_short(float(value)))
    legend = figure.legend(*axis.get_legend_handles_labels(), loc="outside right center", fontsize=8.5)
    for handle in legend.legend_handles:
        handle.set_sizes([60])


def draw_costs(figure: Any, standings: Sequence[CandidateStanding]) -> None:
    panels = (
        ("lag_ratio", "lag: heaviest over mean"),
        ("count_ratio", "count: most over mean"),
        ("avoidable_moves", "avoidable moves"),
        ("unowned_s", "unowned partition-s"),
    )
    axes = figure.subplots(1, len(panels), sharey=True)
    names = [one.candidate for one in standings]
    for number, (axis, (column, title)) in enumerate(zip(axes, panels, strict=True)):
        draw_bars(axis, names, [one.means[column] for one in standings], choose_colour(number))
        axis.set_title(title)
        axis.xaxis.set_major_formatter(lambda value, _: format_short(float(value)))
        axis.tick_params(axis="x", labelsize=8)
    # The panels share one axis, which every one of them has turned over.
    axes[0].set_ylim(len(names) - 0.5, -0.5)


def draw_histories(
    figure: Any, standings: Sequence[CandidateStanding], rows: Sequence[BacktestRow], weights: Mapping[str, float]
) -> None:
    names = [one.candidate for one in standings]
    histories = list(dict.fromkeys(row.history for row in rows))
    by_history = {
        history: {
            one.candidate: one.rank for one in rank_candidates([row for row in rows if row.history == history], weights)
        }
        for history in histories
    }
    grid = [[by_history[history][name] for history in histories] for name in names]
    axis = figure.subplots()
    axis.imshow(grid, cmap="RdYlGn_r", aspect="auto", alpha=0.75)
    axis.set_xticks(range(len(histories)), histories, rotation=30, ha="right", rotation_mode="anchor")
    axis.set_yticks(range(len(names)), names)
    axis.grid(visible=False)
    axis.spines[:].set_visible(False)
    if len(histories) * len(names) <= 400:
        for y, line in enumerate(grid):
            for x, value in enumerate(line):
                axis.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=8.5)


def list_failures(rows: Sequence[BacktestRow]) -> list[dict[str, object]]:
    """What went wrong, each sentence once, with how often."""
    counts: dict[tuple[str, str], int] = {}
    for row in rows:
        said = row.error or ("did not come to rest" if row.score is not None and row.score.unsettled else "")
        if said:
            counts[row.candidate, said] = counts.get((row.candidate, said), 0) + 1
    return [{"candidate": name, "replays": count, "what": said} for (name, said), count in sorted(counts.items())]
