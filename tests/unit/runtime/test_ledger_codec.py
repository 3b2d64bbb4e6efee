"""The ledger's JSON: stable bytes, readable by eye, and never a crash."""

import json
from dataclasses import replace

import pytest

from muster.coordinator.core.model.records import (
    CentralDeleted,
    CentralOwner,
    CentralStored,
    DelayForgotten,
    DelayStored,
    RebalanceDecided,
    RebalanceForgotten,
    RebalanceSettled,
)
from muster.coordinator.core.model.types import (
    Cause,
    MemberPlan,
    Outcome,
    PartitionMove,
    RebalanceEntry,
    RebalancePhase,
    RebalanceSource,
    Settlement,
)
from muster.coordinator.runtime.kafka_records import decode_group, encode
from muster.coordinator.runtime.own_records import decode_ledger
from muster.coordinator.runtime.ports import KeyValue
from muster.coordinator.runtime.record_fields import MalformedRecord, SkippedRecord

ENTRY = RebalanceEntry(
    number=7,
    previous_generation=3,
    generation=4,
    protocol_type="consumer",
    protocol_name="range",
    cause=Cause.SESSION_EXPIRED,
    culprit="m2",
    culprit_client_id="c",
    culprit_client_host="/h",
    detail="m2 was not heard for 10 s",
    client_reason="",
    outcome=Outcome.COMPLETED,
    started_at_ms=100,
    ended_at_ms=250,
    phases=(RebalancePhase("join", 120, ("m1",)), RebalancePhase("plan", 30)),
    members=(MemberPlan("m1", "c", "/h", None, (("t", (0, 1)),), 180, 290),),
    moves=(PartitionMove("t", 1, "m2", "m1", -1, "m2 expired"),),
    snapshot_json='{"topics":{"t":2}}',
    snapshot_source="leader",
    also=("m3 joined",),
)
DECIDED = RebalanceDecided("g", ENTRY)
SETTLED = RebalanceSettled("g", Settlement(7, 300, ("m1",), (("t", 1, 50),), 50, (("m1", 290),)))
KEY = b'{"group":"g","kind":"decided","number":7}'
SETTLED_KEY = b'{"group":"g","kind":"settled","number":7}'


def test_an_entry_comes_back_and_its_bytes_are_compact_json() -> None:
    (stored,) = encode([DECIDED]).ledger
    assert stored.key == KEY
    assert stored.value is not None
    value = json.loads(stored.value)
    assert value["version"] == 1
    assert value["entry"]["cause"] == Cause.SESSION_EXPIRED
    assert stored.value == json.dumps(value, separators=(",", ":")).encode()
    assert decode_ledger(stored) == DECIDED


def test_what_an_older_version_wrote_has_no_times_of_members() -> None:
    (entry,), (settled,) = encode([DECIDED]).ledger, encode([SETTLED]).ledger
    older = json.loads(entry.value or b"")
    for field in ("joined_at_ms", "synced_at_ms"):
        del older["entry"]["members"][0][field]
    read = decode_ledger(KeyValue(entry.key, json.dumps(older).encode()))
    member = replace(ENTRY.members[0], joined_at_ms=-1, synced_at_ms=-1)
    assert read == RebalanceDecided("g", replace(ENTRY, members=(member,)))
    older = json.loads(settled.value or b"")
    del older["settlement"]["synced"]
    read = decode_ledger(KeyValue(settled.key, json.dumps(older).encode()))
    assert read == RebalanceSettled("g", replace(SETTLED.settlement, synced=()))


def test_bounds_of_a_watched_group_come_back_and_a_coordinator_s_entries_have_none() -> None:
    move = replace(ENTRY.moves[0], unowned_ms=6_600, unowned_at_least_ms=500)
    watched = replace(
        ENTRY,
        source=RebalanceSource.WATCHED,
        moves=(move,),
        unowned_at_least_partition_ms=500,
        unowned_partition_ms=6_600,
    )
    (stored,) = encode([RebalanceDecided("g", watched)]).ledger
    assert decode_ledger(stored) == RebalanceDecided("g", watched)
    (own,) = encode([DECIDED]).ledger
    assert b"at_least" not in (own.value or b"")
    assert decode_ledger(own) == DECIDED


def test_the_ownership_of_a_central_group_comes_back_and_is_forgotten_under_the_same_key() -> None:
    owner = CentralOwner("m1", "c", "/h", 6_000, ("t",), "t.*", (("t", (0, 1)),))
    owned, gone = CentralStored("g", 3, "range", 100, (owner,)), CentralDeleted("g")
    encoded = encode([owned, gone])
    stored, tombstone = encoded.groups
    assert [decode_group(stored), decode_group(tombstone)] == [owned, gone]
    assert stored.key == tombstone.key == (32_000).to_bytes(2) + b"\0\1g"
    # An older version wrote it into the diary: it is read there, and goes with the group.
    place = b'{"group":"g","kind":"central","number":0}'
    assert encoded.ledger == [KeyValue(place, None)]
    assert decode_ledger(KeyValue(place, stored.value)) == owned


def test_what_the_leader_of_a_delayed_group_knows_comes_back_and_is_forgotten() -> None:
    kept, gone = DelayStored("g", "1,2", 500), DelayForgotten("g")
    encoded = encode([kept, gone])
    assert [decode_group(stored) for stored in encoded.groups] == [kept, gone]
    assert {stored.key for stored in encoded.groups} == {(32_001).to_bytes(2) + b"\0\1g"}
    place = b'{"group":"g","kind":"delay","number":0}'
    assert encoded.ledger == [KeyValue(place, None)]
    assert decode_ledger(KeyValue(place, encoded.groups[0].value)) == kept


def test_facts_of_our_own_that_are_damaged_are_malformed() -> None:
    (stored,) = encode([DelayStored("g", "1,2", 500)]).groups
    for key, value in ((stored.key, b"{"), (stored.key, b"{}"), (stored.key + b"x", stored.value), (b"\x7d\0", b"")):
        with pytest.raises(MalformedRecord):
            decode_group(KeyValue(key, value))


def test_forgetting_leaves_a_tombstone_for_each_half_and_counts_once() -> None:
    record = RebalanceForgotten("g", 7)
    stored = encode([record]).ledger
    assert stored == [KeyValue(SETTLED_KEY, None), KeyValue(KEY, None)]
    assert [decode_ledger(half) for half in stored] == [SkippedRecord("settlement tombstone"), record]


def test_a_field_of_a_later_release_is_passed_over() -> None:
    value = json.loads(encode([DECIDED]).ledger[0].value or b"")
    value["entry"]["mood"] = "calm"
    assert decode_ledger(KeyValue(KEY, json.dumps(value).encode())) == DECIDED


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        (b"\xff", None, "JSON"),
        (b'{"group":"g","kind":"invented","number":7}', None, "kind: Input should be 'decided', 'settled', 'shadowed'"),
        (b'{"group":"g","kind":"decided","number":"7"}', None, "number: Input should be a valid integer"),
        (KEY, b"", "JSON"),
        (KEY, b'{"version":2,"entry":{}}', "version: Input should be 1"),
        (KEY, b'{"version":1,"entry":{}}', "entry.number: Field required"),
        (SETTLED_KEY, b'{"version":1}', "settlement: Field required"),
    ],
)
def test_damage_is_one_error_that_says_where(key: bytes, value: bytes | None, complaint: str) -> None:
    with pytest.raises(MalformedRecord, match=complaint):
        decode_ledger(KeyValue(key, value))
