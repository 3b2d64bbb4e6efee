"""Records of `__rebalances` and `__consumer_offsets` as columns; runs on the executors, batch by batch.

The functions take Arrow columns and give Arrow columns. A record that nothing explains becomes a row of its own
kind with the reason: it is counted in the report, not lost.
"""

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from muster.coordinator.core.model.ledger import name_last_phase, settle_waits
from muster.coordinator.core.model.records import (
    GroupStored,
    OffsetDeleted,
    OffsetStored,
    RebalanceDecided,
    RebalanceSettled,
)
from muster.coordinator.core.model.types import PhaseWait, RebalanceEntry, Settlement
from muster.coordinator.runtime.kafka_records import decode_group
from muster.coordinator.runtime.own_records import decode_ledger
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord

DECIDED, SETTLED = "decided", "settled"
COMMITTED, FORGOTTEN, PLANNED = "committed", "forgotten", "planned"
OTHER, MALFORMED = "other", "malformed"

TEXT, INT, LONG = pa.string(), pa.int32(), pa.int64()


def build_struct(**columns: pa.DataType) -> pa.DataType:
    return pa.struct(list(columns.items()))


MOVE = build_struct(topic=TEXT, partition=INT, source=TEXT, target=TEXT, unowned_ms=LONG, why=TEXT)
MEMBER = build_struct(member_id=TEXT, client_id=TEXT, client_host=TEXT, group_instance_id=TEXT, partitions=LONG)
WAIT = build_struct(member_id=TEXT, client_id=TEXT, came=TEXT, after_ms=LONG)
PHASE = build_struct(name=TEXT, duration_ms=LONG, waits=pa.list_(WAIT))
ENTRY = build_struct(
    previous_generation=INT,
    generation=INT,
    protocol_type=TEXT,
    protocol_name=TEXT,
    cause=TEXT,
    culprit=TEXT,
    culprit_client_id=TEXT,
    detail=TEXT,
    certainty=TEXT,
    evidence=TEXT,
    outcome=TEXT,
    started_at_ms=LONG,
    ended_at_ms=LONG,
    phases=pa.list_(PHASE),
    members=pa.list_(MEMBER),
    moves=pa.list_(MOVE),
    snapshot_source=TEXT,
)
GAP = build_struct(topic=TEXT, partition=INT, unowned_ms=LONG)
SYNC = build_struct(member_id=TEXT, at_ms=LONG)
SETTLED_ENTRY = build_struct(
    settled_at_ms=LONG,
    unowned_partition_ms=LONG,
    unowned=pa.list_(GAP),
    synced=pa.list_(SYNC),
    waits=pa.list_(WAIT),
)
LEDGER_ROW = build_struct(kind=TEXT, problem=TEXT, group=TEXT, number=LONG, entry=ENTRY, settlement=SETTLED_ENTRY)
OFFSETS_ROW = build_struct(
    kind=TEXT,
    problem=TEXT,
    group=TEXT,
    topic=TEXT,
    partition=INT,
    committed=LONG,
    committed_at_ms=LONG,
    generation=INT,
)


def ledger_columns(keys: pa.Array, values: pa.Array) -> pa.Array:
    """What records of `__rebalances` say: one LEDGER_ROW each."""
    return pa.array([ledger_row(key, value) for key, value in pair_keys_and_values(keys, values)], LEDGER_ROW)


def offsets_columns(keys: pa.Array, values: pa.Array) -> pa.Array:
    """What records of `__consumer_offsets` say: one OFFSETS_ROW each."""
    return pa.array([offsets_row(key, value) for key, value in pair_keys_and_values(keys, values)], OFFSETS_ROW)


def pair_keys_and_values(keys: pa.Array, values: pa.Array) -> Iterator[tuple[bytes | None, bytes | None]]:
    return zip(keys.to_pylist(), values.to_pylist(), strict=True)


def ledger_row(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    try:
        record = decode_ledger(KeyValue(key or b"", value))
    except MalformedRecord as error:
        return {"kind": MALFORMED, "problem": str(error)}
    match record:
        case RebalanceDecided(group, entry):
            return {"kind": DECIDED, "group": group, "number": entry.number, "entry": entry_columns(entry)}
        case RebalanceSettled(group, settlement):
            return {
                "kind": SETTLED,
                "group": group,
                "number": settlement.number,
                "settlement": {
                    "settled_at_ms": settlement.settled_at_ms,
                    "unowned_partition_ms": settlement.unowned_partition_ms,
                    "unowned": [
                        {"topic": topic, "partition": at, "unowned_ms": ms} for topic, at, ms in settlement.unowned
                    ],
                    "synced": [{"member_id": member, "at_ms": at_ms} for member, at_ms in settlement.synced],
                    "waits": None if settlement.waits is None else list(map(wait_columns, settlement.waits)),
                },
            }
    # Entries that the node no longer keeps stay in the tables: they happened. A delay is no rebalance.
    return {"kind": OTHER}


def entry_columns(entry: RebalanceEntry) -> dict[str, Any]:
    return {
        "previous_generation": entry.previous_generation,
        "generation": entry.generation,
        "protocol_type": entry.protocol_type,
        "protocol_name": entry.protocol_name,
        "cause": enum_word(entry.cause.name),
        "culprit": entry.culprit,
        "culprit_client_id": entry.culprit_client_id,
        "detail": entry.detail,
        "certainty": enum_word(entry.certainty.name),
        "evidence": entry.evidence,
        "outcome": enum_word(entry.outcome.name),
        "started_at_ms": entry.started_at_ms,
        "ended_at_ms": entry.ended_at_ms,
        "phases": [
            {"name": phase.name, "duration_ms": phase.duration_ms, "waits": list(map(wait_columns, phase.waits))}
            for phase in entry.phases
        ],
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "client_host": member.client_host,
                "group_instance_id": member.group_instance_id,
                "partitions": sum(len(numbers) for _, numbers in member.assigned),
            }
            for member in entry.members
        ],
        "moves": [
            {
                "topic": move.topic,
                "partition": move.partition,
                "source": move.source,
                "target": move.target,
                "unowned_ms": move.unowned_ms,
                "why": move.why,
            }
            for move in entry.moves
        ],
        "snapshot_source": entry.snapshot_source,
    }


def wait_columns(wait: PhaseWait) -> dict[str, Any]:
    return {
        "member_id": wait.member_id,
        "client_id": wait.client_id,
        "came": enum_word(wait.came.name),
        "after_ms": wait.after_ms,
    }


# For whom a rebalance waited
# ---------------------------

WAITED = build_struct(phase=TEXT, member=TEXT, client_id=TEXT, came=TEXT, after_ms=LONG)


def waits_columns(phases: pa.Array, members: pa.Array, planned_at_ms: pa.Array, settlements: pa.Array) -> pa.Array:
    """For each entry the members that its phases waited for, by the ledger's own rule: a list of WAITED each."""
    rows = zip(*(column.to_pylist() for column in (phases, members, planned_at_ms, settlements)), strict=True)
    return pa.array([list(iterate_waits(*row)) for row in rows], pa.list_(WAITED))


def iterate_waits(phases: Any, members: Any, planned_at_ms: int, settled: Any) -> Iterator[dict[str, Any]]:
    """Files that an earlier version kept lack the waits, and `synced`."""
    told = [(phase["name"], wait) for phase in phases for wait in phase["waits"] or ()]
    last = name_last_phase(phase["name"] for phase in phases)
    if settled is not None and settled["waits"] is not None:
        told += [(last, wait) for wait in settled["waits"]]
    elif settled is not None and settled["synced"]:
        clients = {member["member_id"]: member["client_id"] for member in members}
        synced = tuple((each["member_id"], each["at_ms"]) for each in settled["synced"])
        known = Settlement(0, settled["settled_at_ms"], (), (), 0, synced)
        told += [(last, wait_columns(wait)) for wait in settle_waits(clients, planned_at_ms, known)]
    for phase, wait in told:
        rest = {name: value for name, value in wait.items() if name != "member_id"}
        yield {"phase": phase, "member": wait["member_id"], **rest}


# Positions
# ---------


def offsets_row(key: bytes | None, value: bytes | None) -> dict[str, Any]:
    try:
        record = decode_group(KeyValue(key or b"", value))
    except MalformedRecord as error:
        return {"kind": MALFORMED, "problem": str(error)}
    match record:
        case OffsetStored(group, topic, partition, stored):
            place = {"group": group, "topic": topic, "partition": partition}
            when = {"committed": stored.offset, "committed_at_ms": stored.commit_timestamp_ms}
            return {"kind": COMMITTED} | place | when
        case OffsetDeleted(group, topic, partition):
            return {"kind": FORGOTTEN, "group": group, "topic": topic, "partition": partition}
        case GroupStored(group, _, generation):
            return {"kind": PLANNED, "group": group, "generation": generation}
    return {"kind": OTHER}


def enum_word(name: str) -> str:
    """An enum's name for people.

    >>> enum_word("SESSION_EXPIRED")
    'session expired'
    """
    return name.replace("_", " ").lower()
