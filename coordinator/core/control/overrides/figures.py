"""What partitions that would move carry, in words: as the group's balance has measured it, else as the node saw it."""

from collections.abc import Collection, Iterable

from muster.coordinator.core.groups.state import ShardState
from muster.coordinator.core.model.values import MeasuredRates
from muster.coordinator.core.model.weights import TopicPartition


def measured_rates(state: ShardState, group_id: str) -> MeasuredRates | None:
    """What the group's balance knows by now; None where it is off, or has not looked twice."""
    balancing = state.balancing.get(group_id)
    loads = None if balancing is None else balancing.loads
    if loads is None or not loads.rated:
        return None
    carried = loads.last()
    rates, lags = (loads.by_topic(column) for column in (carried.pace, carried.lag))
    return {topic: (rates[topic].tolist(), lags[topic].astype(int).tolist()) for topic in rates}


def describe_load(moved: Collection[TopicPartition], group: Iterable[TopicPartition], seen: MeasuredRates) -> str:
    """What `moved` carries of all that the group has; empty where nobody has looked, or nothing moves.

    >>> seen = {"t": ([10.0, 2.5], [0, 400])}
    >>> describe_load([("t", 1)], [("t", 0), ("t", 1)], seen)
    '; what moves carries 2.5 of 12.5 records/s, and 400 of 400 records that wait'
    >>> describe_load([("t", 0)], [("t", 0)], {"t": ([0.0], [0])})
    '; nothing is written or waits in the whole group now'
    """
    if not moved or not any(topic in seen for topic, _ in moved):
        return ""
    (rate, lag), (of_rate, of_lag) = total_load(moved, seen), total_load(group, seen)
    if not (of_rate or of_lag):
        return "; nothing is written or waits in the whole group now"
    return f"; what moves carries {rate:.4g} of {of_rate:.4g} records/s, and {lag} of {of_lag} records that wait"


def total_load(cells: Iterable[TopicPartition], seen: MeasuredRates) -> tuple[float, int]:
    """Of partitions that nobody has looked at nothing is known."""
    rate, lag = 0.0, 0
    for topic, partition in cells:
        rates, lags = seen.get(topic, ((), ()))
        if partition < len(rates):
            rate, lag = rate + rates[partition], lag + lags[partition]
    return rate, lag
