"""Pictures of groups as SVG: pure functions of plain values, drawn on the server.

Colours are classes of the style sheet, decades of lag and of rate that are the same on every picture, so that two
groups compare. Every value is escaped, and nothing has a style of its own, so that the page needs no inline style.
Widths on the line of time are shares of the page's, so that a phone shows it as sharp.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

from muster.coordinator.observability.views.formatting import harmless

# SVG as text
# -----------


def element(name: str, *children: str | Markup, **attributes: object) -> Markup:
    """One element. `class_` stands for class, `_` in other names for a hyphen; attributes that are None are left out.

    >>> element("text", "a<b", x=1, class_="n", text_anchor="end")
    Markup('<text x="1" class="n" text-anchor="end">a&lt;b</text>')
    """
    written = "".join(
        f' {"class" if key == "class_" else key.replace("_", "-")}="{escape_value(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    inside = "".join(map(escape_value, children))
    return Markup(f"<{name}{written}>{inside}</{name}>" if inside else f"<{name}{written}/>")


def escape_value(value: object) -> Markup:
    """Escaped; what others chose, without what would turn the writing of those who read it.

    >>> escape_value("a<b\u202e")
    Markup('a&lt;b\\\\u202e')
    """
    return escape(harmless(value) if type(value) is str else value)


def join_parts(parts: Iterable[Markup]) -> Markup:
    return Markup("").join(parts)


def short(number: float) -> str:
    """A coordinate, without digits that nobody sees.

    >>> short(12.0), short(3.14159), short(0.004)
    ('12', '3.14', '0')
    """
    return f"{number:.2f}".rstrip("0").rstrip(".")


def percent(share: float) -> str:
    """Of the picture's width, which the page decides.

    >>> percent(0.5), percent(1 / 3)
    ('50%', '33.33%')
    """
    return short(100 * share) + "%"


# Colours of figures
# ------------------

LAG_FROM: Final = (1, 100, 1_000, 10_000, 100_000)
RATE_FROM: Final = (0.01, 1, 10, 100, 1_000)
LAG_WORDS: Final = ("caught up", "1 to 99", "100 to 999", "1,000 to 9,999", "10,000 to 99,999", "100,000 and more")
RATE_WORDS: Final = ("idle", "under 1/s", "1 to 9/s", "10 to 99/s", "100 to 999/s", "1,000/s and more")
UNKNOWN_CLASS: Final = "ln"


def lag_class(lag: int | None) -> str:
    """
    >>> lag_class(0), lag_class(99), lag_class(100), lag_class(10**9), lag_class(None)
    ('l0', 'l1', 'l2', 'l5', 'ln')
    """
    return UNKNOWN_CLASS if lag is None else f"l{bisect_right(LAG_FROM, lag)}"


def rate_class(rate: float | None) -> str:
    """
    >>> rate_class(0.0), rate_class(5.0), rate_class(None)
    ('r0', 'r2', 'ln')
    """
    return UNKNOWN_CLASS if rate is None else f"r{bisect_right(RATE_FROM, rate)}"


def legend(by: str) -> list[tuple[str, str]]:
    """(class, what it stands for), calm first; `by` is lag or rate."""
    letter, words = ("r", RATE_WORDS) if by == "rate" else ("l", LAG_WORDS)
    return [(f"{letter}{number}", word) for number, word in enumerate(words)]


# Partitions as cells
# -------------------

STRIP = 10
"""Cells of a strip: few enough for a phone, and one counts in tens."""
CELL_WIDTH, CELL_HEIGHT, CELL_GAP = 27, 22, 2


@dataclass(frozen=True, slots=True)
class PartitionCell:
    """One partition. `colour` is a class of the style sheet, `label` what a pointer is told."""

    number: int
    colour: str
    label: str
    moved: bool = False
    gone: bool = False
    """It is not here any more: the last rebalance took it away."""


def draw_strips(cells: Sequence[PartitionCell], about: str) -> Markup:
    """The cells in strips of ten, each an image of its own; `about` names what they are for who does not see them."""
    return Markup("").join(draw_strip(cells[at : at + STRIP], about) for at in range(0, len(cells), STRIP))


def draw_strip(cells: Sequence[PartitionCell], about: str) -> Markup:
    width = len(cells) * (CELL_WIDTH + CELL_GAP) - CELL_GAP
    drawn = "".join(cell_text(cell, at * (CELL_WIDTH + CELL_GAP)) for at, cell in enumerate(cells))
    numbers = ", ".join(str(cell.number) for cell in cells)
    label = escape_value(f"{about} {numbers}")
    return Markup(
        f'<svg class="strip" width="{width}" height="{CELL_HEIGHT}" role="img" aria-label="{label}">{drawn}</svg>'
    )


def cell_text(cell: PartitionCell, x: int) -> str:
    kind = " gone" if cell.gone else " moved" if cell.moved else ""
    mark = f'<path class="mark" d="M{x + 1.5} 1.5h9l-9 9z"/>' if cell.moved and not cell.gone else ""
    return (
        f'<g class="cell {cell.colour}{kind}"><title>{escape_value(cell.label)}</title>'
        f'<rect x="{x + 0.75}" y=".75" width="{CELL_WIDTH - 1.5}" height="{CELL_HEIGHT - 1.5}" rx="4"/>{mark}'
        f'<text x="{x + CELL_WIDTH / 2}" y="15">{cell.number}</text></g>'
    )


def draw_bar(counts: Iterable[tuple[str, int]], most: int) -> Markup:
    """As many cells of each colour, side by side; the whole width stands for `most` cells. The page gives the height.

    Each colour is drawn from the left edge over those that end farther right: a place less to tell for each.

    >>> draw_bar([("l0", 2), ("l4", 1)], 8)
    Markup('<svg><rect class="l4" width="37.5%"/><rect class="l0" width="25%"/></svg>')
    """
    drawn, at = [], 0
    for colour, count in counts:
        at += count
        drawn.append(f'<rect class="{colour}" width="{percent(at / max(most, 1))}"/>')
    return Markup(f"<svg>{''.join(reversed(drawn))}</svg>")


# Lag over time
# -------------

MOST_POINTS = 240
"""More than a picture of this width can show."""


def thin_points(times: Sequence[int], values: Sequence[int], most: int) -> list[tuple[int, int]]:
    """At most so many points; of those that fall together the highest, so that no peak is lost.

    >>> thin_points([0, 1, 2, 3], [5, 9, 1, 2], 2)
    [(1, 9), (3, 2)]
    """
    if len(times) <= most:
        return list(zip(times, values, strict=True))
    size = -(-len(times) // most)
    points = list(zip(times, values, strict=True))
    return [max(points[at : at + size], key=lambda point: point[1]) for at in range(0, len(points), size)]


def outline_paths(points: Sequence[tuple[int, int]], width: float, height: float, top: int) -> tuple[str, str]:
    """The line and the area below it, as paths; the time line fills the width."""
    first, last = points[0][0], points[-1][0]
    span = max(last - first, 1)
    placed = [(width * (at - first) / span, height - height * value / max(top, 1)) for at, value in points]
    line = "M" + "L".join(f"{short(x)} {short(y)}" for x, y in placed)
    return line, f"{line}L{short(placed[-1][0])} {short(height)}L0 {short(height)}z"


def draw_sparkline(times: Sequence[int], values: Sequence[int], width: int = 110, height: int = 26) -> Markup:
    """Empty without two points: one alone says nothing about time."""
    if len(times) < 2:
        return Markup("")
    points = thin_points(times, values, 60)
    line, area = outline_paths(points, width, height - 3, max(values))
    about = f"lag went from {values[0]:,} to {values[-1]:,}, at most {max(values):,}"
    return element(
        "svg",
        element("path", class_="area", d=area, transform="translate(0 2)"),
        element("path", class_="line", d=line, transform="translate(0 2)"),
        class_="spark", width=width, height=height, role="img", aria_label=about,
    )  # fmt: skip


def draw_chart(times: Sequence[int], values: Sequence[int], marks_ms: Sequence[int] = ()) -> Markup:
    """The same, large, with rebalances as lines; stretched to the width there is."""
    if len(times) < 2:
        return Markup("")
    points = thin_points(times, values, MOST_POINTS)
    first, last = points[0][0], points[-1][0]
    line, area = outline_paths(points, 1000, 180, max(values))
    marks = [
        element("line", class_="when", x1=short(x), x2=short(x), y1=0, y2=180)
        for x in (1000 * (at - first) / max(last - first, 1) for at in marks_ms if first <= at <= last)
    ]
    about = f"lag over time, from {values[0]:,} to {values[-1]:,}, at most {max(values):,}"
    shapes = [element("path", class_="area", d=area), element("path", class_="line", d=line), *marks]
    stretched = {"viewBox": "0 0 1000 180", "preserveAspectRatio": "none"}
    return element("svg", *shapes, class_="lag-chart", role="img", aria_label=about, **stretched)


# Rebalances over time
# --------------------

MINUTE, HOUR, DAY = 60_000, 3_600_000, 86_400_000
WINDOWS: Final = {5 * MINUTE: 5, 15 * MINUTE: 3, HOUR: 4, 6 * HOUR: 6, DAY: 4, 7 * DAY: 7, 30 * DAY: 3}
"""How far back a line may reach, and in how many parts it is divided: each begins at a whole number of its unit."""
TIMELINE_HEIGHT, TIMELINE_AXIS = 92, 70
MOST_SHOWN: Final = 2 / 3
"""The line is as long as most rebalances ask for; an old one alone shall not press the others together."""


@dataclass(frozen=True, slots=True)
class TimelineMark:
    """One rebalance. `kind` is a class of the style sheet, `weight` from 0 to 1 how much moved."""

    number: int
    start_ms: int
    end_ms: int
    kind: str
    weight: float
    label: str
    href: str


def timeline_window(starts_ms: Sequence[int], now_ms: int) -> int:
    """How far back the line reaches.

    >>> timeline_window([0, 3_500_000, 3_550_000], 3_600_000) == 5 * MINUTE
    True
    """
    ages = sorted(max(0, now_ms - start) for start in starts_ms)
    if not ages:
        return HOUR
    asked = ages[math.ceil(len(ages) * MOST_SHOWN) - 1]
    return next((each for each in WINDOWS if asked <= each * 0.98), max(ages[-1], 1))


def draw_timeline(marks: Sequence[TimelineMark], now_ms: int, stalls: Sequence[tuple[int, int]] = ()) -> Markup:
    """The line, newest to the right; `stalls` are (from, to) in which the node heard nobody."""
    span = timeline_window([mark.start_ms for mark in marks], now_ms)
    shown = [mark for mark in marks if mark.start_ms >= now_ms - span]

    def place(at_ms: int) -> float:
        return min(1.0, max(0.0, 1 - (now_ms - at_ms) / span))

    parts = [
        element("line", class_="axis", x1="0", x2="100%", y1=TIMELINE_AXIS, y2=TIMELINE_AXIS),
        *(draw_tick(number / parts_of(span), span) for number in range(parts_of(span) + 1)),
        *(draw_stall(place(begin), place(end)) for begin, end in stalls if end >= now_ms - span),
        *(draw_mark(mark, place(mark.start_ms), place(mark.end_ms)) for mark in shown),
    ]
    about = f"{len(shown)} rebalances of the last {time_in_words(span)}"
    return element(
        "svg", *parts, class_="timeline", width="100%", height=TIMELINE_HEIGHT, role="group", aria_label=about
    )


def parts_of(span: int) -> int:
    """
    >>> parts_of(HOUR), parts_of(400 * DAY)
    (4, 2)
    """
    return WINDOWS.get(span, 2)


def draw_tick(at: float, span: int) -> Markup:
    text = "now" if at == 1 else f"{time_in_words(round(span * (1 - at)))} ago"
    anchor = "end" if at == 1 else "start" if at == 0 else "middle"
    line = element("line", class_="tick", x1=percent(at), x2=percent(at), y1=TIMELINE_AXIS, y2=TIMELINE_AXIS + 5)
    inner = " inner" if 0 < at < 1 else ""
    return line + element("text", text, class_=f"tick{inner}", x=percent(at), y=TIMELINE_HEIGHT - 4, text_anchor=anchor)


def draw_stall(begin: float, end: float) -> Markup:
    title = element("title", "the node heard nobody; no deadline ran")
    return element(
        "rect",
        title,
        class_="stall",
        x=percent(begin),
        y=8,
        width=percent(max(end - begin, 0.002)),
        height=TIMELINE_AXIS - 8,
    )


def draw_mark(mark: TimelineMark, start: float, end: float) -> Markup:
    top = round(TIMELINE_AXIS - 14 - 42 * min(1.0, max(0.0, mark.weight)))
    # A member's seconds are nothing on a line of hours: what would be too thin to see is as wide as its stem.
    body = element(
        "rect", x=percent(start), y=top, width=percent(max(end - start, 0)), height=TIMELINE_AXIS - top, class_="body"
    )
    stem = element("line", x1=percent(start), x2=percent(start), y1=top, y2=TIMELINE_AXIS, class_="stem")
    head = element("circle", cx=percent(start), cy=top, r=5)
    return element("a", element("title", mark.label), body, stem, head, href=mark.href, class_=f"mark {mark.kind}")


def draw_phases(parts: Sequence[tuple[str, int, str]], longest_ms: int) -> Markup:
    """The phases of one rebalance, (class, milliseconds, what a pointer is told); the whole width is `longest_ms`."""
    drawn_parts, at = [], 0.0
    for colour, ms, label in parts:
        share = ms / max(longest_ms, 1)
        drawn_parts.append(
            element("rect", element("title", label), class_=colour, x=percent(at), y=0, width=percent(share), height=10)
        )
        at += share
    begin = element("line", class_="begin", x1=0, x2=0, y1=0, y2=10)
    about = "; ".join(label for _, _, label in parts)
    return element(
        "svg", begin, join_parts(drawn_parts), class_="phases", width="100%", height=10, role="img", aria_label=about
    )


def time_in_words(ms: int) -> str:
    """A length of time in one unit.

    >>> (time_in_words(90_000), time_in_words(120_000), time_in_words(3_600_000), time_in_words(45 * 60_000),
    ... time_in_words(2 * DAY))
    ('90 s', '2 min', '60 min', '45 min', '2 days')
    """
    if ms == MINUTE:
        return "1 min"
    if ms < 2 * MINUTE:
        return f"{ms / 1000:.0f} s"
    if ms < 2 * HOUR:
        return f"{ms / MINUTE:.0f} min"
    if ms < 2 * DAY:
        return f"{ms / HOUR:.0f} h"
    return f"{ms / DAY:.0f} days"
