"""Lag over time: a sparkline for a table, and the chart that stands where there is no script."""

from collections.abc import Sequence

from markupsafe import Markup

from muster.coordinator.web.pages.svg import element, short

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
