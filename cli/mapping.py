"""One group on the screen: who has which partition, with its lag; the last rebalance; whom a rebalance waits for."""

from collections.abc import Sequence

from rich.text import Text

from muster.cli.picture import GroupLine
from muster.cli.writing import cell, eta, number, rate, state_style
from muster.coordinator.observability.doctor.facts import ExaminedMember, ExaminedPartition
from muster.coordinator.observability.doctor.words import cause_name, seconds, some
from muster.coordinator.observability.views.formatting import Names, harmless, plural

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
    second = Text(
        f"{plural(len(group.members), 'member')}, {number(line.lag)} behind, {rate(line.trend)}, {time_to_go(line)}"
    )
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
        cost = f"{newest.unowned_partition_seconds:.1f} partition-seconds without an owner"
        lines.append(Text(f"      {len(newest.moves)} moved, {cost}"))
    if group.waiting_for:
        left = seconds(max(0, group.waiting_until_ms - now_ms) // 1000 * 1000)
        names = Names(member.id for member in group.members)
        waits = some([harmless(names[member]) for member in group.waiting_for])
        lines.append(Text(f"waits for {waits}, at most {left} more", style="bold yellow"))
    return lines


def time_to_go(line: GroupLine) -> str:
    if line.lag == 0:
        return "nothing waits"
    if line.trend is None:
        return "trend not known yet"
    return f"gone in {eta(line.eta_s)}" if line.eta_s is not None else "not getting less"


def assignment_map(line: GroupLine, width: int) -> list[Text]:
    """Members as rows, partitions as columns, topic by topic; several partitions to a column where there are many."""
    group, lines = line.group, []
    owners = group.owners()
    names = Names(member.id for member in group.members)
    for topic in sorted({*group.by_topic(), *(tp.topic for tp in group.positions)}):
        known = [tp.partition for tp in (*group.positions, *owners) if tp.topic == topic]
        count = max(line.partitions.get(topic, 0), max(known, default=-1) + 1)
        places = [ExaminedPartition(topic, number) for number in range(count)]
        step = max(1, -(-count // max(10, width - NAMED - 16)))
        bundled = f", {step} to a column" if step > 1 else ""
        lines.append(Text(harmless(topic), style="bold cyan").append(f"  {count} partitions{bundled}", style="dim"))
        columns = [places[at : at + step] for at in range(0, count, step)]
        free = [tp for tp in places if tp not in owners]
        if free and group.members:
            lines.append(map_row("nobody", len(free), columns, set(free), line, loud=True))
        for member in group.members:
            mine = {tp for tp in member.owned if tp.topic == topic}
            if mine or topic in member.topics:
                lines.append(map_row(harmless(names[member.id]), len(mine), columns, mine, line))
        if not group.members:
            lines.append(map_row("(no members)", count, columns, set(places), line))
        lines.append(Text())
    return [*lines, map_legend(), *idle_members(group.members)]


def map_row(
    name: str,
    count: int,
    columns: Sequence[Sequence[ExaminedPartition]],
    mine: set[ExaminedPartition],
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


def mark_by_lag(owned: Sequence[ExaminedPartition], line: GroupLine) -> tuple[str, str]:
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


def idle_members(members: Sequence[ExaminedMember]) -> list[Text]:
    without = [harmless(member.name) for member in members if not member.owned]
    return [Text(f"without any partition: {some(without)}", style="yellow")] if without else []
