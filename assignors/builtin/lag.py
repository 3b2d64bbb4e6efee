"""Lag: the heaviest partition first, to the member with the least to do (the text of KAFKA-5337)."""

from __future__ import annotations

from collections.abc import Sequence

from muster.assignors.api import Assignment, Plan, RebalanceProtocol, Snapshot
from muster.assignors.data.values import in_java_order


class LagAssignor:
    """Within each topic, give the partition with most lag to the member with the fewest partitions, then
    the least lag, then the lower id.

    Counts and totals start anew with each topic, so a topic without lag still spreads evenly. Ties
    between partitions fall to the lower number. A missing or negative lag counts as 0.

    >>> from muster.assignors.api import Member
    >>> members = [Member("a", ("t",)), Member("b", ("t",))]
    >>> LagAssignor().assign(Snapshot({"t": 3}, members, lags={"t": [90, 50, 40]}))
    {'a': {'t': [0]}, 'b': {'t': [1, 2]}}
    """

    name = "lag"
    protocol = RebalanceProtocol.EAGER

    def assign(self, snapshot: Snapshot) -> Plan | Assignment:
        if snapshot.large:
            from muster.assignors.builtin import vectorized

            columns = snapshot.columns
            place = {member: number for number, member in enumerate(in_java_order(columns.members))}
            owner = vectorized.lag_owner(columns, [place[member] for member in columns.members])
            if owner is not None:
                return Assignment(columns.table(owner))
        takers: dict[str, list[str]] = {}
        wanted = {member.id: member.topics for member in snapshot.members}
        for member in in_java_order(wanted):
            for topic in dict.fromkeys(wanted[member]):
                takers.setdefault(topic, []).append(member)
        plan: dict[str, dict[str, list[int]]] = {member: {} for member in wanted}
        for topic in snapshot.subscribed_topics():
            lags = topic_lags(snapshot, topic)
            for member, partitions in zip(takers[topic], deal_by_lag(lags, len(takers[topic])), strict=True):
                if partitions:
                    plan[member][topic] = sorted(partitions)
        return plan


def topic_lags(snapshot: Snapshot, topic: str) -> list[int]:
    """The lag of each partition of `topic`, never negative."""
    count = snapshot.topics[topic]
    known = (snapshot.lags or {}).get(topic, ())
    lags = [max(0, int(lag)) for lag in known[:count]]
    return lags + [0] * (count - len(lags))


def deal_by_lag(lags: Sequence[int], among: int) -> list[list[int]]:
    """Partitions for each of `among` takers.

    Fewest partitions first means that every round of `among` partitions gives each taker exactly one,
    in the order of their totals when the round began: one sort per round, no search per partition.
    """
    heaviest = sorted(range(len(lags)), key=lambda partition: -lags[partition])
    shares: list[list[int]] = [[] for _ in range(among)]
    totals = [0] * among
    turn = list(range(among))
    for start in range(0, len(heaviest), among):
        turn.sort(key=lambda taker: (totals[taker], taker))
        for taker, partition in zip(turn, heaviest[start : start + among], strict=False):
            shares[taker].append(partition)
            totals[taker] += lags[partition]
    return shares
