"""Which open transactions hang, and what `muster transactions` says of those that do not."""

from dataclasses import replace

import pytest

from muster.cli.common.commands import CommandError
from muster.cli.transactions.ending import describe_client, find_by_offset
from muster.cli.transactions.hanging import MINUTE_MS, PartitionTransaction, open_for_long
from muster.cli.transactions.inspection import describe_row
from muster.client.described import ProducerDescription, TransactionDescription
from muster.client.types import TopicPartition

PLACE = TopicPartition("t", 0)
OPEN = ProducerDescription(4, 7, 0, 3, 1_000, 12)
KEPT = TransactionDescription("app", 1, "Ongoing", 4, 7, 60_000, 500, (PLACE,))


@pytest.mark.parametrize(
    ("described", "hangs"),
    [
        (None, True),
        (KEPT, False),
        (replace(KEPT, partitions=(TopicPartition("t", 1),)), True),
        (replace(KEPT, producer_epoch=8), True),
        (replace(KEPT, state="PrepareAbort", producer_epoch=8), False),
        (replace(KEPT, state="PrepareCommit", producer_epoch=7), False),
        (replace(KEPT, state="CompleteAbort", partitions=()), True),
        (replace(KEPT, state="CompleteCommit"), True),
    ],
)
def test_what_its_coordinator_does_not_have_hangs(described: TransactionDescription | None, hangs: bool) -> None:
    assert PartitionTransaction(PLACE, OPEN, described).hangs is hangs


def test_only_what_was_quiet_for_long_is_looked_at() -> None:
    idle = replace(OPEN, producer_id=5, transaction_start_offset=None)
    newer = replace(OPEN, producer_id=6, last_timestamp_ms=2_000, transaction_start_offset=3)
    known = {PLACE: [OPEN, idle, newer], TopicPartition("s", 9): [OPEN]}

    def found(now_ms: int) -> list[tuple[str, int]]:
        return [(each.place.topic, each.producer.producer_id) for each in open_for_long(known, now_ms, MINUTE_MS)]

    assert found(1_000 + MINUTE_MS - 1) == []
    assert found(1_000 + MINUTE_MS) == [("s", 4), ("t", 4)]
    assert found(2_000 + MINUTE_MS) == [("s", 4), ("t", 6), ("t", 4)], "by partition and beginning"


def test_a_beginning_that_there_is_not_names_those_that_there_are() -> None:
    assert find_by_offset(PLACE, [OPEN], 12) is OPEN
    with pytest.raises(CommandError, match="no open transaction begins at offset 3 of t-0; expected one of 12"):
        find_by_offset(PLACE, [OPEN], 3)
    with pytest.raises(CommandError, match="nothing is open there"):
        find_by_offset(PLACE, [replace(OPEN, transaction_start_offset=None)], 3)


def test_a_description_is_text_for_people_and_values_for_programs() -> None:
    described = replace(KEPT, partitions=(PLACE, TopicPartition("u", 3)), client_address="127.0.0.1")
    assert describe_row(described, 1_500, "table")["partitions"] == "t-0,u-3"
    row = describe_row(described, 1_500, "json")
    assert (row["partitions"], row["duration_ms"], row["client_software"]) == (["t-0", "u-3"], 1_000, None)
    assert describe_row(replace(KEPT, start_time_ms=None), 1_500, "json")["duration_ms"] is None
    assert describe_row(described, 100, "json")["duration_ms"] == 0, "the node's clock is ahead"


def test_a_producer_is_told_with_its_software() -> None:
    assert "not been heard" in describe_client(KEPT)
    told = describe_client(replace(KEPT, client_address="10.0.0.7", client_software="librdkafka 2.16.0"))
    assert told == "of a producer at 10.0.0.7 (librdkafka 2.16.0)"
