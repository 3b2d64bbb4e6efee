"""The comparison as a picture: one panel per measure, one bar per generation."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from muster.workshop.lab.compare import ComparisonResult

ROWS, COLUMNS = 2, 4
BAR, CHAPTERS = 0.7, ("#4878a8", "#d1605e", "#85b66f")
"""Height of a bar, and the colours of the course's chapters in order."""


class ComparisonPanel(NamedTuple):
    """A field of `Costs` and its title. `stacked`: the chapters add up to the whole."""

    field: str
    title: str
    stacked: bool = True


PANELS = (
    ComparisonPanel("rebalances", "rebalances"),
    ComparisonPanel("stops", "times that a partition stopped"),
    ComparisonPanel("unowned_partition_s", "partition-seconds unowned"),
    ComparisonPanel("longest_stop_s", "longest stop of a partition, s", stacked=False),
    ComparisonPanel("moved", "partitions moved"),
    ComparisonPanel("duplicates", "records worked on twice"),
    ComparisonPanel("messages", "messages sent"),
)


class ChartUnavailable(Exception):
    """The library that draws is not installed."""


def draw_comparison(results: Sequence[ComparisonResult], path: Path) -> None:
    """Write the chart; the suffix of the path chooses the format (svg, png, pdf). Raises NoPlotting, OSError."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ChartUnavailable("charts need matplotlib; install it with: pip install 'muster-groups[lab]'") from error
    # The same results give the same bytes.
    with matplotlib.rc_context({"svg.hashsalt": "muster", "svg.fonttype": "none"}):
        figure = Figure(figsize=(14, 3.3 + 0.5 * len(results)), layout="constrained")
        axes: Any = figure.subplots(ROWS, COLUMNS, sharey=True)
        for axis, panel in zip(axes.flat, PANELS, strict=False):
            draw_panel(axis, panel, results)
        spare = axes.flat[len(PANELS)]
        spare.axis("off")
        spare.legend(*axes.flat[0].get_legend_handles_labels(), loc="center")
        figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)


def draw_panel(axis: Any, panel: ComparisonPanel, results: Sequence[ComparisonResult]) -> None:
    names = [result.generation.name for result in results]
    start = [0.0] * len(results)
    for number, colour in enumerate(CHAPTERS):
        values = [float(getattr(result.chapters[number].costs, panel.field)) for result in results]
        label = results[0].chapters[number].name
        if panel.stacked:
            axis.barh(names, values, BAR, left=start, color=colour, label=label)
            start = [left + value for left, value in zip(start, values, strict=True)]
        else:
            places = [place + (number - 1) * BAR / len(CHAPTERS) for place in range(len(results))]
            axis.barh(places, values, BAR / len(CHAPTERS), color=colour, label=label)
    axis.set_title(panel.title, fontsize="medium")
    axis.invert_yaxis()
    axis.spines[["top", "right"]].set_visible(False)
