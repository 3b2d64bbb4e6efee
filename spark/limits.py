"""How much one micro-batch takes. Pure: time comes in as a parameter."""

from collections.abc import Mapping, Sequence

from muster.spark.planning import OffsetRange


def share_records(pending: Sequence[OffsetRange], most: int) -> list[OffsetRange]:
    """At most `most` records, exactly that many if there are more, each partition by its share of the backlog.

    Spark's Kafka source rounds each share by itself and may end up a few records off; here the largest remainders get
    the records that rounding left over.

    >>> [wanted.end for wanted in share_records([OffsetRange("t", 0, 0, 75), OffsetRange("t", 1, 0, 25)], 10)]
    [8, 2]
    """
    total = sum(wanted.size for wanted in pending)
    if total <= most:
        return list(pending)
    shares = [divmod(wanted.size * most, total) for wanted in pending]
    left = most - sum(share for share, _ in shares)
    by_rest = sorted(range(len(pending)), key=lambda place: (-shares[place][1], pending[place].tp))
    favoured = set(by_rest[:left])
    return [
        wanted._replace(end=wanted.start + share + (place in favoured))
        for place, (wanted, (share, _)) in enumerate(zip(pending, shares, strict=True))
    ]


def share_bytes(
    pending: Sequence[OffsetRange], most: int, record_bytes: Mapping[tuple[str, int], float]
) -> list[OffsetRange]:
    """About `most` bytes, each partition by its share; at least one record in all, so that a query gets on.

    `record_bytes` is how long a record of each partition is on average, as it lies in the log.
    """
    # Those that could not be measured are taken to be like the others.
    usual = max(1.0, sum(record_bytes.values()) / len(record_bytes)) if record_bytes else 1.0
    weights = [wanted.size * max(1.0, record_bytes.get(wanted.tp, usual)) for wanted in pending]
    total = sum(weights)
    if total <= most or not pending:
        return list(pending)
    taken = [int(wanted.size * most / total) for wanted in pending]
    if not any(taken):
        largest = max(range(len(pending)), key=lambda place: (weights[place], -place))
        taken[largest] = 1
    return [
        wanted._replace(end=wanted.start + min(size, wanted.size)) for wanted, size in zip(pending, taken, strict=True)
    ]


def must_wait(total: int, least: int | None, delay_ms: int, last_trigger_ms: int, now_ms: int) -> bool:
    """Whether a micro-batch of `total` records is too small to begin, and has not been waited for long enough."""
    return least is not None and total < least and now_ms - last_trigger_ms < delay_ms
