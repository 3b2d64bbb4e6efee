"""Partitions as cells: one by one in short strips that a page can wrap, or bundled by colour into one bar."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from muster.coordinator.web.pages.svg import escape_value, percent

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
