"""Reports as single HTML files: tables and SVG charts, no script, nothing to load.

The analytics report shows lag over time, rebalances by cause, time without an owner, and moves per member. The
backtest report shows the ranking and its reasons. The same figures give the same bytes.
"""

import html
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

from muster.spark.pipelines.backtest import CRITERIA, EVEN, Backtest, BacktestRow, CandidateStanding, rank_candidates

# The page
# --------

MISSING = "charts need matplotlib; install it with: pip install 'muster-groups[charts]'"
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
        """`draw` is given a matplotlib figure. Raises PlottingNotInstalled."""
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
    """Raises PlottingNotInstalled: better before the work than after it."""
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


# Report on groups
# ----------------

MAX_GROUPS = 8
"""Lines of one chart: those with the most lag."""
MAX_POINTS = 5_000
MAX_MEMBERS = 16
MAX_PARTITIONS = 40
WORST = 12
UUID_LENGTH = 36
Rows = Sequence[Mapping[str, Any]]


def build_analytics_report(tables: Mapping[str, Any], malformed: int) -> str:
    """One HTML page from the tables, which are Spark data frames. Raises PlottingNotInstalled."""
    from pyspark.sql import functions as F

    entries = collect_rows(tables["rebalances"].orderBy(F.col("started_at").desc()).limit(MAX_POINTS))
    causes = collect_rows(tables["causes"])
    members = collect_rows(
        tables["members"].orderBy((F.col("gained") + F.col("lost")).desc(), "member").limit(MAX_MEMBERS)
    )
    page = ReportPage(
        "Groups, their lag and their rebalances",
        "From the node's own records: __rebalances, the ledger of every rebalance, and __consumer_offsets. "
        "Times are UTC.",
    )
    page.facts(analytics_facts(entries, causes, malformed, tables.get("lag")))
    if "lag" in tables:
        add_lag_sections(page, tables["lag"], entries)
    if entries:
        page.chart(
            "Rebalances over time",
            "One mark for each; the larger, the longer partitions were without an owner.",
            lambda figure: draw_timeline(figure, entries),
            1.5 + 0.4 * len({row["group"] for row in entries}),
        )
        page.chart(
            "What set them off, and what it cost",
            "How often, and partition-seconds without an owner: from the moment an owner let go, or was last heard of, "
            "until the next one had fetched its share.",
            lambda figure: draw_causes(figure, causes),
            1.5 + 0.42 * len({row["group"] for row in causes}),
        )
    if members:
        page.chart(
            "Moves per member",
            "Partitions that came to a member and that went from it, all its plans together; the busiest members.",
            lambda figure: draw_members(figure, members),
            1.2 + 0.3 * len(members),
        )
    add_worst_tables(page, tables)
    return page.html()


def analytics_facts(entries: Rows, causes: Rows, malformed: int, lag: Any) -> dict[str, object]:
    said: dict[str, object] = {
        "groups": len({row["group"] for row in causes}),
        "rebalances": sum(row["rebalances"] for row in causes),
        "partitions moved": sum(row["moves"] for row in causes),
        "partition-seconds unowned": sum(row["unowned_partition_ms"] or 0 for row in causes) / 1000,
        "longest rebalance, s": max((row["took_ms"] for row in entries), default=0) / 1000,
    }
    if lag is not None:
        found = lag.agg({"lag": "max"}).toArrow().to_pylist()[0]["max(lag)"]
        said["most lag of a partition"] = found or 0
    return said | ({"records not understood": malformed} if malformed else {})


def add_lag_sections(page: ReportPage, lag: Any, entries: Rows) -> None:
    from pyspark.sql import functions as F

    totals = lag.groupBy("group", "at").agg(F.sum("lag").alias("lag"))
    peaks = collect_rows(totals.groupBy("group").agg(F.max("lag").alias("peak")).orderBy(F.col("peak").desc(), "group"))
    charted = [row["group"] for row in peaks[:MAX_GROUPS]]
    if not charted:
        return
    lines = collect_rows(totals.where(F.col("group").isin(*charted)).orderBy("group", "at"))
    more = f" The {len(charted)} groups with the most are shown." if len(peaks) > len(charted) else ""
    page.chart(
        "Lag over time",
        "Records between the last committed position and the end of the log, all partitions of a group; ticks below "
        f"mark its rebalances.{more}",
        lambda figure: draw_lag(figure, charted, lines, entries),
        4.0,
    )
    cells = collect_rows(lag.where(F.col("group") == charted[0]).orderBy("topic", "partition", "at"))
    partitions = find_heaviest(cells)
    page.chart(
        f"Lag by partition: {charted[0]}",
        "The group with the most lag, its heaviest partitions: dark is far behind. A single dark row is one slow "
        "partition, a dark column a stop of the whole group.",
        lambda figure: draw_heat(figure, partitions, cells),
        1.3 + 0.2 * len(partitions),
    )
    approximate = collect_rows(lag.groupBy("basis").agg(F.count("*").alias("points")).orderBy("basis"))
    page.table(
        "How the log's end was known",
        "'next record': where the first later record stands, by its timestamp. 'log end': nothing was written since. "
        "'first record left': records of that time are gone, so the lag may have been larger.",
        approximate,
    )


def find_heaviest(cells: Rows) -> list[tuple[str, int]]:
    peak: dict[tuple[str, int], int] = {}
    for row in cells:
        place = (row["topic"], row["partition"])
        peak[place] = max(peak.get(place, 0), row["lag"])
    return sorted(sorted(peak, key=lambda place: (-peak[place], place))[:MAX_PARTITIONS])


def add_worst_tables(page: ReportPage, tables: Mapping[str, Any]) -> None:
    from pyspark.sql import functions as F

    slow = tables["rebalances"].orderBy(F.col("took_ms").desc(), "group", "number").limit(WORST)
    page.table(
        "The longest rebalances",
        "Join waits for members, plan for the assignor, settle for every member to fetch its share.",
        [
            {
                "group": row["group"],
                "#": row["number"],
                "started": format_time(row["started_at"]),
                "cause": row["cause"],
                "outcome": row["outcome"],
                "took ms": row["took_ms"],
                "join ms": row["join_ms"],
                "plan ms": row["plan_ms"],
                "settle ms": row["settle_ms"],
                "moves": row["moves"],
                "unowned partition-s": format_seconds(row["unowned_partition_ms"]),
            }
            for row in collect_rows(slow)
        ],
    )
    idle = tables["moves"].where("unowned_ms > 0").orderBy(F.col("unowned_ms").desc(), "group", "number").limit(WORST)
    page.table(
        "The longest times without an owner",
        "",
        [
            {
                "group": row["group"],
                "#": row["number"],
                "at": format_time(row["at"]),
                "partition": f"{row['topic']}-{row['partition']}",
                "from": shorten_member_id(row["source"]),
                "to": shorten_member_id(row["target"]),
                "unowned s": format_seconds(row["unowned_ms"]),
                "why": row["why"],
            }
            for row in collect_rows(idle)
        ],
    )


def draw_lag(figure: Any, groups: Sequence[str], lines: Rows, entries: Rows) -> None:
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(5, 1))
    for number, group in enumerate(groups):
        mine = [row for row in lines if row["group"] == group]
        lag = [row["lag"] for row in mine]
        above.plot([row["at"] for row in mine], lag, color=choose_colour(number), label=group, lw=1.6)
        times = [row["started_at"] for row in entries if row["group"] == group]
        below.scatter(times, [number] * len(times), marker="|", s=60, color=choose_colour(number))
    above.set_ylim(bottom=0)
    above.set_ylabel("records behind")
    above.yaxis.set_major_formatter(lambda value, _: format_short(float(value)))
    below.set_yticks([])
    below.set_ylim(len(groups) - 0.5, -0.5)
    below.set_ylabel("rebalances", rotation=0, ha="right", va="center")
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper center", ncols=min(6, len(groups)))


def draw_heat(figure: Any, partitions: Sequence[tuple[str, int]], cells: Rows) -> None:
    from matplotlib import dates

    times = sorted({row["at"] for row in cells})
    column = {at: number for number, at in enumerate(times)}
    line = {place: number for number, place in enumerate(partitions)}
    grid = [[0] * len(times) for _ in partitions]
    for row in cells:
        place = (row["topic"], row["partition"])
        if place in line:
            grid[line[place]][column[row["at"]]] = row["lag"]
    axis = figure.subplots()
    date2num: Any = dates.date2num
    edges = (date2num(times[0]), max(date2num(times[-1]), date2num(times[0]) + 1e-6), len(partitions) - 0.5, -0.5)
    image = axis.imshow(grid, aspect="auto", cmap="YlOrRd", extent=edges, interpolation="nearest")
    axis.xaxis_date()
    axis.set_yticks(range(len(partitions)), [f"{topic}-{number}" for topic, number in partitions], fontsize=8)
    axis.grid(visible=False)
    figure.colorbar(image, ax=axis, format=lambda value, _: format_short(float(value)), pad=0.01)


def draw_timeline(figure: Any, entries: Rows) -> None:
    axis = figure.subplots()
    groups = sorted({row["group"] for row in entries})
    most = max(1, *(row["unowned_partition_ms"] or 0 for row in entries))
    for number, cause in enumerate(sorted({row["cause"] for row in entries})):
        mine = [row for row in entries if row["cause"] == cause]
        sizes = [25 + 500 * (row["unowned_partition_ms"] or 0) / most for row in mine]
        places = [groups.index(row["group"]) for row in mine]
        times = [row["started_at"] for row in mine]
        axis.scatter(times, places, s=sizes, color=choose_colour(number), alpha=0.65, lw=0, label=cause)
    axis.set_yticks(range(len(groups)), groups)
    axis.set_ylim(len(groups) - 0.5, -0.5)
    legend = figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=8.5)
    for handle in legend.legend_handles:
        handle.set_sizes([40])


def draw_causes(figure: Any, causes: Rows) -> None:
    groups = sorted({row["group"] for row in causes})
    known = sorted({row["cause"] for row in causes})
    axes = figure.subplots(1, 2, sharey=True)
    for axis, column, scale, title in (
        (axes[0], "rebalances", 1, "rebalances"),
        (axes[1], "unowned_partition_ms", 1000, "partition-seconds unowned"),
    ):
        left = [0.0] * len(groups)
        for number, cause in enumerate(known):
            by_group = {row["group"]: (row[column] or 0) / scale for row in causes if row["cause"] == cause}
            values = [by_group.get(group, 0.0) for group in groups]
            axis.barh(range(len(groups)), values, 0.62, left=left, color=choose_colour(number), label=cause)
            left = [start + value for start, value in zip(left, values, strict=True)]
        for at, end in enumerate(left):
            axis.annotate(
                format_short(end),
                (end, at),
                (4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8.5,
                color="#57606a",
            )
        axis.set_title(title)
        # Not by a margin: a bar of no length at the end of others would hold the edge there.
        axis.set_xlim(0, 1.14 * max(left, default=0.0) or 1)
        axis.locator_params(axis="x", integer=scale == 1)
        axis.grid(visible=False, axis="y")
    axes[0].set_yticks(range(len(groups)), groups)
    axes[0].set_ylim(len(groups) - 0.5, -0.5)
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside upper center", ncols=5, fontsize=8.5)


def draw_members(figure: Any, members: Rows) -> None:
    axis = figure.subplots()
    names = name_members(members)
    axis.barh(range(len(members)), [row["gained"] for row in members], 0.68, color=choose_colour(2), label="gained")
    axis.barh(range(len(members)), [-row["lost"] for row in members], 0.68, color=choose_colour(1), label="lost")
    axis.axvline(0, color="#9aa1a9", lw=0.8)
    axis.set_yticks(range(len(members)), names)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.xaxis.set_major_formatter(lambda value, _: format_short(abs(float(value))))
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=2)


def name_members(members: Rows) -> list[str]:
    """Group and client id; with the start of the member id where that does not tell members apart."""
    short_names = [f"{row['group']} / {row['client_id'] or row['member']}" for row in members]
    return [
        name if short_names.count(name) == 1 else f"{name} {str(row['member'])[-12:]}"
        for name, row in zip(short_names, members, strict=True)
    ]


def collect_rows(frame: Any) -> list[dict[str, Any]]:
    """Times in UTC, whatever the session's time zone is."""
    return [
        {name: value.astimezone(UTC) if isinstance(value, datetime) else value for name, value in row.items()}
        for row in frame.toArrow().to_pylist()
    ]


def shorten_member_id(member: str | None) -> str | None:
    """A member id as far as people read it: the client's part and the start of the UUID."""
    return member if member is None or len(member) <= UUID_LENGTH else member[: 4 - UUID_LENGTH]


def format_seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000


def format_time(at: datetime) -> str:
    return at.strftime("%Y-%m-%d %H:%M:%S")


# Report on a backtest
# --------------------

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
    """One HTML page. Raises PlottingNotInstalled."""
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
