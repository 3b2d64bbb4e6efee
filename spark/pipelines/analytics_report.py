"""The report on a node's groups: lag over time, rebalances by cause, time without an owner, moves per member."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from muster.spark.pipelines.page import ReportPage, choose_colour, format_short

MAX_GROUPS = 8
"""Lines of one chart: those with the most lag."""
MAX_POINTS = 5_000
MAX_MEMBERS = 16
MAX_PARTITIONS = 40
WORST = 12
UUID_LENGTH = 36
Rows = Sequence[Mapping[str, Any]]


def build_analytics_report(tables: Mapping[str, Any], malformed: int) -> str:
    """One HTML page from the tables, which are Spark data frames. Raises NoPlotting."""
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
