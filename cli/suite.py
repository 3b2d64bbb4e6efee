"""`muster pipeline backtest --suite balance`: is balance calm?"""

from muster.cli.common.output import Column, notice, print_rows
from muster.coordinator.observability.views.formatting import plural

SCORES = [
    Column("TRACE", "trace", style="cyan"),
    Column("POLICY", "policy"),
    Column("EVEN", "even"),
    Column("RATIO-P90", "p90"),
    Column("MOVES", "moves"),
    Column("TWICE", "twice"),
    Column("PEAK-LAG", "peak_lag"),
]
GOALS = [Column("GOAL", "goal"), Column("FIGURE", "figure"), Column("MET", "met")]


def balance_suite(seeds: int, each: bool, style: str) -> int:
    """Show the goals, or with `each` what every policy made of every trace. 1: a goal is missed."""
    from muster.coordinator.core.settings.rules import BalanceRules
    from muster.workshop.lab.suite import judge_goals, score_policies

    rows = score_policies(seeds, BalanceRules())
    goals = judge_goals(rows)
    if each:
        print_rows(
            [
                {
                    "trace": row.trace,
                    "policy": row.policy,
                    "even": f"{row.score.even:.1%}",
                    "p90": f"{row.score.p90:.2f}",
                    "moves": row.score.moves,
                    "twice": row.score.twice,
                    "peak_lag": row.score.peak_lag,
                }
                for row in rows
            ],
            SCORES,
            style,
        )
    else:
        print_rows(
            [{"goal": goal.goal, "figure": goal.figure, "met": "yes" if goal.met else "missed"} for goal in goals],
            GOALS,
            style,
        )
    missed = sum(not goal.met for goal in goals)
    notice(f"{plural(len(goals) - missed, 'goal')} met, {missed} missed; seeds 0 to {seeds - 1}")
    return 1 if missed else 0
