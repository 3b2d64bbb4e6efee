"""A report as one HTML file that needs nothing else: tables, charts as SVG inside, no script, nothing to load."""

import html
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

MISSING = "charts need matplotlib; install it with: pip install 'muster-groups[lab]'"
COLOURS = (
    "#3b6ea5",
    "#d1605e",
    "#6aa84f",
    "#b07aa1",
    "#e69f45",
    "#4fb0ae",
    "#9c755f",
    "#8c8c8c",
    "#c5a72e",
    "#6f63b6",
    "#d37295",
    "#2f7f5f",
)
MAX_ROWS = 200
"""Of one table in a report; the files beside it hold everything."""

STYLE = """
:root { color-scheme: light; }
body { font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, sans-serif; color: #22272e; background: #f6f7f9;
  margin: 0; }
main { max-width: 1080px; margin: 0 auto; padding: 2rem 1.5rem 4rem; }
h1 { font-size: 1.7rem; margin: 0 0 .2rem; letter-spacing: -.01em; }
h2 { font-size: 1.15rem; margin: 0 0 .3rem; }
.lead { color: #57606a; margin: 0 0 1.4rem; max-width: 75ch; }
section { background: #fff; border: 1px solid #e3e6ea; border-radius: 10px; padding: 1.1rem 1.3rem 1.2rem;
  margin: 0 0 1.1rem; overflow-x: auto; }
section > p { color: #57606a; margin: 0 0 .8rem; max-width: 85ch; }
svg { display: block; width: 100%; height: auto; }
table { border-collapse: collapse; font-size: .86rem; width: 100%; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 600; color: #57606a; border-bottom: 2px solid #e3e6ea; padding: .3rem .7rem .3rem 0;
  vertical-align: bottom; }
td { border-bottom: 1px solid #eef0f2; padding: .3rem .7rem .3rem 0; vertical-align: top; }
td.n, th.n { text-align: right; }
td code { font-size: .95em; }
tr.first td { font-weight: 600; background: #f1f7ee; }
.facts { display: flex; flex-wrap: wrap; gap: .6rem; margin: 0 0 1.2rem; padding: 0; list-style: none; }
.facts li { background: #fff; border: 1px solid #e3e6ea; border-radius: 8px; padding: .45rem .8rem; min-width: 7rem; }
.facts b { display: block; font-size: 1.25rem; }
.facts span { color: #57606a; font-size: .8rem; }
footer { color: #6b737c; font-size: .8rem; }
"""


class PlottingNotInstalled(Exception):
    """The library that draws is not installed."""


class ReportPage:
    """Sections, one below the other."""

    def __init__(self, title: str, lead: str) -> None:
        self._title, self._lead = title, lead
        self._parts: list[str] = []
        self._charts = 0

    def facts(self, facts: Mapping[str, object]) -> None:
        """The figures to see first, in a row."""
        items = "".join(
            f"<li><b>{format_cell(value)}</b><span>{format_cell(name)}</span></li>" for name, value in facts.items()
        )
        self._parts.append(f'<ul class="facts">{items}</ul>')

    def table(self, title: str, note: str, rows: Sequence[Mapping[str, object]], first: bool = False) -> None:
        """`first` marks the first row as the winner."""
        if not rows:
            body = "<p>Nothing of that kind.</p>"
        else:
            names = list(rows[0])
            numeric = {n for n in names if all(isinstance(row[n], int | float | None) for row in rows)}
            kinds = {name: ' class="n"' if name in numeric else "" for name in names}
            head = "".join(f"<th{kinds[name]}>{format_cell(name)}</th>" for name in names)
            lines = [
                ('<tr class="first">' if first and not at else "<tr>")
                + "".join(f"<td{kinds[name]}>{format_cell(row[name])}</td>" for name in names)
                + "</tr>"
                for at, row in enumerate(rows[:MAX_ROWS])
            ]
            more = f"<p>{len(rows) - MAX_ROWS} more rows are in the files.</p>" if len(rows) > MAX_ROWS else ""
            body = f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>{more}"
        self._section(title, note, body)

    def chart(
        self, title: str, note: str, draw: Callable[[Any], None], height: float = 3.4, width: float = 10.4
    ) -> None:
        """`draw` is given a matplotlib figure. Raises NoPlotting."""
        self._charts += 1
        with make_figure(f"muster-{self._charts}", width, height) as figure:
            draw(figure)
            self._section(title, note, render_svg(figure))

    def html(self) -> str:
        return (
            '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
            '<meta name="viewport" content="width=device-width, initial-scale=1">'
            f"<title>{format_cell(self._title)}</title><style>{STYLE}</style></head><body><main>"
            f'<h1>{format_cell(self._title)}</h1><p class="lead">{format_cell(self._lead)}</p>'
            + "\n".join(self._parts)
            + "<footer>Made by Muster. One file: nothing is loaded from anywhere.</footer></main></body></html>\n"
        )

    def _section(self, title: str, note: str, body: str) -> None:
        said = f"<p>{format_cell(note)}</p>" if note else ""
        self._parts.append(f"<section><h2>{format_cell(title)}</h2>{said}{body}</section>")


@contextmanager
def make_figure(salt: str, width: float, height: float) -> Iterator[Any]:
    """A figure in the report's looks. The same figures give the same bytes; ids differ from chart to chart."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise PlottingNotInstalled(MISSING) from None
    looks: Any = {
        "svg.hashsalt": salt,
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9.5,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.edgecolor": "#9aa1a9",
        "axes.labelcolor": "#57606a",
        "axes.titlesize": 10,
        "xtick.color": "#57606a",
        "ytick.color": "#57606a",
        "axes.grid": True,
        "axes.axisbelow": True,
        "grid.color": "#eceef1",
        "legend.frameon": False,
    }
    with matplotlib.rc_context(looks):
        yield Figure(figsize=(width, height), layout="constrained")


def render_svg(figure: Any) -> str:
    out = io.StringIO()
    unsaid = dict.fromkeys(("Date", "Creator", "Format", "Type"))
    figure.savefig(out, format="svg", metadata=unsaid, transparent=True)
    return out.getvalue()[out.getvalue().index("<svg") :]


def check_plotting() -> None:
    """Raises NoPlotting: better before the work than after it."""
    with make_figure("", 1, 1):
        pass


def format_cell(value: object) -> str:
    """A value for people, made safe for HTML.

    >>> format_cell(12345), format_cell(0.5), format_cell(None), format_cell("<a>")
    ('12,345', '0.50', '–', '&lt;a&gt;')
    """
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) < 1000 else f"{value:,.0f}"
    return html.escape(str(value))


def choose_colour(number: int) -> str:
    return COLOURS[number % len(COLOURS)]


def draw_bars(axis: Any, names: Sequence[str], values: Sequence[float], shade: str | Sequence[str]) -> None:
    """Horizontal bars, the first on top, each with its figure."""
    drawn = axis.barh(range(len(names)), values, 0.68, color=shade)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.bar_label(drawn, [format_short(value) for value in values], padding=3, fontsize=8.5, color="#57606a")
    axis.margins(x=0.22)


def format_short(value: float) -> str:
    """A figure that fits beside a bar.

    >>> format_short(1234567.0), format_short(45_600.0), format_short(4454.8), format_short(3.14159), format_short(7.0)
    ('1.2M', '46k', '4,455', '3.14', '7')
    """
    if value >= 1e6:
        return f"{value / 1e6:.1f}M"
    if value >= 1e4:
        return f"{value / 1e3:.0f}k"
    if value == int(value):
        return f"{int(value):,}"
    return f"{value:.2f}" if value < 100 else f"{value:,.0f}"
