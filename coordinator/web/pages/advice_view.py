"""Advice on a group, from what was found to what its page shows. Pure."""

import re
from dataclasses import dataclass
from typing import Final

from markupsafe import Markup, escape

from muster.coordinator.observability.advice.model import Advice
from muster.coordinator.observability.advice.table import GroupAdvice
from muster.coordinator.observability.views.formatting import harmless, partition_seconds, plural
from muster.coordinator.web.pages.rebalance_view import rebalance_address

MOST_ADVICES: Final = 10
MOST_CHARS: Final = 600
ENTRY: Final = re.compile(r"#(\d{1,9})\b")
"""A rebalance in a sentence, by its number."""


@dataclass(frozen=True, slots=True)
class AdviceView:
    """One advice. `proof`: lines in which each rebalance leads to its own page."""

    kind: str
    sentence: str
    settings: tuple[str, ...]
    how: str
    saves: str
    share: str
    proof: tuple[Markup, ...]


@dataclass(frozen=True, slots=True)
class GroupAdviceView:
    group: str
    advices: tuple[AdviceView, ...]
    more: int
    looked_at: str
    cost: str
    nothing_to_change: str
    not_judged: tuple[str, ...]


def make_advice_view(found: GroupAdvice) -> GroupAdviceView:
    seconds = partition_seconds(found.partition_seconds)
    cost = f"{seconds} partition-seconds without an owner, {plural(found.moves, 'move')}"
    return GroupAdviceView(
        group=found.group_id,
        advices=tuple(advice_line(each, found.group_id) for each in found.advice[:MOST_ADVICES]),
        more=max(0, len(found.advice) - MOST_ADVICES),
        looked_at=found.looked_at,
        cost=cost if found.partition_seconds or found.moves else "",
        nothing_to_change=found.nothing_to_change,
        not_judged=tuple(f"{clip(sentence)}." for sentence in found.not_judged),
    )


def advice_line(advice: Advice, group: str) -> AdviceView:
    return AdviceView(
        kind=advice.kind,
        sentence=clip(advice.sentence),
        settings=tuple(map(clip, advice.settings)),
        how=clip(advice.how.replace("`", "")),
        saves=advice.saves.words(),
        share=f"{advice.saves.share:.0%}",
        proof=tuple(link_entries(clip(line), group) for line in advice.proof),
    )


def clip(text: str) -> str:
    return text if len(text) <= MOST_CHARS else f"{text[:MOST_CHARS]}…"


def link_entries(text: str, group: str) -> Markup:
    """
    >>> print(link_entries("rebalances #2 and <b>", "g"))
    rebalances <a href="/groups/g/rebalances/2">#2</a> and &lt;b&gt;
    """
    parts: list[Markup] = []
    end = 0
    for found in ENTRY.finditer(text):
        address = rebalance_address(group, int(found[1]))
        link = Markup('<a href="{}">{}</a>').format(address, found[0])
        parts += [escape(harmless(text[end : found.start()])), link]
        end = found.end()
    return Markup("").join([*parts, escape(harmless(text[end:]))])
