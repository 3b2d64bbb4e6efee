"""Elections as records of `__elections`, and back. JSON; the key is the unit's name.

Value of an election: {"unit": "orders-3", "epoch": 8, "from": 1, "to": 2, "clean": "isr", "cause": ..., "isr": [2, 3],
"elr": [], "decided_ms": ..., "took_ms": ...}; decided_ms in epoch milliseconds. Value of what a follower cut off:
{"unit": "orders-3", "epoch": 8, "lost": {"node": 1, "from": 120, "to": 133, "records": 13, "epochs": [7]}}; epoch: that
of the unclean election. Unknown fields are passed over. A record may come twice: it was sent again because an answer
was lost.
"""

import json
from collections.abc import Iterable
from typing import Annotated, Any, Final, NamedTuple

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from muster.coordinator.replication.io.wire.words import ElectionEntry
from muster.coordinator.replication.protocol.controller.effects import ElectionNote
from muster.coordinator.replication.protocol.copying import TruncatedRecords
from muster.coordinator.replication.protocol.facts import LEDGER, OFFSETS, TopicPartition, halves_of

LOST: Final = b'"lost"'
"""In every record of what was cut."""

MOST_CAUSE: Final = 500
"""Characters of a cause; what is longer is cut."""

Integer = Annotated[int, Field(strict=True)]


class ElectionRecord(BaseModel):
    """One record: somebody leads a unit, or nobody does (-1)."""

    model_config = ConfigDict(frozen=True)

    unit: str
    epoch: Integer
    before: Integer = Field(alias="from")
    after: Integer = Field(alias="to")
    clean: str
    cause: str
    isr: tuple[Integer, ...] = ()
    elr: tuple[Integer, ...] = ()
    decided_ms: Integer
    took_ms: Integer


class LossRecord(BaseModel):
    """One record: what a node cut off, because an unclean election came after it was written."""

    model_config = ConfigDict(frozen=True)

    unit: str
    epoch: Integer
    node: Integer = Field(validation_alias=AliasPath("lost", "node"))
    start: Integer = Field(validation_alias=AliasPath("lost", "from"))
    end: Integer = Field(validation_alias=AliasPath("lost", "to"))
    records: Integer = Field(validation_alias=AliasPath("lost", "records"))
    epochs: tuple[Integer, ...] = Field(validation_alias=AliasPath("lost", "epochs"))


class ElectionReport(NamedTuple):
    """An election, and what it cost as far as it is known."""

    election: ElectionRecord
    lost: tuple[LossRecord, ...] = ()


def election_record(note: ElectionNote, decided_ms: int) -> ElectionEntry:
    """decided_ms: on the wall's clock."""
    unit = str(note.unit)
    value = {
        "unit": unit,
        "epoch": note.epoch,
        "from": note.before,
        "to": note.after,
        "clean": note.clean.value,
        "cause": note.cause[:MOST_CAUSE],
        "isr": note.isr,
        "elr": note.elr,
        "decided_ms": decided_ms,
        "took_ms": note.took_ms,
    }
    return ElectionEntry(unit.encode(), as_json(value))


def loss_record(node: int, undone: TruncatedRecords) -> ElectionEntry:
    unit = str(undone.place)
    lost = {
        "node": node,
        "from": undone.start,
        "to": undone.end,
        "records": undone.end - undone.start,
        "epochs": undone.epochs,
    }
    return ElectionEntry(unit.encode(), as_json({"unit": unit, "epoch": undone.elected, "lost": lost}))


def as_json(value: dict[str, Any]) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def parse_election_record(value: bytes | None) -> ElectionRecord | LossRecord | None:
    """What a record says; None where it is none of ours, or of a later version."""
    try:
        document = json.loads(value or b"null")
        if not isinstance(document, dict):
            return None
        return (LossRecord if "lost" in document else ElectionRecord).model_validate(document)
    except (ValueError, ValidationError):
        return None


def report_elections(values: Iterable[bytes | None], topic: str = "") -> list[ElectionReport]:
    """The elections among records in their order, the youngest first; of one topic only, where it is named."""
    found: dict[tuple[str, int], ElectionRecord] = {}
    lost: dict[LossRecord, None] = {}
    for value in values:
        match parse_election_record(value):
            case ElectionRecord() as election if not topic or topic_of_unit(election.unit) == topic:
                found.setdefault((election.unit, election.epoch), election)
            case LossRecord() as each:
                lost[each] = None
    costs: dict[tuple[str, int], list[LossRecord]] = {}
    for each in lost:
        costs.setdefault((unit_name_of(each.unit), each.epoch), []).append(each)
    return [ElectionReport(one, tuple(costs.get(key, ()))) for key, one in reversed(found.items())]


def election_cost(values: Iterable[bytes | None], unit: TopicPartition, epoch: int) -> int:
    """How many records an unclean election of a unit cost, by what nodes told that cut them: of each of its partitions
    (a shard has two) as many as the one that cut most."""
    most = dict.fromkeys(map(str, halves_of(unit)), 0)
    for value in values:
        lost = parse_election_record(value) if value is not None and LOST in value else None
        if isinstance(lost, LossRecord) and lost.epoch == epoch and lost.unit in most:
            most[lost.unit] = max(most[lost.unit], lost.records)
    return sum(most.values())


def unit_name_of(partition: str) -> str:
    """The unit by whose name elections of a partition are told.

    >>> unit_name_of("__rebalances-7"), unit_name_of("orders-eu-3")
    ('__consumer_offsets-7', 'orders-eu-3')
    """
    return partition if topic_of_unit(partition) != LEDGER else f"{OFFSETS}-{partition.rpartition('-')[2]}"


def topic_of_unit(unit: str) -> str:
    """
    >>> topic_of_unit("orders-eu-3")
    'orders-eu'
    """
    return unit.rpartition("-")[0]
