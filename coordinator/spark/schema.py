"""The columns of a row: names, order and types of Spark's Kafka source."""

from collections.abc import Sequence
from typing import Any

HEADERS = "headers"
SQL_TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
    "timestampType": "int",
    HEADERS: "array<struct<key:string,value:binary>>",
}
COLUMNS = tuple(name for name in SQL_TYPES if name != HEADERS)

CREATE_TIME, LOG_APPEND_TIME = 0, 1
"""The values of timestampType."""


def ddl(names: Sequence[str]) -> str:
    """
    >>> ddl(["value", "offset"])
    'value binary, offset bigint'
    """
    return ", ".join(f"{name} {SQL_TYPES[name]}" for name in names)


def chosen_columns(columns: str | None, include_headers: bool) -> tuple[str, ...]:
    """The columns of a row, in order: those that are named, else all; ValueError names one that does not exist."""
    if columns is None:
        return tuple(SQL_TYPES) if include_headers else COLUMNS
    names = tuple(name.strip() for name in columns.split(",") if name.strip())
    unknown = [name for name in names if name not in SQL_TYPES]
    if unknown or not names:
        raise ValueError(f"columns={columns!r}: expected some of {', '.join(SQL_TYPES)}, separated by commas")
    if include_headers and HEADERS not in names:
        raise ValueError(
            f"includeHeaders=true, but columns={columns!r} leaves headers out; name them there, or neither"
        )
    if len(set(names)) < len(names):
        raise ValueError(f"columns={columns!r} names a column twice; name each once")
    return names


def wanted_columns(schema: Any) -> tuple[str, ...]:
    """The columns of a Spark schema; ValueError names one that is unknown or of another type."""
    names = []
    for field in schema.fields:
        expected = SQL_TYPES.get(field.name)
        if expected is None:
            raise ValueError(f"the schema has column {field.name!r}; columns of this source: {ddl(list(SQL_TYPES))}")
        if field.dataType.simpleString() != expected:
            raise ValueError(
                f"the schema has {field.name} as {field.dataType.simpleString()}; this source gives {expected}: "
                "read that, and cast in the query"
            )
        names.append(field.name)
    return tuple(names)
