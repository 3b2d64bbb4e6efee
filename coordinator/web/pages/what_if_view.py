"""What another assignor, more members or fewer would make of a group: the plan beside today's. Pure."""

import json
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from markupsafe import Markup

from muster.coordinator.observability.views.formatting import plural, spans
from muster.coordinator.observability.views.member_names import Names
from muster.coordinator.rpc.v1.coordinator_service_pb2 import SimulatedAssignment
from muster.coordinator.web.pages.pictures import draw_bar
from muster.coordinator.web.pages.rebalance_view import MoveLine

MOST_MEMBERS: Final = 60
MOST_LINES: Final = 100


@dataclass(frozen=True, slots=True)
class MemberPlanView:
    name: str
    mark: str
    """New, or leaving; empty for who stays."""
    before: int
    after: int
    was: Markup
    will: Markup


@dataclass(frozen=True, slots=True)
class PlanView:
    assignor: str
    error: str
    sentence: str = ""
    note: str = ""
    moves: int = 0
    spread_before: str = ""
    spread_after: str = ""
    lag_before: str = ""
    lag_after: str = ""
    unassigned: int = 0
    members: tuple[MemberPlanView, ...] = ()
    more_members: int = 0
    lines: tuple[MoveLine, ...] = ()
    more_lines: int = 0


def question(assignor: str, add: Sequence[str], remove: Sequence[str], names: Names) -> str:
    """
    >>> question("sticky", ["new-1", "new-2"], [], Names({}))
    'the assignor were sticky and 2 members came'
    """
    parts = [f"the assignor were {assignor}"] if assignor else []
    if add:
        parts.append(f"{plural(len(add), 'member')} came")
    if remove:
        parts.append(f"{' and '.join(names[member] for member in remove)} left")
    return " and ".join(parts) or "nothing changed"


def make_plan_view(answer: SimulatedAssignment, add: Sequence[str], remove: Sequence[str]) -> PlanView:
    if answer.error_message:
        return PlanView(answer.assignor, answer.error_message)
    forecast: dict[str, Any] = json.loads(answer.forecast_json)
    members: list[dict[str, Any]] = forecast["members"]
    names = Names.of_ids(member["id"] for member in members)
    most = max((max(each["partitions_before"], each["partitions_after"]) for each in members), default=1)
    changed_most = sorted(
        members, key=lambda each: (-abs(each["partitions_after"] - each["partitions_before"]), each["id"])
    )
    shown = sorted(changed_most[:MOST_MEMBERS], key=lambda each: names[each["id"]])
    lines = move_lines(forecast["moves"], names)
    return PlanView(
        assignor=answer.assignor,
        error="",
        sentence=forecast_sentence(forecast, members),
        note=forecast["note"],
        moves=len(forecast["moves"]),
        spread_before=span_of(forecast["partitions"]["before"]),
        spread_after=span_of(forecast["partitions"]["after"]),
        lag_before=span_of(forecast["lag"]["before"]),
        lag_after=span_of(forecast["lag"]["after"]),
        unassigned=forecast["unassigned"],
        members=tuple(member_plan(each, names, most, add, remove) for each in shown),
        more_members=len(members) - len(shown),
        lines=tuple(lines[:MOST_LINES]),
        more_lines=max(0, len(lines) - MOST_LINES),
    )


def forecast_sentence(forecast: Mapping[str, Any], members: Sequence[Mapping[str, Any]]) -> str:
    moves = len(forecast["moves"])
    if not moves:
        return "Nothing would move."
    touched = sum(each["partitions_before"] != each["partitions_after"] for each in members)
    return f"{plural(moves, 'partition')} would move; {plural(touched, 'member')} would have more or fewer than today."


def span_of(balance: Mapping[str, Any]) -> str:
    """
    >>> span_of({"least": 3, "most": 3}), span_of({"least": 0, "most": 1200})
    ('3', '0 to 1,200')
    """
    low, high = balance["least"], balance["most"]
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def member_plan(
    each: Mapping[str, Any], names: Names, most: int, add: Sequence[str], remove: Sequence[str]
) -> MemberPlanView:
    mark = "new" if each["id"] in add else "leaves" if each["id"] in remove else ""
    before, after = each["partitions_before"], each["partitions_after"]
    return MemberPlanView(
        names[each["id"]], mark, before, after, draw_bar([("was", before)], most), draw_bar([("will", after)], most)
    )


def move_lines(moves: Sequence[Mapping[str, Any]], names: Names) -> list[MoveLine]:
    grouped: dict[tuple[str, str, str, str], list[int]] = defaultdict(list)
    for move in moves:
        grouped[move["topic"], move["source"] or "", move["target"] or "", move["why"]].append(move["partition"])
    lines = [
        MoveLine(topic, spans(numbers), len(numbers), names[source], names[target], "", names.in_text(why))
        for (topic, source, target, why), numbers in grouped.items()
    ]
    return sorted(lines, key=lambda line: (-line.count, line.topic, line.source, line.target))
