"""Snapshots as JSON text: one object, field names as in `Snapshot` and `Member`."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from json.encoder import encode_basestring_ascii
from typing import Any, TypedDict, TypeVar

from muster.assignors.data.values import JsonValue, Member, SnapshotValues

_T = TypeVar("_T")

SNAPSHOT_FIELDS = ("topics", "members", "lags", "racks", "assignor", "options", "stale")
_MEMBER_FIELDS = ("id", "topics", "owned", "generation", "instance_id", "rack", "user_data")

_write = json.JSONEncoder(separators=(",", ":")).encode
_AT_A_TIME = 20


class SnapshotFields(TypedDict):
    """What a `Snapshot` is made of."""

    topics: Mapping[str, int]
    members: Sequence[Member]
    lags: Mapping[str, Sequence[int]] | None
    racks: Mapping[str, Sequence[Sequence[str]]] | None
    assignor: str
    options: Mapping[str, JsonValue]
    stale: Mapping[str, Sequence[int]]


def encode_snapshot_json(snapshot: SnapshotValues) -> str:
    """One JSON object without spaces; fields at their default are left out."""
    members = (
        write_members_json(snapshot.members[begin : begin + _AT_A_TIME])
        for begin in range(0, len(snapshot.members), _AT_A_TIME)
    )
    return join_members_json(snapshot, members)


def join_members_json(snapshot: SnapshotValues, members: Iterable[str]) -> str:
    """What `encode_snapshot_json` makes of this snapshot; members: all of them in order, by `write_members_json`."""
    out: dict[str, Any] = {}
    if snapshot.lags is not None:
        out["lags"] = {topic: [int(lag) for lag in lags] for topic, lags in snapshot.lags.items()}
    if snapshot.racks is not None:
        out["racks"] = {topic: [list(racks) for racks in by] for topic, by in snapshot.racks.items()}
    if snapshot.assignor:
        out["assignor"] = snapshot.assignor
    if snapshot.options:
        out["options"] = dict(snapshot.options)
    if snapshot.stale:
        out["stale"] = {topic: list(partitions) for topic, partitions in snapshot.stale.items()}
    more = compact_json(out)[1:-1]
    head = f'{{"topics":{_write(dict(snapshot.topics))},"members":[{",".join(members)}]'
    return f"{head},{more}}}" if more else f"{head}}}"


def write_members_json(members: Iterable[Member]) -> str:
    """Some members as they stand in a snapshot's text, with commas between them."""
    return _write([_member_out(member) for member in members])[1:-1]


def write_member_json(member: Member) -> str:
    """One member as it stands in a snapshot's text."""
    return _write(_member_out(member))


def join_snapshot_json(topics: Mapping[str, int], members: Iterable[str], assignor: str) -> str:
    """What `encode_snapshot_json` makes of a snapshot of these three, its members by `write_member_json`."""
    by = f',"assignor":{encode_basestring_ascii(assignor)}' if assignor else ""
    counts = ",".join([f"{encode_basestring_ascii(topic)}:{count}" for topic, count in topics.items()])
    return f'{{"topics":{{{counts}}},"members":[{",".join(members)}]{by}}}'


def compact_json(fields: Mapping[str, object]) -> str:
    """A JSON object without spaces.

    Long lists are written some entries at a time: the interpreter lets other threads run in between.
    """
    for value in fields.values():
        if isinstance(value, list) and len(value) > _AT_A_TIME:
            return _write_in_portions(fields)
    return _write(fields)


def _write_in_portions(fields: Mapping[str, object]) -> str:
    parts = []
    for key, value in fields.items():
        text = f"[{','.join(_in_portions(value))}]" if isinstance(value, list) else _write(value)
        parts.append(f"{_write(key)}:{text}")
    return f"{{{','.join(parts)}}}"


def _in_portions(entries: list[object]) -> Iterator[str]:
    """The entries of a list as text, without its brackets."""
    for begin in range(0, len(entries), _AT_A_TIME):
        yield _write(entries[begin : begin + _AT_A_TIME])[1:-1]


def decode_snapshot_json(text: str | bytes) -> SnapshotFields:
    """Read the fields of a snapshot; ValueError names the field, what was expected and what stands there."""
    raw = parse_json_object(text, "snapshot")
    check_known_fields(raw, SNAPSHOT_FIELDS, "snapshot")
    return read_snapshot_fields(raw)


def parse_json_object(text: str | bytes, what: str) -> dict[str, Any]:
    """The JSON object that the text is. ValueError says what else it is, nested too deeply included."""
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ValueError(f"a {what} is one JSON object, but this is not JSON: {error}") from None
    except RecursionError:
        raise ValueError(f"a {what} is one JSON object; this one is nested too deeply to read") from None
    return expect_kind(raw, dict, what)


def read_snapshot_fields(raw: dict[str, Any]) -> SnapshotFields:
    """The fields of a snapshot from its JSON object, other fields left aside."""
    return SnapshotFields(
        topics=read_mapping(required(raw, "topics", "snapshot"), "topics", read_whole_number),
        members=read_members(required(raw, "members", "snapshot"), _member_in),
        lags=_optional(raw, "lags", lambda value: read_mapping(value, "lags", _numbers)),
        racks=_optional(raw, "racks", lambda value: read_mapping(value, "racks", _rack_lists)),
        assignor=expect_kind(raw.get("assignor", ""), str, "assignor"),
        options=expect_kind(raw.get("options", {}), dict, "options"),
        stale=read_mapping(raw.get("stale", {}), "stale", _numbers),
    )


def read_members(raw: object, read: Callable[[dict[str, Any], str], Member]) -> list[Member]:
    """A list of members, each with an id of its own."""
    members: list[Member] = []
    seen: set[str] = set()
    for index, item in enumerate(expect_kind(raw, list, "members")):
        member = read(expect_kind(item, dict, f"members[{index}]"), f"members[{index}]")
        if member.id in seen:
            raise ValueError(f"members[{index}].id: {member.id!r} appears twice; member ids must differ")
        seen.add(member.id)
        members.append(member)
    return members


def check_known_fields(raw: dict[str, Any], known: Sequence[str], where: str) -> None:
    for key in raw:
        if key not in known:
            raise ValueError(f"{where}: {key!r} is not a field of it; its fields are {', '.join(known)}")


def required(raw: dict[str, Any], key: str, where: str) -> Any:
    if key not in raw:
        raise ValueError(f"{where}: {key!r} is missing; add it")
    return raw[key]


def expect_kind(value: Any, kind: type[_T], where: str) -> _T:
    if isinstance(value, kind) and not (kind is int and isinstance(value, bool)):
        return value
    words = {dict: "an object", list: "a list", str: "a string", int: "a whole number"}
    raise ValueError(f"{where}: expected {words[kind]}, got {shorten(value)}")


def read_mapping(raw: object, where: str, read: Callable[[object, str], _T]) -> dict[str, _T]:
    return {key: read(value, f"{where}.{key}") for key, value in expect_kind(raw, dict, where).items()}


def read_whole_number(raw: object, where: str) -> int:
    number = expect_kind(raw, int, where)
    if number < 0:
        raise ValueError(f"{where}: expected a number of 0 or more, got {number}")
    return number


def read_texts(raw: object, where: str) -> tuple[str, ...]:
    return tuple(
        expect_kind(item, str, f"{where}[{index}]") for index, item in enumerate(expect_kind(raw, list, where))
    )


def shorten(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _member_out(member: Member) -> dict[str, Any]:
    out: dict[str, Any] = {"id": member.id, "topics": list(member.topics)}
    if member.owned is not None:
        out["owned"] = {topic: [int(p) for p in partitions] for topic, partitions in member.owned.items()}
    if member.generation != -1:
        out["generation"] = member.generation
    if member.instance_id is not None:
        out["instance_id"] = member.instance_id
    if member.rack is not None:
        out["rack"] = member.rack
    if member.user_data:
        out["user_data"] = base64.b64encode(member.user_data).decode()
    return out


def _member_in(raw: dict[str, Any], where: str) -> Member:
    check_known_fields(raw, _MEMBER_FIELDS, where)
    return Member(
        id=expect_kind(required(raw, "id", where), str, f"{where}.id"),
        topics=read_texts(required(raw, "topics", where), f"{where}.topics"),
        owned=_optional(raw, "owned", lambda value: read_mapping(value, f"{where}.owned", _numbers)),
        generation=expect_kind(raw.get("generation", -1), int, f"{where}.generation"),
        instance_id=_optional(raw, "instance_id", lambda value: expect_kind(value, str, f"{where}.instance_id")),
        rack=_optional(raw, "rack", lambda value: expect_kind(value, str, f"{where}.rack")),
        user_data=_bytes(raw.get("user_data", ""), f"{where}.user_data"),
    )


def _optional(raw: dict[str, Any], key: str, read: Callable[[Any], _T]) -> _T | None:
    return read(raw[key]) if raw.get(key) is not None else None


def _numbers(raw: object, where: str) -> list[int]:
    listed = expect_kind(raw, list, where)
    for index, item in enumerate(listed):
        if type(item) is not int or item < 0:
            raise ValueError(f"{where}[{index}]: expected a number of 0 or more, got {shorten(item)}")
    return listed


def _rack_lists(raw: object, where: str) -> list[tuple[str, ...]]:
    return [read_texts(item, f"{where}[{index}]") for index, item in enumerate(expect_kind(raw, list, where))]


def _bytes(raw: object, where: str) -> bytes:
    try:
        return base64.b64decode(expect_kind(raw, str, where), validate=True)
    except (binascii.Error, ValueError):
        raise ValueError(f"{where}: expected base64 text, got {shorten(raw)}") from None
