"""Records that Kafka has no format for, as JSON: the ledger in `__rebalances`, our own facts in `__consumer_offsets`.

Ledger. Key: {"group": ..., "kind": ..., "number": ...}, kind "decided", "settled", "shadowed", "delay" or "central"
(the last two with number 0: there is one of each). Of no group ("") are kind "stall", when the node stood
still, and kind "passed" (number 0): up to which number rebalances may have been shown where they can no longer be read.
Value: {"version": 1, "entry": {...}}, {"version": 1, "settlement": {...}}, {"version": 1, "scores": [...]},
{"version": 1, "leader_state": "...", "until_ms": ...}, {"version": 1, "central": {...}}, {"version": 1, "stall": {...}}
or {"version": 1, "passed": 7}, with the field names of `RebalanceEntry`, `Settlement`, `Score`, `DelayStored`,
`CentralStored` and `Stall`. Kinds "delay" and "central" are read where an older version wrote them; they now lie in
`__consumer_offsets`: a damaged diary must cost explanations, never ownership. The fields of keys are sorted and nothing
is spaced out, so equal keys have equal bytes: compaction compares them.

Of a shard as a whole, in a cluster: key {"shard": ..., "epoch": ...}, value as `Takeover` without these two, with
"from" and "to" for the nodes: which node took it over in that leader epoch.

Own facts. Key: int16 32000 (the ownership of a central group), 32001 (what the leader of a delayed group knows), 32003
(the settings of a group), 32005 (its overrides), 32006 (its canary) or 32007 (when partitions of a balanced group moved
last), then the group id; 32004 (records that were given up) with an empty one. Kafka's own key types are small numbers;
its tools and its loader pass over those they do not know. Value: JSON, {"version": 1, "central": {...}},
{"version": 1, "leader_state": "...", "until_ms": ..., "delay_ms": ...}, {"version": 1, "changes": their version,
"settings": {...}, "suspended": why its assignor does not count, if so}, {"version": 1, "holds": {...}},
{"version": 1, "canary": {...}}, {"version": 1, "watched_at_ms": ..., "moved": [[when, {topic: [partitions]}], ...]} or
{"version": 1, "until": the offset up to which records were given up}.

Fences. Key: int16 32008, group id, topic, int32 partition. Value: JSON, {"version": 1, "id": the producer id,
"epoch": ..., "former": [producer ids that were used up], "member": the last claimant, "generation": ...,
"claimed_at_ms": ...}.
"""

import json
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from json.encoder import encode_basestring_ascii
from typing import Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from muster.coordinator.core.model.records import (
    BalanceForgotten,
    BalanceStored,
    CanaryForgotten,
    CanaryStored,
    CentralDeleted,
    CentralOwner,
    CentralStored,
    DelayForgotten,
    DelayStored,
    FenceForgotten,
    FenceRecord,
    FenceStored,
    HoldsEnded,
    HoldsStored,
    LedgerRecord,
    LossMended,
    NumbersPassed,
    OwnRecord,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
    RebalanceShadowed,
    SettingsStored,
    SettingsUnset,
    ShadowsForgotten,
    StallForgotten,
    StallRecorded,
    TakeoverForgotten,
    TakeoverRecorded,
)
from muster.coordinator.core.model.types import (
    MemberPlan,
    PartitionMove,
    RebalanceEntry,
    RebalanceSource,
    Score,
    Settlement,
    Stall,
    Takeover,
)
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import (
    INT16,
    INT32,
    FieldReader,
    MalformedRecord,
    SkippedRecord,
    plain_string,
)

# Ledger
# ------

VERSION = 1
OF_A_SHARD = b'{"epoch":'
"""So begin keys of a shard as a whole."""

ENTRY = TypeAdapter(RebalanceEntry)
BOUNDS: Final[Any] = {"unowned_at_least_partition_ms": True, "moves": {"__all__": {"unowned_at_least_ms"}}}
"""Fields that are written of watched groups alone (WA-T3): a coordinator knows its times."""
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


def entry_json(entry: RebalanceEntry) -> bytes:
    return ENTRY.serializer.to_json(entry, exclude=BOUNDS if entry.source is RebalanceSource.COORDINATOR else None)


def tombstones_of_moved_records(record: CentralDeleted | DelayForgotten) -> list[KeyValue]:
    """An older data directory may hold the fact here: it must not come back from there."""
    kind = "central" if isinstance(record, CentralDeleted) else "delay"
    return [KeyValue(ledger_key(record.group_id, 0, kind), None)]


def encode_ledger(record: LedgerRecord) -> list[KeyValue]:
    match record:
        case RebalanceDecided(group_id, entry):
            value = b'{"version":%d,"entry":%b}' % (VERSION, entry_json(entry))
            return [KeyValue(ledger_key(group_id, entry.number, "decided"), value)]
        case RebalanceSettled(group_id, settlement):
            value = b'{"version":%d,"settlement":%b}' % (VERSION, SETTLEMENT.serializer.to_json(settlement))
            return [KeyValue(ledger_key(group_id, settlement.number, "settled"), value)]
        case RebalanceShadowed(group_id, number, scores):
            value = b'{"version":%d,"scores":%b}' % (VERSION, SCORES.dump_json(scores))
            return [KeyValue(ledger_key(group_id, number, "shadowed"), value)]
        case ShadowsForgotten(group_id, number):
            return [KeyValue(ledger_key(group_id, number, "shadowed"), None)]
        case RebalanceForgotten(group_id, number):
            # The settlement goes first: it means nothing without its entry.
            return [KeyValue(ledger_key(group_id, number, kind), None) for kind in ("settled", "decided")]
        case StallRecorded(stall):
            value = b'{"version":%d,"stall":%b}' % (VERSION, STALL.dump_json(stall))
            return [KeyValue(ledger_key("", stall.number, "stall"), value)]
        case StallForgotten(number):
            return [KeyValue(ledger_key("", number, "stall"), None)]
        case TakeoverRecorded(takeover):
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
            return StallRecorded(StallValue.model_validate_json(stored.value).stall)
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


def decode_takeover(stored: KeyValue) -> TakeoverRecorded | TakeoverForgotten:
    key = TakeoverKey.model_validate_json(stored.key)
    if stored.value is None:
        return TakeoverForgotten(key.shard, key.epoch)
    value = TakeoverValue.model_validate_json(stored.value)
    return TakeoverRecorded(Takeover(key.shard, key.epoch, **value.model_dump()))


def ledger_key(group_id: str, number: int, kind: str) -> bytes:
    """As `compact_json` writes it. `kind` is a word of this module."""
    return f'{{"group":{encode_basestring_ascii(group_id)},"kind":"{kind}","number":{number}}}'.encode()


write_json: Final = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
"""One writer for all: `json.dumps` makes another for each call."""


def compact_json(value: dict[str, Any]) -> bytes:
    return write_json(value).encode()


def first_validation_error(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    place = ".".join(str(part) for part in first["loc"]) or "the whole value"
    return f"{place}: {first['msg']}"


# Long records
# ------------

LongRecord: TypeAlias = RebalanceDecided | RebalanceSettled | CentralStored
"""What may list thousands of members or partitions."""

WriteRows: TypeAlias = Callable[[Sequence[Any]], bytes]

MEMBERS = TypeAdapter(tuple[MemberPlan, ...])
MOVES = TypeAdapter(tuple[PartitionMove, ...])
MOVE_BOUNDS: Final[Any] = {"__all__": BOUNDS["moves"]["__all__"]}
UNOWNED = TypeAdapter(tuple[tuple[str, int, int], ...])
SYNCED = TypeAdapter(tuple[tuple[str, int], ...])
OWNERS = TypeAdapter(tuple[CentralOwner, ...])


def encode_long_record(record: LongRecord, at_once: int) -> Generator[None, None, KeyValue]:
    """What `encode_ledger` and `encode_own` make of it, byte for byte, with a pause behind each `at_once` rows."""
    match record:
        case RebalanceDecided(group_id, entry):
            short = encode_ledger(replace(record, entry=replace(entry, members=(), moves=())))
            value = yield from fill_lists(short[0].value or b"", entry_lists(entry), at_once)
            return KeyValue(short[0].key, value)
        case RebalanceSettled(group_id, settlement):
            short = encode_ledger(RebalanceSettled(group_id, replace(settlement, unowned=(), synced=())))
            settled: dict[str, tuple[Sequence[Any], WriteRows]] = {
                "unowned": (settlement.unowned, UNOWNED.serializer.to_json),
                "synced": (settlement.synced, SYNCED.serializer.to_json),
            }
            value = yield from fill_lists(short[0].value or b"", settled, at_once)
            return KeyValue(short[0].key, value)
        case CentralStored():
            stored = encode_own(replace(record, owners=()))
            owners: dict[str, tuple[Sequence[Any], WriteRows]] = {"owners": (record.owners, OWNERS.serializer.to_json)}
            value = yield from fill_lists(stored.value or b"", owners, at_once)
            return KeyValue(stored.key, value)


def entry_lists(entry: RebalanceEntry) -> dict[str, tuple[Sequence[Any], WriteRows]]:
    bounds = MOVE_BOUNDS if entry.source is RebalanceSource.COORDINATOR else None
    return {
        "members": (entry.members, MEMBERS.serializer.to_json),
        "moves": (entry.moves, lambda moves: MOVES.serializer.to_json(moves, exclude=bounds)),
    }


def fill_lists(
    value: bytes, lists: Mapping[str, tuple[Sequence[Any], WriteRows]], at_once: int
) -> Generator[None, None, bytes]:
    """JSON that was written with these lists empty, with their rows. lists: by field, in the order of the value's.

    A field's name with its quotes is in no text: there they are escaped.
    """
    parts: list[bytes] = []
    begin = 0
    for name, (rows, write) in lists.items():
        place = f'"{name}":['.encode()
        end = value.index(place, begin) + len(place)
        parts.append(value[begin:end])
        for at in range(0, len(rows), at_once):
            yield
            parts += (b"," if at else b"", write(rows[at : at + at_once])[1:-1])
        begin = end
    yield
    parts.append(value[begin:])
    return b"".join(parts)


# Own facts
# ---------

CENTRAL_KEY = 32_000
DELAY_KEY = 32_001
PROBE_KEY = 32_002
PROBE_BYTES = 4_096
"""As much as a disk gives at once: less might still find a place in a block that is there."""
SETTINGS_KEY = 32_003
LOSS_KEY = 32_004
HOLDS_KEY = 32_005
CANARY_KEY = 32_006
BALANCE_KEY = 32_007
OWN_KINDS = frozenset({CENTRAL_KEY, DELAY_KEY, SETTINGS_KEY, LOSS_KEY, HOLDS_KEY, CANARY_KEY, BALANCE_KEY})

HOLDS = TypeAdapter(HoldsStored)
CANARY = TypeAdapter(CanaryStored)


class SettingsValue(BaseModel):
    model_config = ConfigDict(strict=True)

    version: Literal[1]
    changes: int
    settings: dict[str, Any]
    suspended: str = ""


class HoldsValue(BaseModel):
    version: Literal[1]
    holds: HoldsStored


class BalanceValue(BaseModel):
    model_config = ConfigDict(strict=True)

    version: Literal[1]
    watched_at_ms: int
    moved: list[tuple[int, dict[str, list[int]]]]

    def stored(self, group_id: str) -> BalanceStored:
        moved = tuple(
            (at_ms, tuple((topic, tuple(places)) for topic, places in topics.items())) for at_ms, topics in self.moved
        )
        return BalanceStored(group_id, self.watched_at_ms, moved)


class CanaryValue(BaseModel):
    version: Literal[1]
    canary: CanaryStored


class LossValue(BaseModel):
    model_config = ConfigDict(strict=True)

    version: Literal[1]
    until: int


def encode_own(record: OwnRecord | LossMended) -> KeyValue:
    match record:
        case LossMended(until):
            return KeyValue(own_key(LOSS_KEY, ""), compact_json({"version": VERSION, "until": until}))
        case CentralStored(group_id):
            return KeyValue(own_key(CENTRAL_KEY, group_id), central_json(record))
        case CentralDeleted(group_id):
            return KeyValue(own_key(CENTRAL_KEY, group_id), None)
        case DelayStored(group_id, leader_state, until_ms, delay_ms):
            value = {"version": VERSION, "leader_state": leader_state, "until_ms": until_ms, "delay_ms": delay_ms}
            return KeyValue(own_key(DELAY_KEY, group_id), compact_json(value))
        case CanaryStored(group_id):
            canary = b'{"version":%d,"canary":%b}' % (VERSION, CANARY.dump_json(record))
            return KeyValue(own_key(CANARY_KEY, group_id), canary)
        case CanaryForgotten(group_id):
            return KeyValue(own_key(CANARY_KEY, group_id), None)
        case DelayForgotten(group_id):
            return KeyValue(own_key(DELAY_KEY, group_id), None)
        case SettingsStored(group_id, version, values, suspended):
            settings = {"version": VERSION, "changes": version, "settings": dict(values)}
            if suspended:
                settings["suspended"] = suspended
            return KeyValue(own_key(SETTINGS_KEY, group_id), compact_json(settings))
        case SettingsUnset(group_id):
            return KeyValue(own_key(SETTINGS_KEY, group_id), None)
        case HoldsStored(group_id):
            held = {"version": VERSION, "holds": HOLDS.dump_python(record, mode="json")}
            return KeyValue(own_key(HOLDS_KEY, group_id), compact_json(held))
        case HoldsEnded(group_id):
            return KeyValue(own_key(HOLDS_KEY, group_id), None)
        case BalanceStored(group_id, watched_at_ms, moved):
            times = [[at_ms, {topic: list(places) for topic, places in topics}] for at_ms, topics in moved]
            value = {"version": VERSION, "watched_at_ms": watched_at_ms, "moved": times}
            return KeyValue(own_key(BALANCE_KEY, group_id), compact_json(value))
        case BalanceForgotten(group_id):
            return KeyValue(own_key(BALANCE_KEY, group_id), None)


def decode_own(kind: int, key: FieldReader, value: bytes | None) -> OwnRecord | LossMended:
    """The fact behind one record; `key` is read up to the kind. Raises MalformedRecord."""
    group_id = key.string()
    key.end()
    try:
        if kind == CENTRAL_KEY:
            return CentralDeleted(group_id) if value is None else CentralValue.model_validate_json(value).central
        if kind == LOSS_KEY:
            return LossMended(0 if value is None else LossValue.model_validate_json(value).until)
        if kind == BALANCE_KEY:
            forgotten = BalanceForgotten(group_id)
            return forgotten if value is None else BalanceValue.model_validate_json(value).stored(group_id)
        if kind == CANARY_KEY:
            return CanaryForgotten(group_id) if value is None else CanaryValue.model_validate_json(value).canary
        if kind == SETTINGS_KEY:
            if value is None:
                return SettingsUnset(group_id)
            read = SettingsValue.model_validate_json(value)
            return SettingsStored(group_id, read.changes, read.settings, read.suspended)
        if kind == HOLDS_KEY:
            return HoldsEnded(group_id) if value is None else HoldsValue.model_validate_json(value).holds
        if value is None:
            return DelayForgotten(group_id)
        kept = DelayValue.model_validate_json(value)
        return DelayStored(group_id, kept.leader_state, kept.until_ms, kept.delay_ms)
    except ValidationError as error:
        raise MalformedRecord(first_validation_error(error)) from error


def room_probe_record() -> KeyValue:
    """A record that says nothing: it is written to see whether there is room."""
    return KeyValue(own_key(PROBE_KEY, ""), bytes(PROBE_BYTES))


def own_key(kind: int, group_id: str) -> bytes:
    return INT16.pack(kind) + plain_string(group_id)


# Fences
# ------

FENCE_KEY = 32_008


class FenceValue(BaseModel):
    model_config = ConfigDict(strict=True)

    version: Literal[1]
    id: int
    epoch: int
    former: list[int]
    member: str
    generation: int
    claimed_at_ms: int


def encode_fence(record: FenceRecord) -> KeyValue:
    key = INT16.pack(FENCE_KEY) + plain_string(record.group_id) + plain_string(record.topic)
    key += INT32.pack(record.partition)
    if isinstance(record, FenceForgotten):
        return KeyValue(key, None)
    value = {
        "version": VERSION,
        "id": record.producer_id,
        "epoch": record.epoch,
        "former": list(record.former),
        "member": record.member_id,
        "generation": record.generation,
        "claimed_at_ms": record.claimed_at_ms,
    }
    return KeyValue(key, compact_json(value))


def decode_fence(key: FieldReader, value: bytes | None) -> FenceRecord:
    """The fact behind one record; `key` is read up to the kind. Raises MalformedRecord."""
    place = key.string(), key.string(), key.int32()
    key.end()
    if value is None:
        return FenceForgotten(*place)
    try:
        read = FenceValue.model_validate_json(value)
    except ValidationError as error:
        raise MalformedRecord(first_validation_error(error)) from error
    return FenceStored(
        *place, read.id, read.epoch, tuple(read.former), read.member, read.generation, read.claimed_at_ms
    )
