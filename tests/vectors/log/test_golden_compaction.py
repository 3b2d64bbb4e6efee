"""Our compaction filter against the output of Kafka's, and our view of transactions against the generator's."""

from typing import Any

import pytest

from muster.storage.broker.broker import Broker
from muster.storage.config import LogSettings
from muster.storage.logs.compaction import BatchVerdict, filter_batch
from muster.storage.logs.replica import append_as_follower
from muster.storage.records.batch import BatchView, read_batches
from muster.storage.types import Record
from tests.fakes.memory_files import MemoryFiles
from tests.vectors.log.golden import files, names, sidecar

CASES = sorted({name.removesuffix("-in") for name in names("compact") if name.endswith("-in")})


def verdict_of(batch: BatchView, plan: dict[str, Any]) -> BatchVerdict | None:
    word = plan["batch_retention"].get(str(batch.base_offset), plan["default_retention"])
    if word == "DELETE":
        return None
    return BatchVerdict(False, word == "RETAIN_EMPTY", batch.base_offset in plan["marker_for_empty_txn"])


@pytest.mark.parametrize("case", CASES)
def test_the_filter_keeps_what_kafka_keeps(case: str) -> None:
    plan = sidecar(f"{case}-in")["filter"]
    retained = set(plan["retain"])
    kept = []

    def keeps(record: Record) -> bool:
        return record.offset in retained

    for batch in read_batches(files()[f"{case}-in.bin"]):
        verdict = verdict_of(batch, plan)
        if verdict is not None:
            kept.append(filter_batch(batch, verdict, keeps, plan["now_ms"], plan["delete_retention_ms"]))
    ours = list(read_batches(b"".join(data for data in kept if data is not None)))
    theirs = list(read_batches(files()[f"{case}-out.bin"]))
    assert len(ours) == len(theirs)
    for mine, given in zip(ours, theirs, strict=True):
        assert mine.crc_ok
        assert mine.records() == given.records()
        assert mine[2:4] == given[2:4]
        assert mine[5:13] == given[5:13]
        if mine.codec == "none":
            assert mine.data == given.data


@pytest.mark.parametrize("name", names("txnlog"))
def test_open_and_aborted_transactions_are_known(name: str) -> None:
    told = sidecar(name)
    broker = Broker("/data", LogSettings(), MemoryFiles())
    broker.create_topic("t", 1)
    log = broker.log("t", 0)
    steps = [0, *told["lso_after_each_step"]]
    seen = [log.last_stable_offset]
    for batch in read_batches(files()[f"{name}.bin"]):
        append_as_follower(log, batch.data, 0)
        log.flush()
        seen.append(log.last_stable_offset)
    assert log.end_offset == told["log_end_offset"]
    aborted = [entry._asdict() for segment in log.segments for entry in segment.aborted]
    assert aborted == told["aborted"]
    still_open = {
        str(number): producer.txn_first_offset
        for number, producer in log.producers.producers.items()
        if producer.txn_first_offset >= 0
    }
    assert still_open == told["open_transactions"]
    # The generator notes a stable offset for steps that wrote nothing, too; ours are those that wrote.
    assert set(seen) <= set(steps)
    assert seen[-1] == steps[-1]
