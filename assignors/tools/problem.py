"""Problems of `muster assign`: a snapshot as the ledger keeps it, or shorter, as people write it.

    {"assignor": "range", "topics": {"t": 3, "u": [["r1"], ["r2"]]}, "members": [{"id": "a", "topics": ["t"]}]}

The fields are those of `Snapshot`. Beyond them a topic may be a list with the racks of each partition, or of
{"begin", "end", "committed"} objects, where "committed" may be null and "reset" says what that means; a member may
state what it owns as [[topic, partition], ...].
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from muster.assignors import registry
from muster.assignors.api import Assignment, Assignor, Snapshot
from muster.assignors.data.snapshot_json import (
    SNAPSHOT_FIELDS,
    check_known_fields,
    expect_kind,
    read_snapshot_fields,
    read_texts,
    required,
    shorten,
)
from muster.assignors.data.values import HANDOVER
from muster.assignors.run import hand_over, run
from muster.assignors.tools.what_if import restore_question

RESETS = ("latest", "earliest", "none")
PROBLEM_FIELDS = (*SNAPSHOT_FIELDS, "reset")

Decide: TypeAlias = Callable[[Assignor, Snapshot, bool], Assignment]
"""Asks an assignor, as `run` does; the last argument says whether to hold back what is to be let go of first."""


def solve(
    problem: Mapping[str, Any], assignor: Assignor | str | None = None, decide: Decide = run
) -> dict[str, dict[str, list[int]]]:
    """{member: {topic: [partitions]}} for a problem; the argument overrules the problem's own word.

    A snapshot of the ledger gives the ledger's plan: what a coordinator held back for members is held back here.
    `decide` asks the assignor; it may do so elsewhere, and with a deadline.
    """
    snapshot = snapshot_of(problem)
    chosen = assignor if assignor is not None else snapshot.assignor
    if chosen == "":
        raise ValueError('the problem names no assignor; add an "assignor" field or pass one')
    found = registry.resolve(chosen) if isinstance(chosen, str) else chosen
    question = restore_question(snapshot, found)
    if HANDOVER in snapshot.options:
        return hand_over(snapshot, decide(found, question, False)).to_dict()
    return decide(found, question, True).to_dict()


def snapshot_of(problem: Mapping[str, Any]) -> Snapshot:
    """The snapshot of a problem; ValueError names the field that is wrong and what it should be."""
    raw = expect_kind(problem, dict, "problem")
    check_known_fields(raw, PROBLEM_FIELDS, "problem")
    reset = raw.get("reset", "latest")
    if not isinstance(reset, str) or reset.lower() not in RESETS:
        raise ValueError(f"reset: expected one of {', '.join(RESETS)}, got {shorten(reset)}")
    plain = {key: value for key, value in raw.items() if key != "reset"}
    plain["topics"] = dict(expect_kind(required(raw, "topics", "problem"), dict, "topics"))
    for topic, value in plain["topics"].items():
        if isinstance(value, list):
            spell_out_topic(plain, topic, value, reset)
    members = expect_kind(required(raw, "members", "problem"), list, "members")
    plain["members"] = [spell_out_member(member, f"members[{index}]") for index, member in enumerate(members)]
    return Snapshot(**read_snapshot_fields(plain))


def spell_out_topic(plain: dict[str, Any], topic: str, rows: list[Any], reset: str) -> None:
    """A topic that is a list of racks or offsets: its count, and a row of the snapshot's `racks` or `lags`."""
    plain["topics"][topic] = len(rows)
    where = f"topics.{topic}"
    with_offsets = bool(rows) and all(isinstance(item, dict) for item in rows)
    field = "lags" if with_offsets else "racks"
    told: dict[str, Any] = expect_kind({} if plain.get(field) is None else plain[field], dict, field)
    if topic in told:
        raise ValueError(f"{where}: states {field} that {field}.{topic} states as well; keep one of the two")
    row: list[Any] = (
        [lag_of(item, reset, f"{where}[{index}]") for index, item in enumerate(rows)]
        if with_offsets
        else [_racks(item, f"{where}[{index}]") for index, item in enumerate(rows)]
    )
    plain[field] = {**told, topic: row}


def spell_out_member(raw: object, where: str) -> object:
    """A member with claims as {topic: [partitions]}, and no generation rather than null."""
    if not isinstance(raw, dict):
        return raw
    plain = {key: value for key, value in raw.items() if key != "generation" or value is not None}
    if isinstance(plain.get("owned"), list):
        plain["owned"] = _owned(plain["owned"], f"{where}.owned")
    return plain


def lag_of(offsets: Mapping[str, Any], reset: str, where: str = "offsets") -> int:
    """Records behind, never negative: without a commit all of them, or none when reset is latest.

    Unlike the lags of a node (`readable_lag`), it counts what retention removed, as the Java assignor `lag` does, whose
    plans this format records.

    >>> lag_of({"begin": 10, "end": 50, "committed": None}, "earliest")
    40
    """
    check_known_fields(dict(offsets), ("begin", "end", "committed"), where)
    begin, end = (expect_kind(required(dict(offsets), key, where), int, f"{where}.{key}") for key in ("begin", "end"))
    committed = offsets.get("committed")
    if committed is None:
        return 0 if reset.lower() == "latest" else max(0, end - begin)
    return max(0, end - expect_kind(committed, int, f"{where}.committed"))


def _racks(raw: object, where: str) -> list[str]:
    listed = expect_kind(raw, list, where)
    return list(read_texts([rack for rack in listed if rack is not None], where))


def _owned(listed: list[Any], where: str) -> dict[str, list[int]]:
    """Claims as [[topic, partition], ..]."""
    owned: dict[str, list[int]] = {}
    for index, pair in enumerate(listed):
        match pair:
            case [str() as topic, int() as partition]:
                owned.setdefault(topic, []).append(partition)
            case _:
                raise ValueError(f"{where}[{index}]: expected [topic, partition], got {shorten(pair)}")
    return owned
