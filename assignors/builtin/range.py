"""Range: each topic cut into consecutive runs, topic by topic (KIP-881 for racks).

Where racks matter they decide first, as long as no member exceeds its quota; the ordinary pass deals out the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from muster.assignors.api import Assignment, Member, Plan, RebalanceProtocol, Snapshot

# Racks (KIP-881)
# ---------------


@dataclass
class TopicState:
    """One topic on its way to being dealt out."""

    name: str
    takers: Sequence[int]  # member indices, in Kafka's order
    member_racks: Mapping[int, str | None]
    racks: Sequence[frozenset[str]]  # by partition; empty when no taker has a rack
    wants_racks: bool
    quota: int
    extras: int  # how many takers may still get one above the quota
    free: dict[int, None]  # ordered set of partitions
    given: dict[int, list[int]] = field(default_factory=dict)

    def room(self, taker: int) -> int:
        return max(0, self.quota + (self.extras > 0) - len(self.given.get(taker, ())))

    def matches(self, taker: int, partition: int) -> bool:
        rack = self.member_racks[taker]
        return rack is None or rack in self.racks[partition]

    def give(self, taker: int, partitions: Sequence[int]) -> None:
        held = self.given.setdefault(taker, [])
        before = len(held)
        held.extend(partitions)
        if before <= self.quota < len(held):
            self.extras -= 1
        for partition in partitions:
            del self.free[partition]


def rack_topics(
    snapshot: Snapshot, members: Sequence[Member], takers: Mapping[str, Sequence[int]]
) -> list[TopicState] | None:
    """The topics' states when racks matter for any of them, else None."""
    if not snapshot.racks or not any(member.rack for member in members):
        return None
    states = [
        topic_state(snapshot, members, topic, subscribers)
        for topic, subscribers in takers.items()
        if snapshot.topics.get(topic, 0) > 0
    ]
    return states if any(state.wants_racks for state in states) else None


def topic_state(snapshot: Snapshot, members: Sequence[Member], topic: str, takers: Sequence[int]) -> TopicState:
    count = snapshot.topics[topic]
    member_racks = {index: members[index].rack or None for index in takers}
    asked = {rack for rack in member_racks.values() if rack is not None}
    racks = partition_racks(snapshot, topic) if asked else []
    offered = frozenset().union(*racks) if racks else frozenset()
    quota, extras = divmod(count, len(takers))
    return TopicState(
        name=topic,
        takers=takers,
        member_racks=member_racks,
        racks=racks,
        wants_racks=bool(asked & offered) and any(by != offered for by in racks),
        quota=quota,
        extras=extras,
        free=dict.fromkeys(range(count)),
    )


def partition_racks(snapshot: Snapshot, topic: str) -> list[frozenset[str]]:
    """Racks of each partition of `topic`; partitions the snapshot says nothing of have none."""
    listed = (snapshot.racks or {}).get(topic, ())
    count = snapshot.topics[topic]
    racks = [frozenset(rack for rack in by if rack) for by in listed[:count]]
    return racks + [frozenset[str]()] * (count - len(racks))


def assign_with_racks(
    snapshot: Snapshot,
    members: Sequence[Member],
    takers: Mapping[str, Sequence[int]],
    states: Sequence[TopicState],
) -> dict[str, dict[str, list[int]]]:
    for together in group_copartitioned(states):
        if len(together) > 1:
            deal_together(together)
        elif together[0].wants_racks:
            deal_runs(together[0], together[0].matches)
    for state in states:
        deal_runs(state, lambda taker, partition: True)
    plan: dict[str, dict[str, list[int]]] = {member.id: {} for member in members}
    for state in states:
        for index, partitions in state.given.items():
            plan[members[index].id][state.name] = sorted(partitions)
    return plan


def group_copartitioned(states: Sequence[TopicState]) -> list[list[TopicState]]:
    """Topics with the same subscribers and the same number of partitions: consumers join them by number."""
    alike: dict[tuple[tuple[int, ...], int], list[TopicState]] = {}
    for state in states:
        if state.racks:
            alike.setdefault((tuple(state.takers), len(state.racks)), []).append(state)
    return list(alike.values())


def deal_together(states: Sequence[TopicState]) -> None:
    """Partition n of all topics goes to the first taker who is near all of them and has room."""
    left = list(states[0].takers)
    for partition in range(len(states[0].racks)):
        for taker in left:
            if all(state.room(taker) > 0 and state.matches(taker, partition) for state in states):
                for state in states:
                    state.give(taker, [partition])
                if not any(state.room(taker) > 0 for state in states):
                    left.remove(taker)
                break


def deal_runs(state: TopicState, may: Callable[[int, int], bool]) -> None:
    """The ordinary range pass over what is left, within quota and only where `may` agrees."""
    for taker in state.takers:
        room = state.room(taker)
        if room and state.free:
            state.give(taker, [partition for partition in state.free if may(taker, partition)][:room])


# The assignor
# ------------


class RangeAssignor:
    """Give each subscriber of a topic a run of consecutive partitions, longer ones first.

    Topics of equal size and equal subscribers are cut alike, so that partition 3 of both lands on one
    member. Static members come first, by instance id; then the others by member id.

    >>> from muster.assignors.api import Member
    >>> members = [Member("a", ("t", "u")), Member("b", ("t", "u"))]
    >>> plan = RangeAssignor().assign(Snapshot({"t": 3, "u": 3}, members))
    >>> {member: {topic: list(cut) for topic, cut in share.items()} for member, share in plan.items()}
    {'a': {'t': [0, 1], 'u': [0, 1]}, 'b': {'t': [2], 'u': [2]}}
    """

    name = "range"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        if snapshot.large and not snapshot.racks:
            from muster.assignors.builtin import vectorized

            return Assignment(snapshot.columns.table(vectorized.range_owner(snapshot.columns)))
        members = snapshot.ordered_members()
        takers: dict[str, list[int]] = {}
        for index, member in enumerate(members):
            for topic in dict.fromkeys(member.topics):
                takers.setdefault(topic, []).append(index)
        racked = rack_topics(snapshot, members, takers)
        if racked is not None:
            return assign_with_racks(snapshot, members, takers, racked)
        plan: list[dict[str, range]] = [{} for _ in members]
        cuts: dict[tuple[int, int], list[range]] = {}
        for topic, subscribers in takers.items():
            count, among = snapshot.topics.get(topic, 0), len(subscribers)
            if (count, among) not in cuts:
                cuts[count, among] = cut_into_runs(count, among)
            for index, run in zip(subscribers, cuts[count, among], strict=False):
                plan[index][topic] = run
        return {member.id: share for member, share in zip(members, plan, strict=True)}


def cut_into_runs(count: int, among: int) -> list[range]:
    """`count` partitions in `among` consecutive runs; the first ones are one longer; no empty runs.

    >>> cut_into_runs(5, 3)
    [range(0, 2), range(2, 4), range(4, 5)]
    """
    length, longer = divmod(count, among)
    split = longer * (length + 1)
    runs = [range(start, start + length + 1) for start in range(0, split, length + 1)]
    if length:
        runs += [range(start, start + length) for start in range(split, count, length)]
    return runs
