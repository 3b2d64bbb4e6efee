"""How records are printed: the value alone, chosen fields with a separator, or one JSON object a line."""

import base64
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from muster.client import Message

FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
Writer = Callable[["Message"], bytes]


def fields_option(ctx: click.Context, param: click.Parameter, given: str | None) -> tuple[str, ...]:
    """The fields that were named, in that order."""
    names = tuple(word.strip() for word in given.split(",")) if given else ("value",)
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is no field; expected some of {', '.join(FIELDS)}", ctx, param)
    return names


def make_writer(fields: tuple[str, ...], separator: str, *, as_json: bool) -> Writer:
    """What turns a record into the bytes of its line, without the line feed."""
    if as_json:
        return json_line
    if fields == ("value",):
        return lambda message: message.value or b""
    between = separator.encode("utf-8", "surrogateescape")
    return lambda message: between.join(encode_field(message, name) for name in fields)


def encode_field(message: "Message", name: str) -> bytes:
    """One field as bytes; a key or value that is null is nothing."""
    match name:
        case "key":
            return message.key or b""
        case "value":
            return message.value or b""
        case "timestamp":
            return str(message.timestamp_ms).encode()
        case "headers":
            return b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers)
        case _:
            return str(getattr(message, name)).encode()


def json_line(message: "Message") -> bytes:
    """Everything about a record. Bytes that are no UTF-8 stand in base64, under `key_base64` and the like."""
    line: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        **told("key", message.key),
        **told("value", message.value),
        "headers": [{"name": name, **told("value", value)} for name, value in message.headers],
    }
    return json.dumps(line, ensure_ascii=False).encode()


def told(name: str, data: bytes | None) -> dict[str, str | None]:
    """
    >>> told("key", b"a"), told("key", b"\\xff"), told("key", None)
    ({'key': 'a'}, {'key_base64': '/w=='}, {'key': None})
    """
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}
