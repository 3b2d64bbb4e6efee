"""Our decoder and encoder against the bytes and verdicts of Kafka's own record classes."""

import hashlib
from typing import Any

import pytest

from muster.storage.errors import CorruptMessage, StorageError
from muster.storage.records.batch import BatchView, decode_records, encode_batch, read_batches
from muster.storage.records.markers import ABORT, COMMIT, read_marker
from tests.vectors.log.golden import files, names, sidecar, spec

MODERN = [name for name in names() if not name.startswith(("legacy", "mixed"))]
OLD = [name for name in names() if name.startswith(("legacy", "mixed"))]


def as_told(value: bytes | None) -> Any:
    if value is None:
        return None
    if len(value) > 4096:
        return {"len": len(value), "sha256": hashlib.sha256(value).hexdigest(), "head": value[:64].hex()}
    return value.hex()


def same(told: Any, value: bytes | None) -> bool:
    if isinstance(told, dict):
        assert value is not None
        return bool(told["len"] == len(value) and told["sha256"] == hashlib.sha256(value).hexdigest())
    return bool(told == as_told(value))


def assert_header(batch: BatchView, told: dict[str, Any]) -> None:
    assert (batch.position, batch.size, batch.magic, batch.crc) == (
        told["position"], told["size"], told["magic"], told["crc"],
    )  # fmt: skip
    assert batch.crc_ok == told["crc_ok"]
    assert batch.base_offset == told["base_offset"]
    assert batch.last_offset == told["last_offset"]
    assert batch.next_offset == told["next_offset"]
    assert batch.leader_epoch == told["partition_leader_epoch"]
    assert batch.log_append_time == (told["timestamp_type"] == "LogAppendTime")
    assert batch.max_timestamp == told["max_timestamp"]
    assert batch.base_timestamp == told["base_timestamp"]
    assert batch.producer_id == told["producer_id"]
    assert batch.producer_epoch == told["producer_epoch"]
    assert batch.base_sequence == told["base_sequence"]
    assert batch.last_sequence == told["last_sequence"]
    assert batch.transactional == told["transactional"]
    assert batch.control == told["control"]
    assert batch.delete_horizon_ms == told["delete_horizon_ms"]
    assert batch.count == told["count"]
    if "compression" in told:
        assert batch.codec == told["compression"]


def assert_records(batch: BatchView, told: dict[str, Any]) -> None:
    if "records_error" in told:
        with pytest.raises(StorageError):
            batch.records()
        return
    records = batch.records()
    assert len(records) == len(told["records"])
    for record, expected in zip(records, told["records"], strict=True):
        assert (record.offset, record.timestamp_ms) == (expected["offset"], expected["timestamp"])
        assert same(expected["key"], record.key)
        assert same(expected["value"], record.value)
        headers = [[name, value] for name, value in expected["headers"]]
        assert [[name, as_told(value)] for name, value in record.headers] == headers


@pytest.mark.parametrize("name", MODERN)
def test_batches_read_as_kafka_reads_them(name: str) -> None:
    told = sidecar(name)
    found = []
    error = None
    try:
        found.extend(read_batches(files()[f"{name}.bin"]))
    except CorruptMessage as refusal:
        error = refusal
    assert (error is not None) == ("error" in told)
    batches = told["batches"]
    assert len(found) == len(batches)
    for batch, expected in zip(found, batches, strict=True):
        assert_header(batch, expected)
        assert_records(batch, expected)


@pytest.mark.parametrize("name", OLD)
def test_message_sets_of_magic_0_and_1_are_read(name: str) -> None:
    expected = [record for batch in sidecar(name)["batches"] for record in batch["records"]]
    records = list(decode_records(files()[f"{name}.bin"]))
    assert [(r.offset, r.timestamp_ms) for r in records] == [(e["offset"], e["timestamp"]) for e in expected]
    for record, told in zip(records, expected, strict=True):
        assert same(told["key"], record.key)
        assert same(told["value"], record.value)


def rebuilt(plan: dict[str, Any]) -> bytes:
    records = [
        (
            record["timestamp"],
            None if record.get("key") is None else bytes.fromhex(record["key"]),
            None if record.get("value") is None else bytes.fromhex(record["value"]),
            [(n, None if v is None else bytes.fromhex(v)) for n, v in record.get("headers", [])],
        )
        for record in plan["records"]
    ]
    base = plan.get("base_offset", 0)
    deltas = [record["offset"] - base for record in plan["records"]]
    last = plan.get("last_offset")
    return encode_batch(
        records,
        base_offset=base,
        codec=plan.get("compression", "none"),
        leader_epoch=plan.get("partition_leader_epoch", -1),
        producer_id=plan.get("producer_id", -1),
        producer_epoch=plan.get("producer_epoch", -1),
        base_sequence=plan.get("base_sequence", -1),
        transactional=plan.get("transactional", False),
        delete_horizon_ms=plan.get("delete_horizon_ms"),
        log_append_time_ms=plan.get("log_append_time"),
        offset_deltas=deltas,
        last_offset_delta=None if last is None else last - base,
    )


def rebuildable() -> list[str]:
    plans = [name for name in MODERN if f"{name}.spec.json" in files()]
    chosen = [name for name in plans if isinstance(spec(name), dict) and "records" in spec(name)]
    return [name for name in chosen if not name.startswith(("bad", "control", "empty", "txnlog", "compact"))]


@pytest.mark.parametrize("name", rebuildable())
def test_what_we_encode_is_what_kafka_encodes(name: str) -> None:
    built, given = rebuilt(spec(name)), files()[f"{name}.bin"]
    if spec(name).get("compression", "none") == "none":
        assert built == given
    else:
        (ours,), (theirs,) = list(read_batches(built)), list(read_batches(given))
        assert ours.records() == theirs.records()
        header = ("base_offset", "last_offset", "base_timestamp", "max_timestamp", "attributes", "base_sequence")
        assert [getattr(ours, field) for field in header] == [getattr(theirs, field) for field in header]


@pytest.mark.parametrize(("name", "kind"), [("control-abort", ABORT), ("control-commit", COMMIT)])
def test_markers_say_what_they_end(name: str, kind: int) -> None:
    (batch,) = read_batches(files()[f"{name}.bin"])
    marker = read_marker(batch)
    assert marker is not None
    assert marker.aborted == (kind == ABORT)
    assert marker.coordinator_epoch == sidecar(name)["batches"][0]["records"][0]["coordinator_epoch"]


@pytest.mark.parametrize("name", ["control-leaderchange", "control-snapshotheader"])
def test_markers_of_other_kinds_mean_nothing_here(name: str) -> None:
    (batch,) = read_batches(files()[f"{name}.bin"])
    assert read_marker(batch) is None
