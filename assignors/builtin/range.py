"""Range: each topic cut into consecutive runs, topic by topic (KIP-881 for racks)."""

from __future__ import annotations

from muster.assignors.api import Assignment, Plan, RebalanceProtocol, Snapshot
from muster.assignors.builtin.range_racks import assign_with_racks, rack_topics


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
            from muster.assignors.builtin import fast

            return Assignment(snapshot.columns.table(fast.range_owner(snapshot.columns)))
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
