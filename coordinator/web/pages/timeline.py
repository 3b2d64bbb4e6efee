"""Rebalances on a line of time, to scale, and each one's phases.

Widths are shares of the page's, so that a phone is no less sharp.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup

from muster.coordinator.web.pages.svg import element, join_parts, percent

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

    >>> time_in_words(90_000), time_in_words(120_000), time_in_words(3_600_000), time_in_words(45 * 60_000),
    ... time_in_words(2 * DAY)
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
