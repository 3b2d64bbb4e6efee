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


def build_ddl(names: Sequence[str]) -> str:
    """
    >>> build_ddl(["value", "offset"])
    'value binary, offset bigint'
    """
    return ", ".join(f"{name} {SQL_TYPES[name]}" for name in names)


def choose_columns(columns: str | None, include_headers: bool) -> tuple[str, ...]:
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


def read_columns(schema: Any) -> tuple[str, ...]:
    """The columns of a Spark schema; ValueError names one that is unknown or of another type."""
    names = []
    for given_column in schema.fields:
        expected = SQL_TYPES.get(given_column.name)
        if expected is None:
            raise ValueError(
                f"the schema has column {given_column.name!r}; columns of this source: {build_ddl(list(SQL_TYPES))}"
            )
        if given_column.dataType.simpleString() != expected:
            raise ValueError(
                f"the schema has {given_column.name} as {given_column.dataType.simpleString()}; this source "
                f"gives {expected}: "
                "read that, and cast in the query"
            )
        names.append(given_column.name)
    return tuple(names)
