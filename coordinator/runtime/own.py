"""Hard facts that Kafka has no record for, kept in `__consumer_offsets` beside those it has.

Key: int16 32000 (who owns what in a central group), 32001 (what the leader of a delayed group knows), 32003 (the
settings of a group), 32005 (what of a group an operator holds), 32006 (its canary) or 32007 (when partitions of a
balanced group moved last), then the group id; 32004 (records that were given up) with an empty one. Kafka's own key
types are small numbers; its tools and its loader pass over those they do not know. Value: JSON, {"version": 1,
"central": {...}}, {"version": 1, "leader_state": "...", "until_ms": ..., "delay_ms": ...}, {"version": 1, "changes":
their version, "settings": {...}, "suspended": why its assignor does not count, if so}, {"version": 1,
"holds": {...}}, {"version": 1, "canary": {...}}, {"version": 1, "watched_at_ms": ..., "moved": [[when, {topic:
[partitions]}], ...]} or {"version": 1, "until": the offset up to which records were given up}.

The first two used to lie in `__rebalances`, where `muster.coordinator.runtime.ledger` still reads them: a diary
that is damaged must cost explanations, never ownership.
"""

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from muster.coordinator.core.model.balance_records import BalanceForgotten, BalanceStored
from muster.coordinator.core.model.core_records import (
    DelayForgotten,
    DelayStored,
    LossMended,
    OwnRecord,
    SettingsStored,
    SettingsUnset,
)
from muster.coordinator.core.model.records import CentralDeleted, CentralStored
from muster.coordinator.core.model.trial_records import CanaryForgotten, CanaryStored
from muster.coordinator.core.model.values import HoldsEnded, HoldsStored
from muster.coordinator.runtime.ledger import (
    VERSION,
    CentralValue,
    DelayValue,
    central_json,
    compact_json,
    first_validation_error,
)
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import INT16, FieldReader, MalformedRecord, plain_string

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
