"""A rebalance as text for people: cause, members, phases, moves, and how long partitions had no owner.

The text is made from the ledger's entry. It is a module of its own because it needs rich and the ledger's protobuf
types, which commands import only when they print a story.
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Sequence
from heapq import merge
from typing import TYPE_CHECKING, Any

from rich.console import Console
from rich.text import Text

from muster.coordinator.observability.views.formatting import (
    bounded,
    clock_time,
    duration,
    harmless,
    moment,
    plural,
    spans,
)
from muster.coordinator.observability.views.incidents import GroupIncident, find_incidents, latest_incidents
from muster.coordinator.observability.views.ledger import (
    cause_word,
    generation_words,
    is_rebalance,
    is_watched,
    outcome_word,
    surely_unowned_seconds,
    took_words,
    unowned_words,
)
from muster.coordinator.observability.views.member_names import Names, names_of
from muster.coordinator.observability.views.sentences import (
    describe_certainty,
    describe_incarnation,
    describe_late_fetch,
    describe_phase_wait,
    describe_topic_change,
    describe_waits,
)
from muster.coordinator.rpc.v1 import ledger_pb2

if TYPE_CHECKING:
    from muster.client import Admin

MAX_ENTRY_LINES = 12
"""Entries below an incident."""
MAX_MOVE_LINES = MAX_POSITION_LINES = 12
"""Per rebalance, for people; json and yaml show every move."""

INDENT = 11
"""Columns before what is said: two, the longest label, one."""

OUTCOME_STYLES = {"completed": "green", "emptied": "yellow", "superseded": "yellow", "failed": "red"}
SERVER_SIDE_WORDS = ("remote", "setting", "central")
"""Sources of a snapshot from which the coordinator itself made the plan, of a classic group and of a central one."""


def fetch_rebalances(admin: "Admin", group: str, limit: int = 0, generation: int = 0) -> list[ledger_pb2.Rebalance]:
    """The last rebalances, oldest first, with snapshots; these are fetched one by one, because they may be large."""
    entries = admin.explain(group, limit, generation)[::-1]
    for entry in entries:
        if outcome_word(entry) != "completed":
            continue
        for full in admin.explain(group, 0, entry.generation, include_snapshots=True):
            if full.number == entry.number:
                entry.CopyFrom(full)
    return entries


def print_story(
    out: Console,
    entries: Sequence[ledger_pb2.Rebalance],
    moves: Sequence[ledger_pb2.CoordinatorMove] = (),
    *,
    full: bool = False,
) -> None:
    """Print the entries, a blank line between them, and where their coordinator moved. A terminal gets its lines
    wrapped below their beginning."""
    names = names_of(entries, full=full)
    width = out.width - INDENT if out.is_terminal else None
    for number, entry in enumerate(merge_by_time(entries, moves)):
        if number:
            out.print()
        if isinstance(entry, ledger_pb2.CoordinatorMove):
            out.print(move_line(entry), soft_wrap=True)
            continue
        for line in story_lines(entry, names, out, width):
            out.print(line, soft_wrap=True)


def print_incidents(
    out: Console,
    entries: Sequence[ledger_pb2.Rebalance],
    limit: int,
    stalls: Sequence[ledger_pb2.NodeStall] = (),
    moves: Sequence[ledger_pb2.CoordinatorMove] = (),
    *,
    full: bool = False,
) -> None:
    """Print what the last `limit` of all entries amount to: an incident each, with its entries in short below it."""
    names = names_of(entries, full=full)
    by_number = {entry.number: entry for entry in entries}
    found = find_incidents(entries, names, stalls, moves)
    for at, incident in enumerate(latest_incidents(found, entries, limit)):
        if at:
            out.print()
        for line in incident_lines(incident, [by_number[number] for number in incident.entries], names):
            out.print(line, soft_wrap=True)


def incident_lines(incident: GroupIncident, entries: Sequence[ledger_pb2.Rebalance], names: Names) -> Iterator[Text]:
    yield Text.assemble(
        (incident.kind.replace("_", " "), "bold yellow"),
        (f"   {moment(incident.from_ms)}", "dim"),
        f"   {duration(incident.to_ms - incident.from_ms)}",
        ("" if incident.certainty == "recorded" else f"   {incident.certainty}", "magenta"),
    )
    yield said(f"  {incident.sentence}", "bold")
    if incident.entries:
        overtaken = f" ({incident.superseded} overtaken)" if incident.superseded else ""
        cost = unowned_cost(incident.unowned_at_least_partition_seconds, incident.unowned_partition_seconds)
        moved = plural(incident.moved, "partition")
        yield Text(f"  {plural(incident.rebalances, 'rebalance')}{overtaken}, {moved} moved, {cost}", "dim")
    for entry in entries[:MAX_ENTRY_LINES]:
        yield entry_line(entry, names)
    if len(entries) > MAX_ENTRY_LINES:
        yield Text(f"  ... and {len(entries) - MAX_ENTRY_LINES} more; --entries shows them all", style="dim")


def entry_line(entry: ledger_pb2.Rebalance, names: Names) -> Text:
    """One entry in short: number, time, cause, whom it moved, and for whom it waited."""
    waits = "; ".join(describe_waits(phase.waits, names) for phase in entry.phases if phase.waits)
    took = took_words(entry) if is_rebalance(entry) else ""
    moved = f"   {plural(len(entry.moves), 'partition')} moved" if entry.moves else ""
    outcome = outcome_word(entry)
    return Text.assemble(
        (f"  #{entry.number:<4} {clock_time(entry.started_at_ms)}  ", "dim"),
        cause_line(entry, names) if is_rebalance(entry) else said(names.in_text(entry.detail) or outcome),
        f"   took {took}" if took else "",
        moved,
        "" if outcome == "completed" or not is_rebalance(entry) else f"   {outcome}",
        said(f"   {waits}" if waits else "", "dim"),
    )


def merge_by_time(
    entries: Sequence[ledger_pb2.Rebalance], moves: Sequence[ledger_pb2.CoordinatorMove]
) -> Iterator[ledger_pb2.Rebalance | ledger_pb2.CoordinatorMove]:
    """Both as they are given, oldest first, put together by time. That is of the clock of the node that told it: where
    clocks are apart, what came after an entry or a move is not told before it all the same."""
    return merge(entries, moves, key=entry_time)


def entry_time(entry: ledger_pb2.Rebalance | ledger_pb2.CoordinatorMove) -> int:
    return entry.serving_ms if isinstance(entry, ledger_pb2.CoordinatorMove) else entry.started_at_ms


def move_line(move: ledger_pb2.CoordinatorMove) -> Text:
    before = str(move.from_node) if move.from_node >= 0 else "?"
    took = move.serving_ms - (move.last_heard_ms or move.elected_ms)
    lost = f", {plural(move.cut, 'record')} lost" if move.cut else ""
    return Text.assemble(
        ("Coordinator moved", "bold"),
        f"   node {before} -> {move.to_node}   ",
        (moment(move.serving_ms), "dim"),
        f"   took {duration(took)}   {harmless(move.cause)}; {plural(move.members, 'member')} kept{lost}",
    )


def story_lines(entry: ledger_pb2.Rebalance, names: Names, out: Console, width: int | None = None) -> Iterator[Text]:
    """The lines of one rebalance, wrapped to `width` if one is given."""
    yield story_heading(entry)
    for label, texts in story_sections(entry, names):
        lines = [line for text in texts for line in (text.wrap(out, width) if width else [text])]
        for at, line in enumerate(lines):
            yield Text.assemble((f"  {label if at == 0 else '':<{INDENT - 3}} ", "dim"), line)


def story_heading(entry: ledger_pb2.Rebalance) -> Text:
    outcome = outcome_word(entry)
    took = took_words(entry) if is_rebalance(entry) else ""
    generations = generation_words(entry, "->")
    return Text.assemble(
        (f"{'Rebalance' if is_rebalance(entry) else 'Entry'} {entry.number}", "bold"),
        f"   generation {generations}   " if generations else "   ",
        (moment(entry.started_at_ms), "dim"),
        f"   took {took}   " if took else "   ",
        (outcome, OUTCOME_STYLES.get(outcome, "")),
    )


def story_sections(entry: ledger_pb2.Rebalance, names: Names) -> Iterator[tuple[str, Sequence[Text]]]:
    yield "cause", [cause_line(entry, names)]
    if entry.detail:
        yield "why", [said(names.in_text(entry.detail))]
    if entry.client_reason and entry.client_reason not in entry.detail:
        yield "said", [said(f'"{entry.client_reason}"')]
    if entry.topics:
        yield "topics", [said(topic_line(change)) for change in entry.topics]
    if entry.incarnations:
        yield "back", [said(describe_incarnation(back, names)) for back in entry.incarnations]
    if entry.late_fetches:
        yield "reads", [said(describe_late_fetch(late, names)) for late in entry.late_fetches]
    if entry.phases:
        yield "phases", [Text("   ").join(phase_text(phase, names) for phase in entry.phases)]
    if entry.notifications:
        woken = f"{plural(entry.notifications, 'notification')}, {plural(entry.herd, 'member')} claimed anew"
        yield "herd", [Text(woken)]
    if entry.protocol_name:
        yield "assignor", list(assignor_lines(entry))
    if is_rebalance(entry):
        yield "moved", list(move_lines(entry, names))
    if entry.positions or entry.more_positions:
        yield "offsets", list(position_lines(entry))
    if entry.triggers:
        yield "also", [trigger_line(trigger, names) for trigger in entry.triggers]
    elif entry.also:
        yield "also", [said(names.in_text(line)) for line in entry.also]


def said(text: str, style: str = "") -> Text:
    """What others may have chosen a part of: every such text of a story comes by here on its way to the terminal."""
    return Text(harmless(text), style)


def cause_line(entry: ledger_pb2.Rebalance, names: Names) -> Text:
    text = Text().append(cause_word(entry), style="bold yellow")
    if entry.culprit:
        at = f" at {entry.culprit_client_host}" if entry.culprit_client_host else ""
        text.append_text(said(f"   by {names[entry.culprit]}{at}"))
    if certainty := describe_certainty(entry, names):
        text.append_text(said(f"   {certainty}", "magenta"))
    return text


def topic_line(change: ledger_pb2.TopicChange) -> str:
    at = f" at {clock_time(change.at_ms)}" if change.at_ms else ""
    return f"{describe_topic_change(change)}{at}" + (f" by {change.by}" if change.by else "")


def trigger_line(trigger: ledger_pb2.FurtherTrigger, names: Names) -> Text:
    at = f"{clock_time(trigger.at_ms)}  " if trigger.at_ms else ""
    return Text.assemble((at, "dim"), said(names.in_text(trigger.detail) or cause_word(trigger)))


def phase_text(phase: ledger_pb2.RebalancePhase, names: Names) -> Text:
    text = said(f"{phase.name} {duration(phase.duration_ms)}")
    if waited := describe_phase_wait(phase, names):
        text.append_text(said(f" ({waited})", "dim"))
    return text


def assignor_lines(entry: ledger_pb2.Rebalance) -> Iterator[Text]:
    """Its name; when it failed also why, and what the group got instead. Needs the entry's snapshot to know."""
    snapshot = snapshot_of(entry)
    named = snapshot.get("assignor")
    # The protocol is what the members agreed on; a coordinator that was asked to plan may use another assignor.
    remote = entry.snapshot_source in SERVER_SIDE_WORDS and isinstance(named, str) and named
    yield said(f"{named} (on the coordinator)" if remote else entry.protocol_name)
    if (stale := snapshot.get("stale")) and isinstance(stale, dict):
        yield Text(stale_line(stale, known="lags" in snapshot), style="yellow")
    options = snapshot.get("options")
    if not isinstance(options, dict):
        return
    if "fallback" in options:
        yield said(f"FAILED: {options.get('reason', 'no reason is known')}", "bold red")
        yield said(f"the group got this plan instead: {options['fallback']}", "red")
    if "held" in options:
        yield said(f"its plan was corrected by what operators hold of the group: {options['held']}", "cyan")


def stale_line(stale: dict[str, Any], *, known: bool) -> str:
    """What the plan rests on where the leaders of some partitions did not say where they end."""
    count = plural(sum(len(partitions) for partitions in stale.values()), "partition")
    if known:
        return f"the lags of {count} are those of when their leaders last answered"
    return f"planned by count, without lags: nobody has said where the logs of {count} end"


def snapshot_of(entry: ledger_pb2.Rebalance) -> dict[str, Any]:
    """The assignor's input, where it is known; clients in other languages may hand in anything."""
    try:
        snapshot = json.loads(entry.snapshot_json or "{}")
    except ValueError:
        return {}
    return snapshot if isinstance(snapshot, dict) else {}


def move_lines(entry: ledger_pb2.Rebalance, names: Names) -> Iterator[Text]:
    told = not is_watched(entry) or not entry.moves or any(move.unowned_ms >= 0 for move in entry.moves)
    cost = unowned_cost(surely_unowned_seconds(entry), entry.unowned_partition_seconds)
    total = cost if told else "nobody saw for how long"
    yield Text(f"{plural(len(entry.moves), 'partition')}, {total}" if entry.moves else f"nothing; {total}")
    grouped: dict[tuple[str, str, str, str], list[ledger_pb2.PartitionMove]] = defaultdict(list)
    for move in entry.moves:
        grouped[move.topic, move.source, move.target, move.why].append(move)
    for number, ((topic, source, target, why), moves) in enumerate(grouped.items()):
        if number == MAX_MOVE_LINES:
            yield Text(f"... and {len(grouped) - MAX_MOVE_LINES} lines more; -o json shows them all", style="dim")
            return
        yield Text.assemble(
            said(f"{topic}[{spans(move.partition for move in moves)}]", "cyan"),
            said(f"   {names[source] or 'nobody'} -> {names[target] or 'nobody'}"),
            f"   {f'unowned {words}' if (words := unowned_words(moves)) else 'still unowned'}"
            if target and told
            else "",
            said(f"   {names.in_text(why)}" if why else "", "dim"),
        )


def position_lines(entry: ledger_pb2.Rebalance) -> Iterator[Text]:
    told = entry.positions[:MAX_POSITION_LINES]
    for change in told:
        before = f"{change.before}" if change.HasField("before") else "none"
        after = f"{change.after}" if change.HasField("after") else "none"
        yield Text.assemble(said(f"{change.topic}[{change.partition}]", "cyan"), f"   {before} -> {after}")
    if len(told) < len(entry.positions):
        yield Text(f"... and {len(entry.positions) - len(told)} lines more; -o json shows them all", style="dim")
    if entry.more_positions:
        yield Text(f"and {entry.more_positions} more, which the ledger has no room for", style="dim")


def unowned_cost(at_least_s: float, at_most_s: float) -> str:
    """
    >>> unowned_cost(20.9, 20.9), unowned_cost(12, 20.9)
    ('20.90 partition-seconds unowned', 'at least 12.00, at most 20.90 partition-seconds unowned')
    """
    return f"{bounded(at_least_s, at_most_s, '{:.2f}'.format)} partition-seconds unowned"
