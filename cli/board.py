"""What the screen shows, and what the keys do: a picture and a size in, lines out. Pure; no terminal here."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.text import Text

from muster.cli.mapping import group_page
from muster.cli.picture import GroupLine, GroupsPicture
from muster.cli.writing import SHORT_STATES, cell, eta, number, rate, state_style
from muster.coordinator.observability.views.formatting import harmless

WIDE = 118
"""From so many columns on, there is room for more of them."""
NAME_AT_LEAST = 12


@dataclass(frozen=True, slots=True)
class ColumnHeading:
    """A column: its name, width (0: what is left), how a line is written and sorted in it."""

    name: str
    width: int
    text: Callable[[GroupLine], str]
    order: Callable[[GroupLine], object]
    right: bool = True
    only_wide: bool = False


def last_cause(line: GroupLine) -> str:
    from muster.coordinator.observability.doctor.words import cause_name

    newest = next(iter(line.group.rebalances), None)
    return cause_name(newest).replace("_", " ") if newest is not None else "-"


HEADINGS = (
    ColumnHeading("GROUP", 0, lambda line: harmless(line.group.id), lambda line: line.group.id, right=False),
    ColumnHeading("TYPE", 9, lambda line: line.group.type, lambda line: line.group.type, right=False, only_wide=True),
    ColumnHeading("STATE", 10, lambda line: short_state(line), lambda line: line.group.state, right=False),
    ColumnHeading("MEMB", 5, lambda line: str(len(line.group.members)), lambda line: -len(line.group.members)),
    ColumnHeading("LAG", 8, lambda line: number(line.lag), lambda line: -(line.lag or 0)),
    ColumnHeading("TREND", 8, lambda line: rate(line.trend), lambda line: -(line.trend or 0)),
    ColumnHeading("ETA", 7, lambda line: eta(line.eta_s), lambda line: -(line.eta_s or 0)),
    ColumnHeading("REB/H", 5, lambda line: number(line.rebalances), lambda line: -(line.rebalances or 0)),
    ColumnHeading("UNOWNED", 7, lambda line: str(line.unowned or "-"), lambda line: -line.unowned),
    ColumnHeading("ASSIGNOR", 11, lambda line: harmless(line.group.assignor) or "-", lambda line: line.group.assignor,
            right=False, only_wide=True),
    ColumnHeading("LAST CAUSE", 15, last_cause, last_cause, right=False, only_wide=True),
)  # fmt: skip
SORTS = tuple(heading.name for heading in HEADINGS if not heading.only_wide)
LIST_KEYS = "up/down  enter open  s sort  r reverse  / filter  q quit"
GROUP_KEYS = "up/down scroll  esc back  q quit"


def short_state(line: GroupLine) -> str:
    return SHORT_STATES.get(line.group.state, line.group.state)


@dataclass(slots=True)
class TopScreen:
    """What is on the screen: sorting, filter, the line under the cursor, the group that is open."""

    address: str
    picture: GroupsPicture = field(default_factory=lambda: GroupsPicture(0))
    sort: str = "LAG"
    reverse: bool = False
    filter: str = ""
    typing: bool = False
    cursor: str = ""
    """The group under the cursor; it stays there when the order changes."""
    opened: str = ""
    scroll: int = 0
    notice: str = "asking the node"
    over: bool = False

    def shown(self) -> list[GroupLine]:
        """The lines that pass the filter, in order."""
        wanted = self.filter.lower()
        heading = next(heading for heading in HEADINGS if heading.name == self.sort)
        lines = [line for line in self.picture.lines if wanted in line.group.id.lower()]
        lines.sort(key=lambda line: line.group.id)
        lines.sort(key=heading.order, reverse=self.reverse)  # type: ignore[arg-type]
        return lines

    def press(self, key: str) -> None:
        """A key: a character, or one of up, down, pageup, pagedown, enter, escape, backspace."""
        if self.typing:
            self._type(key)
        elif key == "q":
            self.over = True
        elif self.opened:
            self._in_group(key)
        else:
            self._in_list(key)

    def _type(self, key: str) -> None:
        if key in ("enter", "escape"):
            self.typing = False
            self.filter = self.filter if key == "enter" else ""
        elif key == "backspace":
            self.filter = self.filter[:-1]
        elif len(key) == 1 and key.isprintable():
            self.filter += key

    def _in_group(self, key: str) -> None:
        if key in ("escape", "backspace", "left"):
            self.opened, self.scroll = "", 0
        elif key in STEPS:
            self.scroll = max(0, self.scroll + STEPS[key])

    def _in_list(self, key: str) -> None:
        names = [line.group.id for line in self.shown()]
        at = names.index(self.cursor) if self.cursor in names else 0
        if key in STEPS and names:
            self.cursor = names[min(max(at + STEPS[key], 0), len(names) - 1)]
        elif key in ("enter", "right") and names:
            self.opened, self.cursor, self.scroll = names[at], names[at], 0
        elif key == "s":
            self.sort = SORTS[(SORTS.index(self.sort) + 1) % len(SORTS)]
        elif key == "r":
            self.reverse = not self.reverse
        elif key == "/":
            self.typing, self.filter = True, ""
        elif key == "escape":
            self.filter = ""

    def page(self, width: int, height: int) -> list[Text]:
        """The whole screen: as many lines as it is high, none longer than it is wide."""
        opened = next((line for line in self.picture.lines if line.group.id == self.opened), None)
        body = height - 3
        if self.opened and opened is None:
            middle = [Text(f"group {harmless(self.opened)} is not there any more", style="yellow")]
        elif opened is not None:
            whole = group_page(opened, self.picture.now_ms, width)
            self.scroll = min(self.scroll, max(0, len(whole) - body))
            middle = whole[self.scroll : self.scroll + body]
        else:
            middle = self._list(width, body)
        lines = [self._title(), *middle]
        lines += [Text()] * (height - 2 - len(lines))
        lines += [Text(harmless(self.notice), style="bold yellow"), self._keys()]
        return [fit_width(line, width) for line in lines[:height]]

    def on_screen(self, height: int) -> list[str]:
        """The groups that the list shows now, or the one that is open."""
        if self.opened:
            return [self.opened]
        return [line.group.id for line in self._window(self.shown(), height - 4)]

    def _title(self) -> Text:
        lines = self.picture.lines
        behind = sum(line.lag or 0 for line in lines)
        unowned = sum(line.unowned for line in lines if line.group.stable)
        title = Text("muster top", style="bold").append(f"  {self.address}  ", style="dim")
        title.append(f"{len(lines)} groups, {number(behind)} behind")
        if unowned:
            title.append(f", {unowned} partitions unowned", style="bold red")
        return title

    def _keys(self) -> Text:
        if self.typing:
            return Text(f"filter: {self.filter}_", style="reverse")
        if self.opened:
            return Text(GROUP_KEYS, style="dim")
        filtered = f"  [{self.filter}]" if self.filter else ""
        return Text(f"{LIST_KEYS}  by {self.sort}{' reversed' if self.reverse else ''}{filtered}", style="dim")

    def _list(self, width: int, room: int) -> list[Text]:
        headings = [heading for heading in HEADINGS if width >= WIDE or not heading.only_wide]
        fixed = sum(heading.width + 1 for heading in headings if heading.width)
        widths = [heading.width or max(NAME_AT_LEAST, width - fixed - 1) for heading in headings]
        top = Text(" ").append(" ".join(cell(h.name, w, h.right) for h, w in zip(headings, widths, strict=True)))
        top.stylize("bold underline")
        shown = self.shown()
        if not shown:
            why = "no group passes the filter" if self.picture.lines else "there are no groups"
            return [top, Text(" " + why, style="dim")]
        window = self._window(shown, room - 1)
        return [top, *(self._row(line, headings, widths) for line in window)]

    def _row(self, line: GroupLine, headings: Sequence[ColumnHeading], widths: Sequence[int]) -> Text:
        chosen = line.group.id == (self.cursor or self.shown()[0].group.id)
        row = Text(" ", style="reverse" if chosen else "")
        for heading, width in zip(headings, widths, strict=True):
            style = "" if chosen else style_of(heading.name, line)
            row.append(cell(heading.text(line), width, heading.right), style=style).append(" ")
        return row

    def _window(self, lines: Sequence[GroupLine], room: int) -> Sequence[GroupLine]:
        """The part of the list around the cursor."""
        names = [line.group.id for line in lines]
        at = names.index(self.cursor) if self.cursor in names else 0
        start = max(0, min(at - room // 2, len(lines) - room))
        return lines[start : start + max(room, 1)]


STEPS = {"up": -1, "down": 1, "pageup": -10, "pagedown": 10, "k": -1, "j": 1}


def style_of(name: str, line: GroupLine) -> str:
    if name == "STATE":
        return state_style(line.group.state)
    if name == "UNOWNED" and line.unowned:
        return "bold red" if line.group.stable else "yellow"
    if name == "TREND" and line.trend is not None:
        return "red" if line.trend > 0 else "green" if line.trend < 0 else ""
    return ""


def fit_width(line: Text, width: int) -> Text:
    """No longer than the screen is wide."""
    line.truncate(width)
    return line
