"""Ledger records <-> JSON, as kept in `__rebalances`.

Key: {"group": ..., "kind": ..., "number": ...}, kind "decided", "settled", "shadowed", "delay" or "central" (the last
two with number 0: there is one of each). Of no group ("") are kind "stall", when the node stood still, and kind
"passed" (number 0): up to which number rebalances may be told of where nobody can read it any more.
Value: {"version": 1, "entry": {...}}, {"version": 1, "settlement": {...}}, {"version": 1, "scores": [...]},
{"version": 1, "leader_state": "...", "until_ms": ...}, {"version": 1, "central": {...}}, {"version": 1, "stall": {...}}
or {"version": 1, "passed": 7}, with the field names of `RebalanceEntry`, `Settlement`, `Score`, `DelayStored`,
`CentralStored` and `Stall`. Kinds "delay" and "central" are read where an older version wrote them; they lie in
`__consumer_offsets` (`own`). The fields of keys are sorted and nothing is spaced out, so equal keys have equal bytes:
compaction compares them by these.

Of a shard as a whole, in a cluster: key {"shard": ..., "epoch": ...}, value as `Takeover` but for these two, with
"from" and "to" for the nodes: which node took it over in that leader epoch.
"""

import json
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from muster.coordinator.core.model.core_records import (
    DelayForgotten,
    DelayStored,
    LedgerRecord,
    NumbersPassed,
    OwnRecord,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    RebalanceShadowed,
    ShadowsForgotten,
    StallForgotten,
    StallNoted,
    TakeoverForgotten,
    TakeoverNoted,
)
from muster.coordinator.core.model.records import CentralDeleted, CentralStored
from muster.coordinator.core.model.types import RebalanceEntry, Score, Settlement, Stall, Takeover
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord, SkippedRecord

VERSION = 1
OF_A_SHARD = b'{"epoch":'
"""So begin keys of a shard as a whole."""

ENTRY = TypeAdapter(RebalanceEntry)
SCORES = TypeAdapter(tuple[Score, ...])
SETTLEMENT = TypeAdapter(Settlement)
CENTRAL = TypeAdapter(CentralStored)
STALL = TypeAdapter(Stall)


class LedgerKey(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    group: str
    number: int
    kind: Literal["decided", "settled", "shadowed", "delay", "central", "stall", "passed"]


class TakeoverKey(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True)

    shard: int
    epoch: int


class TakeoverValue(BaseModel):
    moved_from: int = Field(alias="from")
    moved_to: int = Field(alias="to")
    cause: str
    last_heard_ms: int
    elected_ms: int
    serving_ms: int
    groups: int
    members: int
    cut: int


class DecidedValue(BaseModel):
    version: Literal[1]
    entry: RebalanceEntry


class SettledValue(BaseModel):
    version: Literal[1]
    settlement: Settlement


class ShadowedValue(BaseModel):
    version: Literal[1]
    scores: tuple[Score, ...]


class DelayValue(BaseModel):
    version: Literal[1]
    leader_state: str
    until_ms: int | None
    delay_ms: int | None = None


class CentralValue(BaseModel):
    version: Literal[1]
    central: CentralStored


class StallValue(BaseModel):
    version: Literal[1]
    stall: Stall


class PassedValue(BaseModel):
    version: Literal[1]
    passed: int


def central_json(record: CentralStored) -> bytes:
    return b'{"version":%d,"central":%b}' % (VERSION, CENTRAL.dump_json(record))


def tombstones_of_moved_records(record: CentralDeleted | DelayForgotten) -> list[KeyValue]:
    """An older data directory may hold the fact here: it must not come back from there."""
    kind = "central" if isinstance(record, CentralDeleted) else "delay"
    return [KeyValue(ledger_key(record.group_id, 0, kind), None)]


def encode_ledger(record: LedgerRecord) -> list[KeyValue]:
    match record:
        case RebalanceDecided(group_id, entry):
            value = b'{"version":%d,"entry":%b}' % (VERSION, ENTRY.dump_json(entry))
            return [KeyValue(ledger_key(group_id, entry.number, "decided"), value)]
        case RebalanceSettled(group_id, settlement):
            value = b'{"version":%d,"settlement":%b}' % (VERSION, SETTLEMENT.dump_json(settlement))
            return [KeyValue(ledger_key(group_id, settlement.number, "settled"), value)]
        case RebalanceShadowed(group_id, number, scores):
            value = b'{"version":%d,"scores":%b}' % (VERSION, SCORES.dump_json(scores))
            return [KeyValue(ledger_key(group_id, number, "shadowed"), value)]
        case ShadowsForgotten(group_id, number):
            return [KeyValue(ledger_key(group_id, number, "shadowed"), None)]
        case RebalanceForgotten(group_id, number):
            # The settlement goes first: it means nothing without its entry.
            return [KeyValue(ledger_key(group_id, number, kind), None) for kind in ("settled", "decided")]
        case StallNoted(stall):
            value = b'{"version":%d,"stall":%b}' % (VERSION, STALL.dump_json(stall))
            return [KeyValue(ledger_key("", stall.number, "stall"), value)]
        case StallForgotten(number):
            return [KeyValue(ledger_key("", number, "stall"), None)]
        case TakeoverNoted(takeover):
            return [KeyValue(takeover_key(takeover.shard, takeover.epoch), takeover_json(takeover))]
        case TakeoverForgotten(shard, epoch):
            return [KeyValue(takeover_key(shard, epoch), None)]
        case NumbersPassed(number):
            return [KeyValue(ledger_key("", 0, "passed"), compact_json({"version": VERSION, "passed": number}))]


def decode_ledger(stored: KeyValue) -> LedgerRecord | OwnRecord | SkippedRecord:
    """The fact behind one record of `__rebalances`. Raises MalformedRecord.

    A settlement's tombstone is skipped: the tombstone of its entry, which follows, says it all.
    """
    try:
        if stored.key.startswith(OF_A_SHARD):
            return decode_takeover(stored)
        key = LedgerKey.model_validate_json(stored.key)
        if key.kind == "delay":
            if stored.value is None:
                return DelayForgotten(key.group)
            kept = DelayValue.model_validate_json(stored.value)
            return DelayStored(key.group, kept.leader_state, kept.until_ms)
        if key.kind == "stall":
            if stored.value is None:
                return StallForgotten(key.number)
            return StallNoted(StallValue.model_validate_json(stored.value).stall)
        if key.kind == "passed":
            return NumbersPassed(0 if stored.value is None else PassedValue.model_validate_json(stored.value).passed)
        if key.kind == "central":
            if stored.value is None:
                return CentralDeleted(key.group)
            return CentralValue.model_validate_json(stored.value).central
        if key.kind == "shadowed":
            if stored.value is None:
                return ShadowsForgotten(key.group, key.number)
            return RebalanceShadowed(key.group, key.number, ShadowedValue.model_validate_json(stored.value).scores)
        if key.kind == "decided":
            if stored.value is None:
                return RebalanceForgotten(key.group, key.number)
            return RebalanceDecided(key.group, DecidedValue.model_validate_json(stored.value).entry)
        if stored.value is None:
            return SkippedRecord("settlement tombstone")
        return RebalanceSettled(key.group, SettledValue.model_validate_json(stored.value).settlement)
    except ValidationError as error:
        raise MalformedRecord(first_validation_error(error)) from error


def takeover_key(shard: int, epoch: int) -> bytes:
    return compact_json({"shard": shard, "epoch": epoch})


def takeover_json(takeover: Takeover) -> bytes:
    value = {field: getattr(takeover, field) for field in TakeoverValue.model_fields}
    return TakeoverValue.model_validate(value, by_name=True).model_dump_json(by_alias=True).encode()


def decode_takeover(stored: KeyValue) -> TakeoverNoted | TakeoverForgotten:
    key = TakeoverKey.model_validate_json(stored.key)
    if stored.value is None:
        return TakeoverForgotten(key.shard, key.epoch)
    value = TakeoverValue.model_validate_json(stored.value)
    return TakeoverNoted(Takeover(key.shard, key.epoch, **value.model_dump()))


def ledger_key(group_id: str, number: int, kind: str) -> bytes:
    return compact_json({"group": group_id, "kind": kind, "number": number})


def compact_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def first_validation_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the whole value"
    return f"{place}: {first['msg']}"
