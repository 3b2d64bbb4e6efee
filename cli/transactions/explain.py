"""`muster transactions explain`: why the last transactions of an id ended, and what they held back.

Also who holds readers of committed records back for too long, for `muster topics describe`.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import click

from muster.cli.common.options import client_options, connect_admin, output_option
from muster.cli.common.output import columns, print_document, print_rows
from muster.cli.transactions.hanging import MINUTE_MS, PartitionTransaction, ask_coordinators
from muster.coordinator.observability.views.formatting import duration, harmless, plural, utc_moment

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.types import TopicPartition
    from muster.coordinator.rpc.v1 import transaction_service_pb2 as pb

ENDED_COLUMNS = columns(
    "DECIDED=decided_at:cyan, RESULT=result, CAUSE=cause, OPEN-MS=open_ms, PARTITIONS=partition_count, "
    "BY=client_address, BY-SOFTWARE=client_software+, OF=producer_address, OF-SOFTWARE=producer_software+, "
    "PRODUCER-ID=producer_id+, EPOCH=producer_epoch+, LONGEST-HOLD-MS=longest_hold_ms"
)


@click.command()
@client_options
@output_option
@click.argument("transactional_id", metavar="ID")
def explain(bootstrap: str, overrides: dict[str, str], style: str, transactional_id: str) -> None:
    """Explain how and why the last transactions of ID ended.

    -o wide and csv print one row per transaction; json and yaml add the readers that each one held back.
    """
    with connect_admin(bootstrap, overrides) as admin:
        found = admin.explain_transactions(transactional_id)
    if style in ("json", "yaml"):
        print_document(explained_document(transactional_id, found), style)
    elif style == "table":
        for sentence in found.sentences:
            click.echo(harmless(sentence))
    else:
        print_rows([ended_row(end) for end in found.ended], ENDED_COLUMNS, style)


def known(number: int) -> int | None:
    """None for what is not known."""
    return None if number < 0 else number


def open_ms(end: "pb.EndedTransaction") -> int | None:
    """None where it is not known, or where the node's clock was set back meanwhile."""
    return end.decided_at_ms - end.start_time_ms if 0 <= end.start_time_ms <= end.decided_at_ms else None


def ended_row(end: "pb.EndedTransaction") -> dict[str, Any]:
    """One end as a row: facts that are not known are None."""
    return {
        "decided_at": None if end.decided_at_ms < 0 else utc_moment(end.decided_at_ms),
        "result": "committed" if end.committed else "aborted",
        "cause": end.cause,
        "open_ms": open_ms(end),
        "partition_count": known(end.partition_count),
        "client_address": end.client_address or None,
        "client_software": end.client_software or None,
        "producer_address": end.producer_address or None,
        "producer_software": end.producer_software or None,
        "producer_id": end.producer_id,
        "producer_epoch": known(end.producer_epoch),
        "longest_hold_ms": max((hold.held_ms for hold in end.holds if hold.held_ms >= 0), default=None),
    }


def hold_row(hold: "pb.StableOffsetHold") -> dict[str, Any]:
    return {
        "topic": hold.topic,
        "partition": hold.partition,
        "offset": hold.offset,
        "held_ms": known(hold.held_ms),
        "at_least": hold.at_least,
        "records": known(hold.records),
        "behind": known(hold.behind),
    }


def explained_document(transactional_id: str, found: "pb.ExplainTransactionsResponse") -> dict[str, Any]:
    """Everything that is known, for programs."""
    now, current = None, found.current
    if found.HasField("current"):
        now = {
            "state": current.state,
            "producer_id": current.producer_id,
            "producer_epoch": current.producer_epoch,
            "timeout_ms": current.transaction_timeout_ms,
            "started_at": None if current.start_time_ms < 0 else utc_moment(current.start_time_ms),
            "client_address": current.client_address or None,
            "client_software": current.client_software or None,
            "partitions": [f"{topic.topic}-{number}" for topic in current.topics for number in topic.partitions],
            "holds": [hold_row(hold) for hold in found.current_holds],
        }
    ended = [
        ended_row(end)
        | {
            "started_at": None if end.start_time_ms < 0 else utc_moment(end.start_time_ms),
            "completed_at": None if end.completed_at_ms < 0 else utc_moment(end.completed_at_ms),
            "holds": [hold_row(hold) for hold in end.holds],
        }
        for end in found.ended
    ]
    return {
        "transactional_id": transactional_id,
        "current": now,
        "ended": ended,
        "sentences": list(found.sentences),
    }


# Who holds readers back
# ----------------------

GRACE_MS: Final = 5 * MINUTE_MS
"""A coordinator that has just been loaded, or markers that are under way, need time beyond the timeout."""
MAX_TIMEOUT: Final = "transaction.max.timeout.ms"
DEFAULT_MAX_TIMEOUT_MS: Final = 15 * MINUTE_MS
"""Of nodes that do not tell their setting, as Kafka's default."""


def late_holders(
    admin: "Admin", ends: "Mapping[TopicPartition, int]", stable: "Mapping[TopicPartition, int]", now_ms: int
) -> list[str]:
    """Who holds readers of committed records back for too long, in a sentence for each partition.

    ends, stable: high watermark and last stable offset. A transaction that its coordinator has open is as old as that
    one says, and late after its own `transaction.timeout.ms`. Any other is as old as the last record of its producer,
    and late after the node's `transaction.max.timeout.ms`, beyond which no producer can go. Both have GRACE_MS more.
    Raises ClientError.
    """
    held = [place for place, end in ends.items() if stable.get(place, end) < end]
    if not held:
        return []
    oldest = []
    for place, known in admin.describe_producers(held).items():
        started = [each for each in known if each.transaction_start_offset is not None]
        if started:
            first = min(started, key=lambda each: each.transaction_start_offset or 0)
            oldest.append(PartitionTransaction(place, first))
    told = ask_coordinators(admin, oldest)
    max_timeout_ms = read_max_timeout(admin) if any(each.hangs for each in told) else DEFAULT_MAX_TIMEOUT_MS
    late = [each for each in told if age_of(each, now_ms) > timeout_of(each, max_timeout_ms) + GRACE_MS]
    late.sort(key=lambda each: each.place)
    return [
        tell_holder(each, age_of(each, now_ms), timeout_of(each, max_timeout_ms), ends[each.place]) for each in late
    ]


def read_max_timeout(admin: "Admin") -> int:
    """The node's `transaction.max.timeout.ms`. Raises ClientError."""
    told = admin.describe_node().get(MAX_TIMEOUT, "")
    return int(told) if told.isdecimal() else DEFAULT_MAX_TIMEOUT_MS


def timeout_of(found: PartitionTransaction, max_timeout_ms: int) -> int:
    """How long it may be open: as its producer asked for, or as any producer may ask."""
    return max_timeout_ms if found.keeper is None else found.keeper.timeout_ms


def age_of(found: PartitionTransaction, now_ms: int) -> int:
    keeper = found.keeper
    since_ms = found.producer.last_timestamp_ms if keeper is None else keeper.start_time_ms
    return 0 if since_ms is None or since_ms < 0 else now_ms - since_ms


def tell_holder(found: PartitionTransaction, age_ms: int, timeout_ms: int, end: int) -> str:
    producer, keeper, (topic, number) = found.producer, found.keeper, found.place
    start = producer.transaction_start_offset or 0
    told = (
        f"{topic}-{number}: readers of committed records stop at offset {start}, {plural(end - start, 'record')} "
        "before the end. "
    )
    if keeper is None:
        return told + (
            f"Producer id {producer.producer_id}, epoch {producer.producer_epoch}, has a transaction open there that "
            f"no coordinator will end; its last record is {duration(age_ms)} old, and no transaction may be open for "
            f"longer than {duration(timeout_ms)} ({MAX_TIMEOUT} of the node). `muster transactions abort --topic "
            f"{topic} --partition {number} --start-offset {start}` ends it."
        )
    where = f" at {keeper.client_address}" if keeper.client_address else ""
    return told + (
        f"The transaction of transactional id {keeper.transactional_id!r}, whose producer is{where or ' not known'}, "
        f"is open for {duration(age_ms)}, longer than its transaction.timeout.ms of {duration(timeout_ms)}. `muster "
        f"transactions force-terminate --transactional-id {keeper.transactional_id}` ends it."
    )
