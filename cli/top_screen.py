"""What `muster top` shows and what its keys do: a picture of the groups and a screen size in, lines out.

Pure: the terminal and the node are elsewhere. The list sorts and filters groups; one group's page shows which member
owns which partition, with its lag, the last rebalance, and which members a rebalance waits for. Figures are short,
each aligned in its column.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len, set_cell_size
from rich.text import Text

from muster.cli.node_polling import GroupLine, GroupsPicture
from muster.coordinator.observability.doctor.model import cause_name, member_name, seconds, some
from muster.coordinator.observability.read_model.groups import MemberDescription, TopicPartition
from muster.coordinator.observability.views.formatting import bounded, harmless, plural
from muster.coordinator.observability.views.ledger import surely_unowned_seconds
from muster.coordinator.observability.views.member_names import Names

# Figures
# -------

SHORT_STATES = {"PreparingRebalance": "Preparing", "CompletingRebalance": "Completing"}
CALM = {"Stable": "green", "Empty": "dim", "Dead": "dim"}


def state_style(state: str) -> str:
    return CALM.get(state, "bold yellow")


def number(count: float | None) -> str:
    """
    >>> number(None), number(950), number(12_345), number(1_234_567), number(45_600_000_000)
    ('-', '950', '12.3k', '1.2M', '45.6G')
    """
    if count is None:
        return "-"
    size, unit = float(count), ""
    for larger in ("k", "M", "G", "T"):
        if abs(size) < 1000:
            break
        size, unit = size / 1000, larger
    return f"{size:.0f}" if not unit else f"{size:.1f}{unit}"


def rate(records_s: float | None) -> str:
    """
    >>> rate(None), rate(0.0), rate(-120.0), rate(2_500.0), rate(0.44), rate(-0.02), rate(9.96)
    ('-', '0/s', '-120/s', '+2.5k/s', '+0.4/s', '0/s', '+10/s')
    """
    if records_s is None:
        return "-"
    if abs(records_s) < 0.05:
        return "0/s"
    if abs(records_s) < 9.95:
        return f"{records_s:+.1f}/s"
    sign = "+" if records_s > 0 else ""
    return f"{sign}{number(records_s)}/s"


def eta(seconds: float | None) -> str:
    """
    >>> eta(None), eta(0.0), eta(42.0), eta(95.0), eta(7_500.0), eta(200_000.0), eta(1e9)
    ('-', '0s', '42s', '1m35s', '2h05m', '2d7h', 'long')
    """
    if seconds is None:
        return "-"
    whole = round(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3_600:
        return f"{whole // 60}m{whole % 60:02}s"
    if whole < 86_400:
        return f"{whole // 3600}h{whole % 3600 // 60:02}m"
    return f"{whole // 86_400}d{whole % 86_400 // 3600}h" if whole < 8_640_000 else "long"


def cell(text: str, width: int, right: bool = False) -> str:
    """Exactly so wide on a terminal, whatever letters there are; what is cut off is marked.

    >>> cell("abc", 5), cell("abc", 5, right=True), cell("abcdef", 4), cell("日本語", 5)
    ('abc  ', '  abc', 'abc~', '日本~')
    """
    if cell_len(text) > width:
        return set_cell_size(text, width - 1) + "~"
    return " " * (width - cell_len(text)) + text if right else set_cell_size(text, width)


# One group
# ---------

LEVELS = (
    (0, "0", "black on green"),
    (100, "1", "black on green"),
    (1_000, "2", "black on yellow"),
    (10_000, "3", "black on yellow"),
    (100_000, "4", "white on red"),
)
"""Up to which lag a partition has which mark and colours; beyond, it has the last one."""
BEYOND = ("5", "bold white on red")
LOUD = "bold white on red"
UNKNOWN = ("?", "reverse")
FREE = "."
NAMED = 20
"""Columns for a member's name."""


def group_page(line: GroupLine, now_ms: int, width: int) -> list[Text]:
    """All of it; the screen shows as much as it has room for."""
    return [*group_head(line, now_ms), Text(), *assignment_map(line, width)]


def group_head(line: GroupLine, now_ms: int) -> list[Text]:
    group = line.group
    first = Text(harmless(group.id), style="bold").append("  ").append(group.state, style=state_style(group.state))
    first.append(
        f"  {group.type}, generation {group.generation}, {harmless(group.assignor) or 'no assignor'}", style="dim"
    )
    pace = f"{rate(line.trend)}, {time_to_go(line)}" if group.members else time_to_go(line)
    second = Text(f"{plural(len(group.members), 'member')}, {number(line.lag)} behind, {pace}")
    second.append(f", {number(line.rebalances)} rebalance{'' if line.rebalances == 1 else 's'} in the last hour")
    lines = [first, second]
    if line.unowned:
        lines.append(
            Text(
                f"{plural(line.unowned, 'partition')} without an owner", style="bold red" if group.stable else "yellow"
            )
        )
    newest = next(iter(group.rebalances), None)
    if newest is not None:
        ago = seconds(max(0, now_ms - newest.ended_at_ms) // 1000 * 1000)
        by = f" by {harmless(newest.culprit_client_id or newest.culprit)}" if newest.culprit else ""
        why = cause_name(newest).replace("_", " ")
        lines.append(Text(f"last: #{newest.number} {why}{by}, {ago} ago"))
        cost = bounded(surely_unowned_seconds(newest), newest.unowned_partition_seconds, "{:.1f}".format)
        lines.append(Text(f"      {len(newest.moves)} moved, {cost} partition-seconds without an owner"))
    if group.description.waiting_for:
        left = seconds(max(0, group.description.waiting_until_ms - now_ms) // 1000 * 1000)
        names = Names.of_members(group.members)
        waits = some([harmless(names[member]) for member in group.description.waiting_for])
        lines.append(Text(f"waits for {waits}, at most {left} more", style="bold yellow"))
    return lines


def time_to_go(line: GroupLine) -> str:
    if not line.group.members:
        return idle_state(line)
    if line.lag == 0:
        return "nothing waits"
    if line.trend is None:
        return "trend not known yet"
    return f"gone in {eta(line.eta_s)}" if line.eta_s is not None else "not getting less"


def idle_state(line: GroupLine) -> str:
    """What the node says of a group without members, if it samples its groups."""
    progress = line.group.description.progress
    return progress.reason if progress is not None and progress.idle_since_ms is not None else "idle"


def assignment_map(line: GroupLine, width: int) -> list[Text]:
    """Members as rows, partitions as columns, topic by topic; several partitions to a column where there are many."""
    group, lines = line.group, []
    owners = group.owners()
    names = Names.of_members(group.members)
    for topic in sorted({*group.by_topic(), *(tp.topic for tp in group.positions)}):
        known = [tp.partition for tp in (*group.positions, *owners) if tp.topic == topic]
        count = max(line.partitions.get(topic, 0), max(known, default=-1) + 1)
        places = [TopicPartition(topic, number) for number in range(count)]
        step = max(1, -(-count // max(10, width - NAMED - 16)))
        bundled = f", {step} to a column" if step > 1 else ""
        lines.append(Text(harmless(topic), style="bold cyan").append(f"  {count} partitions{bundled}", style="dim"))
        columns = [places[at : at + step] for at in range(0, count, step)]
        free = [tp for tp in places if tp not in owners]
        if free and group.members:
            lines.append(map_row("nobody", len(free), columns, set(free), line, loud=True))
        for member in group.members:
            mine = {tp for tp in member.assignment if tp.topic == topic}
            if mine or topic in member.topics:
                lines.append(map_row(harmless(names[member.member_id]), len(mine), columns, mine, line))
        if not group.members:
            lines.append(map_row("(no members)", count, columns, set(places), line))
        lines.append(Text())
    return [*lines, map_legend(), *idle_members(group.members)]


def map_row(
    name: str,
    count: int,
    columns: Sequence[Sequence[TopicPartition]],
    mine: set[TopicPartition],
    line: GroupLine,
    *,
    loud: bool = False,
) -> Text:
    lag = sum(line.group.positions[tp].lag for tp in mine if tp in line.group.positions)
    text = Text(cell(name, NAMED - 1) + " ", style="bold red" if loud else "")
    text.append(f"{count:>5} {number(lag):>7}  ", style="dim")
    for column in columns:
        owned = [tp for tp in column if tp in mine]
        mark, style = mark_by_lag(owned, line) if owned else (FREE, "dim")
        text.append(mark, style=LOUD if loud and owned else style)
    return text


def mark_by_lag(owned: Sequence[TopicPartition], line: GroupLine) -> tuple[str, str]:
    """By the largest lag among them."""
    lags = [line.group.positions[tp].lag for tp in owned if tp in line.group.positions]
    if not lags:
        return UNKNOWN
    return next(((mark, style) for most, mark, style in LEVELS if max(lags) <= most), BEYOND)


def map_legend() -> Text:
    text = Text("lag: ", style="dim")
    for most, mark, style in LEVELS:
        text.append(mark, style=style).append(f" {'none' if most == 0 else 'to ' + number(most)}  ", style="dim")
    return (
        text.append(BEYOND[0], style=BEYOND[1])
        .append(" more  ", style="dim")
        .append(FREE)
        .append(" another's", style="dim")
    )


def idle_members(members: Sequence[MemberDescription]) -> list[Text]:
    without = [harmless(member_name(member)) for member in members if not member.assignment]
    return [Text(f"without any partition: {some(without)}", style="yellow")] if without else []


# The list, and keys
# ------------------

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


def time_left(line: GroupLine) -> str:
    return eta(line.eta_s) if line.group.members else "idle"


def last_cause(line: GroupLine) -> str:
    from muster.coordinator.observability.doctor.model import cause_name

    newest = next(iter(line.group.rebalances), None)
    return cause_name(newest).replace("_", " ") if newest is not None else "-"


HEADINGS = (
    ColumnHeading("GROUP", 0, lambda line: harmless(line.group.id), lambda line: line.group.id, right=False),
    ColumnHeading("TYPE", 9, lambda line: line.group.type, lambda line: line.group.type, right=False, only_wide=True),
    ColumnHeading("STATE", 10, lambda line: short_state(line), lambda line: line.group.state, right=False),
    ColumnHeading("MEMB", 5, lambda line: str(len(line.group.members)), lambda line: -len(line.group.members)),
    ColumnHeading("LAG", 8, lambda line: number(line.lag), lambda line: -(line.lag or 0)),
    ColumnHeading("TREND", 8, lambda line: rate(line.trend), lambda line: -(line.trend or 0)),
    ColumnHeading("ETA", 7, time_left, lambda line: -(line.eta_s or 0)),
    ColumnHeading("REB/H", 5, lambda line: number(line.rebalances), lambda line: -(line.rebalances or 0)),
    ColumnHeading("UNOWNED", 7, lambda line: str(line.unowned or "-"), lambda line: -line.unowned),
    ColumnHeading("ASSIGNOR", 11, lambda line: harmless(line.group.assignor) or "-", lambda line: line.group.assignor,
            right=False, only_wide=True),
    ColumnHeading("LAST CAUSE", 15, last_cause, last_cause, right=False, only_wide=True),
)  # fmt: skip
SORTS = tuple(heading.name for heading in HEADINGS if not heading.only_wide)
LIST_KEYS = "enter open  s sort  r reverse  / filter  m members  q quit"
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
    with_members: bool = False
    """Only groups that have members are shown."""
    cursor: str = ""
    """The group under the cursor; it stays there when the order changes."""
    opened: str = ""
    scroll: int = 0
    notice: str = "asking the node"
    over: bool = False

    def shown(self) -> list[GroupLine]:
        """The lines that pass the filters, in order; groups without members come last."""
        wanted = self.filter.lower()
        heading = next(heading for heading in HEADINGS if heading.name == self.sort)
        passing = (line for line in self.picture.lines if line.group.members or not self.with_members)
        lines = [line for line in passing if wanted in line.group.id.lower()]
        lines.sort(key=lambda line: line.group.id)
        lines.sort(key=heading.order, reverse=self.reverse)  # type: ignore[arg-type]
        return sorted(lines, key=lambda line: not line.group.members)

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
        elif key == "m":
            self.with_members = not self.with_members
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
        filters = [*([self.filter] if self.filter else []), *(["members"] if self.with_members else [])]
        filtered = f"  [{', '.join(filters)}]" if filters else ""
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
