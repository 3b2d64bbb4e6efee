"""Advice on how the group is now: partitions and members without each other, subscriptions, and roll-outs.

The doctor's rules say what is the case; here is what it costs, and by how much a change would help.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from muster.coordinator.observability.advice.member_returns import set_off_by
from muster.coordinator.observability.advice.model import LEAST_SHARE, SECONDS, Advice, GroupRecord, Saving
from muster.coordinator.observability.doctor.assignment_rules import idle_members, mixed_offers, unowned
from muster.coordinator.observability.doctor.model import member_name, some
from muster.coordinator.observability.views.formatting import plural

OF_MEMBERS: Final = "of the members"


def advise_on_unowned(record: GroupRecord) -> Iterator[Advice]:
    """Partitions of a subscribed topic that no member owns, although the group is stable."""
    group = record.group
    if group.held:
        return
    cases = list(unowned(group, record.facts))
    free = group.free(record.facts.partitions)
    if not cases or not free or not group.rebalances:
        return
    newest_ms = max(entry.ended_at_ms for entry in group.rebalances)
    waited = max(0, record.facts.now_ms - max(newest_ms, record.since_ms)) / 1000 * len(free)
    total = record.seconds + waited
    if not total or waited / total < LEAST_SHARE:
        return
    share = waited / total
    yield Advice(
        kind="partitions-without-member",
        sentence=f"Let a member own {plural(len(free), 'partition')} that nobody reads: {cases[0].what}.",
        settings=(),
        how="Let a member subscribe to the topic, or use an assignor that assigns all partitions; `muster simulate` "
        "previews a plan.",
        saves=Saving(round(waited, 3), 0, 0, round(share, 4), SECONDS, round(waited / max(record.seconds, 1.0), 6)),
        proof=tuple(line for case in cases for line in (case.what, *case.evidence)),
    )


def advise_on_idle_members(record: GroupRecord) -> Iterator[Advice]:
    """More members than partitions: some have nothing, and their coming and going is a rebalance all the same."""
    group = record.group
    for case in idle_members(group, record.facts):
        idle = [member for member in group.working if not member.assignment]
        ids = {member.member_id for member in idle}
        numbers = set_off_by(record.entries, ids, ids)
        share = len(idle) / len(group.working)
        saves = record.saved_by_avoiding(numbers) or Saving(share=round(share, 4), of=OF_MEMBERS)
        if saves.share < LEAST_SHARE:
            return
        yield Advice(
            kind="members-without-partition",
            sentence=f"Stop {plural(len(idle), 'member')}, or give the topics more partitions: {case.what}.",
            settings=(),
            how="A member without a partition is a spare; it costs connections and takes part in each rebalance. "
            "Partitions are added to a topic, never removed, and keys then map to others.",
            saves=saves,
            proof=(*case.evidence, record.cost_of(numbers) if numbers else "they set off no rebalance of their own"),
        )


def advise_on_subscriptions(record: GroupRecord) -> Iterator[Advice]:
    """Most members read the same topics and a few do not: partitions cannot be spread evenly."""
    group = record.group
    read = Counter(frozenset(member.topics) for member in group.working if member.topics)
    if not group.stable or len(read) < 2:
        return
    common = min(read, key=lambda topics: (-read[topics], sorted(topics)))
    others = [member for member in group.working if member.topics and frozenset(member.topics) != common]
    share = len(others) / len(group.working)
    if read[common] * 2 <= len(group.working) or share < LEAST_SHARE:
        return
    yield Advice(
        kind="mixed-subscriptions",
        sentence=f"Let all members read the same topics, or use one group for each subscription: {len(others)} of "
        f"{len(group.working)} members read others than the rest.",
        settings=(),
        how="A roll-out that did not reach all members looks like this, too: restart those that are left.",
        saves=Saving(share=round(share, 4), of=OF_MEMBERS),
        proof=(
            f"{read[common]} members read {some(sorted(common))}",
            *(f"{member_name(member)} reads {some(sorted(member.topics))}" for member in others[:5]),
        ),
    )


def advise_on_roll_out(record: GroupRecord) -> Iterator[Advice]:
    """An assignor was rolled out to some members only, so the group does not use it."""
    group = record.group
    cases = list(mixed_offers(group, record.facts))
    if not cases:
        return
    offers = [member for member in group.members if member.offered_assignors]
    common = frozenset.intersection(*(frozenset(member.offered_assignors) for member in offers))
    wished = Counter(m.offered_assignors[0] for m in offers if m.offered_assignors[0] not in common)
    name = min(wished, key=lambda word: (-wished[word], word))
    without = [member for member in offers if name not in member.offered_assignors]
    share = len(without) / len(offers)
    if share < LEAST_SHARE:
        return
    yield Advice(
        kind="unfinished-roll-out",
        sentence=f"Finish the roll-out of {name}: {len(without)} of {len(offers)} members do not offer it, so the "
        f"group uses {group.assignor or 'another'}.",
        settings=(f"partition.assignment.strategy={','.join((name, *sorted(common)))}",),
        how=f"Set it on {some([member_name(member) for member in without])}; once all offer {name}, remove the rest.",
        saves=Saving(share=round(share, 4), of=OF_MEMBERS),
        proof=tuple(line for case in cases for line in (case.what, *case.evidence)),
    )
