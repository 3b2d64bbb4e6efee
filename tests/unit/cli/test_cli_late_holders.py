"""`muster topics describe` names who has held readers of committed records back for too long, and what ends it."""

from collections.abc import Collection
from dataclasses import replace

from muster.cli.transactions.explain import GRACE_MS, MAX_TIMEOUT, late_holders
from muster.client.described import ProducerDescription, TransactionDescription, TransactionListing
from muster.client.types import TopicPartition

NOW = 1_760_000_000_000
MAX_TIMEOUT_MS, TIMEOUT_MS = 900_000, 60_000
LONG_AGO = NOW - MAX_TIMEOUT_MS - GRACE_MS - 1_000
FIRST, SECOND = TopicPartition("t", 0), TopicPartition("t", 1)
HOLDER = ProducerDescription(9, 3, 0, 4, LONG_AGO, 5)
BEHIND = ProducerDescription(8, 0, 0, 4, LONG_AGO, 6)
OPEN = TransactionDescription(
    "billing", 1, "Ongoing", 9, 3, TIMEOUT_MS, LONG_AGO, (FIRST,), "10.0.0.5", "librdkafka 2.16.0"
)


class OneNode:
    """What logs and coordinators say."""

    def __init__(
        self,
        *producers: ProducerDescription,
        described: TransactionDescription | None = None,
        settings: dict[str, str] | None = None,
    ) -> None:
        self.producers, self.described = list(producers), described
        self.settings = {MAX_TIMEOUT: str(MAX_TIMEOUT_MS)} if settings is None else settings
        self.asked: list[TopicPartition] = []

    def describe_producers(self, places: Collection[TopicPartition]) -> dict[TopicPartition, list[ProducerDescription]]:
        self.asked += places
        return dict.fromkeys(places, self.producers)

    def list_transactions(self, producer_ids: Collection[int]) -> list[TransactionListing]:
        found = self.described
        return [] if found is None else [TransactionListing(found.transactional_id, 1, found.producer_id, found.state)]

    def describe_node(self) -> dict[str, str]:
        return self.settings

    def describe_transaction(self, transactional_id: str) -> TransactionDescription:
        assert self.described is not None
        return self.described


def told(node: OneNode, stable: int = 5, now_ms: int = NOW) -> list[str]:
    return late_holders(node, {FIRST: 1_005, SECOND: 7}, {FIRST: stable, SECOND: 7}, now_ms)  # type: ignore[arg-type]


def test_one_that_nobody_will_end_is_told_with_the_command_that_does() -> None:
    node = OneNode(BEHIND, HOLDER, ProducerDescription(7, 0, 0, 4, LONG_AGO, None))
    assert told(node) == [
        "t-0: readers of committed records stop at offset 5, 1,000 records before the end. Producer id 9, epoch 3, has "
        "a transaction open there that no coordinator will end; its last record is 20 min 1 s old, and no transaction "
        "may be open for longer than 15 min 0 s (transaction.max.timeout.ms of the node). `muster transactions abort "
        "--topic t --partition 0 --start-offset 5` ends it."
    ]
    assert node.asked == [FIRST], "no one is held back in the other one"


def test_one_that_its_coordinator_has_open_is_told_by_its_id() -> None:
    (sentence,) = told(OneNode(HOLDER, described=OPEN))
    assert (
        "The transaction of transactional id 'billing', whose producer is at 10.0.0.5, is open for 20 min 1 s, longer "
        "than its transaction.timeout.ms of 1 min 0 s."
    ) in sentence
    assert "`muster transactions force-terminate --transactional-id billing` ends it." in sentence


def test_one_that_its_coordinator_has_open_is_late_after_its_own_timeout() -> None:
    node = OneNode(HOLDER, described=OPEN)
    due = LONG_AGO + TIMEOUT_MS + GRACE_MS
    assert told(node, now_ms=due) == []
    assert len(told(node, now_ms=due + 1)) == 1
    patient = replace(OPEN, timeout_ms=3_600_000)
    assert told(OneNode(HOLDER, described=patient)) == [], "its producer asked for an hour"


def test_one_that_nobody_will_end_is_late_after_the_longest_timeout_of_the_node() -> None:
    patient = OneNode(HOLDER, settings={MAX_TIMEOUT: str(MAX_TIMEOUT_MS + 1_001)})
    assert told(patient) == []
    assert len(told(OneNode(HOLDER, settings={MAX_TIMEOUT: str(MAX_TIMEOUT_MS + 999)}))) == 1
    assert len(told(OneNode(HOLDER, settings={}))) == 1, "a node that does not tell has Kafka's default"


def test_what_is_not_late_is_not_told() -> None:
    assert told(OneNode(HOLDER), stable=1_005) == []
    assert told(OneNode(HOLDER), now_ms=NOW - 2_000) == []
    assert told(OneNode()) == []
