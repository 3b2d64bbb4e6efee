"""Kafka's messages as data and as Python classes: parses the notation of the schema tables, makes a class per struct.

A message begins in the first column with its name, its versions and those that are flexible (KIP-482). Its fields
follow, one a line, in the order of the wire; the fields of a struct are indented below it::

    JoinGroupRequest 0-9 flexible 6+
        group_id: string
        rebalance_timeout_ms: int32 1+ = -1
        group_instance_id: string? 5+ = null
        protocols: []
            name: string

After the type: the versions that have the field (without: those of its struct), `inflexible` for a field that is
never compact, its default, `tag` and its number for a tagged field. `[int32]` is an array, `[]` an array of structs,
`{}` one struct. `?` means that null may be sent, in all versions or in those that follow it.

All tables below `schema/` are read once, when the first message is needed. The class of a message or struct is
slotted and made on first use; its constructor is generated, because an answer may hold thousands of structs.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, TypeAlias

from muster.coordinator.kafka.codec.schema import admin, connection, groups, logs, nodes, security, transactions

Versions: TypeAlias = range
Default: TypeAlias = int | float | bool | str | bytes | tuple[()] | None

INDENT = 4
STRUCT = ""
"""The element type of `[]` and `{}`."""

MESSAGE_LINE = re.compile(r"(?P<name>\w+) (?P<versions>\d+-\d+)(?: flexible (?P<flexible>\d+\+))?")
FIELD_LINE = re.compile(
    r"(?P<indent> *)(?P<name>\w+): (?P<array>\[)?(?P<type>\w*|\{)[\]}]?"
    r"(?P<nullable>\?(?P<null>\d+(?:\+|-\d+)?)?)?(?: (?P<versions>\d+(?:\+|-\d+)?))?(?P<inflexible> inflexible)?"
    r"(?: = (?P<default>\S+))?(?: tag (?P<tag>\d+))?"
)
ZEROS: dict[str, Default] = {
    "bool": False, "int8": 0, "int16": 0, "int32": 0, "int64": 0, "float64": 0.0,
    "string": "", "bytes": b"", "records": b"", "uuid": bytes(16),
}  # fmt: skip


@dataclass(frozen=True)
class FieldSchema:
    """One field. `type` is a primitive, or STRUCT; `default` is what an absent one counts as."""

    name: str
    type: str
    array: bool
    versions: Versions
    nullable: Versions
    default: Default
    tag: int | None
    flexible: bool
    path: str
    """Dotted, beginning with the message's name."""
    fields: "list[FieldSchema]" = field(default_factory=list)


@dataclass(frozen=True)
class MessageSchema:
    name: str
    versions: Versions
    flexible: Versions
    fields: list[FieldSchema]

    @cached_property
    def structs(self) -> dict[str, list[FieldSchema]]:
        """The message's structs by path: its own fields, and those of every struct within."""
        found = {self.name: self.fields}
        pending = list(self.fields)
        while pending:
            one = pending.pop()
            if one.type == STRUCT:
                found[one.path] = one.fields
                pending.extend(one.fields)
        return found


def parse_messages(text: str) -> Iterator[MessageSchema]:
    """Yield the messages. Raises ValueError with the line that is not in the notation."""
    for block in text.strip().split("\n\n"):
        head, *lines = block.splitlines()
        found = MESSAGE_LINE.fullmatch(head)
        if found is None:
            raise ValueError(f"{head!r} does not begin a message; expected such as 'HeartbeatRequest 0-4 flexible 4+'")
        versions = parse_versions(found["versions"], range(0))
        flexible = parse_versions(found["flexible"], versions) if found["flexible"] else range(0)
        yield MessageSchema(found["name"], versions, flexible, parse_fields(found["name"], lines, versions))


def parse_fields(name: str, lines: list[str], versions: Versions) -> list[FieldSchema]:
    """The fields below a message's head; each is put below the struct that it is indented under."""
    top: list[FieldSchema] = []
    open_structs: list[tuple[str, list[FieldSchema], Versions]] = [(name, top, versions)]
    for line in lines:
        found = FIELD_LINE.fullmatch(line)
        depth = len(found["indent"]) // INDENT if found else 0
        if found is None or not 1 <= depth <= len(open_structs):
            raise ValueError(f"{name}: {line!r} is not a field; expected such as '    member_id: string 1+'")
        del open_structs[depth:]
        path, siblings, inherited = open_structs[-1]
        one = parse_field(found, path, inherited)
        siblings.append(one)
        if one.type == STRUCT:
            open_structs.append((one.path, one.fields, one.versions))
    return top


def parse_field(found: re.Match[str], path: str, inherited: Versions) -> FieldSchema:
    name, kind, array = found["name"], found["type"].strip("{"), found["array"] is not None
    versions = parse_versions(found["versions"], inherited) if found["versions"] else inherited
    nullable = range(0)
    if found["nullable"]:
        nullable = parse_versions(found["null"], versions) if found["null"] else versions
    return FieldSchema(
        name=name,
        type=kind,
        array=array,
        versions=versions,
        nullable=nullable,
        default=() if array and found["default"] is None else parse_default(kind, found["default"]),
        tag=int(found["tag"]) if found["tag"] else None,
        flexible=not found["inflexible"],
        path=f"{path}.{name}",
    )


def parse_default(kind: str, word: str | None) -> Default:
    if word == "null" or (word is None and kind == STRUCT):
        return None
    if word is None:
        return ZEROS[kind]
    return word == "true" if kind == "bool" else int(word)


def parse_versions(text: str, within: Versions) -> Versions:
    """Read a span of versions.

    >>> list(parse_versions("5+", range(0, 8))), list(parse_versions("3-4", range(0)))
    ([5, 6, 7], [3, 4])
    """
    if text.endswith("+"):
        return range(int(text[:-1]), within.stop)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


# All messages
# ------------


@cache
def all_messages() -> dict[str, MessageSchema]:
    """All messages by name, such as `HeartbeatRequest`; read once, when the first is asked for."""
    parts = (admin, connection, groups, logs, security, nodes, transactions)
    return {message.name: message for part in parts for message in parse_messages(part.FIELDS)}


# Messages as objects
# -------------------


class MessageStruct:
    """The base of all struct classes. Fields are given by keyword; those left out have the schema's default."""

    __slots__ = ()
    _defaults: Mapping[str, object] = {}

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(equal_structs(getattr(self, name), getattr(other, name)) for name in self._defaults)

    __hash__ = None  # type: ignore[assignment]  # it can be changed

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self._defaults)
        return f"{type(self).__name__}({fields})"


def equal_structs(one: object, other: object) -> bool:
    """Equal, where an empty array is one whether it is a list or the default."""
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return list(one) == list(other)
    return one == other


@cache
def struct(path: str) -> type[Any]:
    """The class of a message, or of a struct within one.

    >>> struct("HeartbeatResponse")(error_code=27)
    HeartbeatResponse(throttle_time_ms=0, error_code=27)
    >>> struct("JoinGroupResponse.members")(member_id="a")
    JoinGroupResponse.members(member_id='a', group_instance_id=None, metadata=b'')
    """
    found = all_messages().get(path.partition(".")[0])
    if found is None or path not in found.structs:
        raise LookupError(
            f"{path!r} is not a message or struct of the schema; expected such as 'JoinGroupResponse.members'"
        )
    return make_struct_class(path, found.structs[path])


def make_struct_class(path: str, fields: list[FieldSchema]) -> type[Any]:
    defaults = {one.name: one.default for one in fields}
    return type(
        path,
        (MessageStruct,),
        {
            "__slots__": tuple(defaults),
            "_defaults": defaults,
            "__module__": __name__,
            "__init__": make_struct_init(path, fields),
        },
    )


def make_struct_init(path: str, fields: list[FieldSchema]) -> Any:
    """A constructor that takes the fields by keyword: written out, for an answer may have thousands of structs."""
    given = "".join(f", {one.name}={one.default!r}" for one in fields)
    lines = [f"def __init__(self{', *' if fields else ''}{given}):", "    pass"]
    lines += [f"    self.{one.name} = {one.name}" for one in fields]
    names: dict[str, Any] = {}
    exec(compile("\n".join(lines), f"<{path}>", "exec"), names)
    names["__init__"].__qualname__ = path  # who misspells a field is told whose it is
    return names["__init__"]
