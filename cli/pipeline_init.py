"""`muster pipeline`: what groups did, in tables and charts, and what other assignors would have made of it."""

import click

from muster.cli.common.lazy import LazyCommand, LazyGroup

PIPELINE_COMMANDS = {
    "backtest": LazyCommand("muster.cli.backtest:backtest", "Try assignors on histories, and rank them."),
    "export-trace": LazyCommand("muster.cli.export:export_trace", "Write a group's history down for a backtest."),
    "analytics": LazyCommand(
        "muster.cli.analytics:analytics",
        "Lag and rebalances of a node's groups, by Spark, as Parquet.",
    ),
}


@click.group(cls=LazyGroup, lazy=PIPELINE_COMMANDS)
def pipeline() -> None:
    """Analyse what groups did, and try other assignors on it."""
