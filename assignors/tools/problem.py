"""Problems as people write them for `muster assign`: one JSON object with topics, members, an assignor.

    {"assignor": "range", "topics": {"t": 3, "u": [["r1"], ["r2"]]}, "members": [{"id": "a", "topics": ["t"]}]}

A topic is a number of partitions, or a list with the racks of each partition, or, for lag, a list of
{"begin", "end", "committed"} objects, where "committed" may be null and "reset" says what that means.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from muster.assignors import registry
from muster.assignors.api import Assignment, Assignor, Member, Snapshot
from muster.assignors.data.snapshot_json import (
    expect_kind,
    read_mapping,
    read_members,
    read_texts,
    read_whole_number,
    required,
    shorten,
)
from muster.assignors.run import run

RESETS = ("latest", "earliest", "none")


def solve(
    problem: Mapping[str, Any],
    assignor: Assignor | str | None = None,
    decide: Callable[[Assignor, Snapshot], Assignment] = run,
) -> dict[str, dict[str, list[int]]]:
    """{member: {topic: [partitions]}} for a problem; the argument overrules the problem's own word.

    `decide` asks the assignor; it may do so elsewhere, and with a deadline.
    """
    snapshot = snapshot_of(problem)
    chosen = assignor if assignor is not None else snapshot.assignor
    if chosen == "":
        raise ValueError('the problem names no assignor; add an "assignor" field or pass one')
    found = registry.resolve(chosen) if isinstance(chosen, str) else chosen
    return decide(found, snapshot).to_dict()


def snapshot_of(problem: Mapping[str, Any]) -> Snapshot:
    """The snapshot of a problem; ValueError names the field that is wrong and what it should be."""
    raw = expect_kind(problem, dict, "problem")
    topics: dict[str, int] = {}
    racks: dict[str, list[tuple[str, ...]]] = {}
    lags: dict[str, list[int]] = {}
    reset = raw.get("reset", "latest")
    if not isinstance(reset, str) or reset.lower() not in RESETS:
        raise ValueError(f"reset: expected one of {', '.join(RESETS)}, got {shorten(reset)}")
    for topic, value in expect_kind(required(raw, "topics", "problem"), dict, "topics").items():
        where = f"topics.{topic}"
        if not isinstance(value, list):
            topics[topic] = read_whole_number(value, where)
            continue
        topics[topic] = len(value)
        if value and all(isinstance(item, dict) for item in value):
            lags[topic] = [lag_of(item, reset, f"{where}[{index}]") for index, item in enumerate(value)]
        else:
            racks[topic] = [_racks(item, f"{where}[{index}]") for index, item in enumerate(value)]
    return Snapshot(
        topics=topics,
        members=read_members(required(raw, "members", "problem"), _member),
        lags=lags or None,
        racks=racks or None,
        assignor=expect_kind(raw.get("assignor", ""), str, "assignor"),
        options=expect_kind(raw.get("options", {}), dict, "options"),
    )


def lag_of(offsets: Mapping[str, Any], reset: str, where: str = "offsets") -> int:
    """Records behind, never negative: without a commit all of them, or none when reset is latest.

    >>> lag_of({"begin": 10, "end": 50, "committed": None}, "earliest")
    40
    """
    begin, end = (expect_kind(required(dict(offsets), key, where), int, f"{where}.{key}") for key in ("begin", "end"))
    committed = offsets.get("committed")
    if committed is None:
        return 0 if reset.lower() == "latest" else max(0, end - begin)
    return max(0, end - expect_kind(committed, int, f"{where}.committed"))


def _racks(raw: object, where: str) -> tuple[str, ...]:
    listed = expect_kind(raw, list, where)
    return read_texts([rack for rack in listed if rack is not None], where)


def _member(raw: dict[str, Any], where: str) -> Member:
    generation = raw.get("generation")
    return Member(
        id=expect_kind(required(raw, "id", where), str, f"{where}.id"),
        topics=read_texts(required(raw, "topics", where), f"{where}.topics"),
        owned=_owned(raw["owned"], f"{where}.owned") if raw.get("owned") is not None else None,
        generation=-1 if generation is None else expect_kind(generation, int, f"{where}.generation"),
        instance_id=_text(raw, "instance_id", where),
        rack=_text(raw, "rack", where),
    )


def _text(raw: dict[str, Any], key: str, where: str) -> str | None:
    return None if raw.get(key) is None else expect_kind(raw[key], str, f"{where}.{key}")


def _owned(raw: object, where: str) -> dict[str, list[int]]:
    """Claims as [[topic, partition], ..] or as {topic: [partitions]}."""
    if isinstance(raw, dict):
        return read_mapping(
            raw, where, lambda value, at: [expect_kind(p, int, at) for p in expect_kind(value, list, at)]
        )
    owned: dict[str, list[int]] = {}
    for index, pair in enumerate(expect_kind(raw, list, where)):
        match pair:
            case [str() as topic, int() as partition]:
                owned.setdefault(topic, []).append(partition)
            case _:
                raise ValueError(f"{where}[{index}]: expected [topic, partition], got {shorten(pair)}")
    return owned
