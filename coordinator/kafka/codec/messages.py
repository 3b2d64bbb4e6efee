"""Messages and their structs as objects: a slotted class for each struct of the schema, made when it is needed."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from muster.coordinator.kafka.codec.notation import FieldSchema
from muster.coordinator.kafka.codec.schema_init import all_messages


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
            f"{path!r} is no message or struct of the schema; expected such as 'JoinGroupResponse.members'"
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
