"""Collects the lines of a generated decoder or encoder, each with its field, so that a failure names the field."""

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, TracebackType
from typing import Any, TypeAlias

from muster.coordinator.kafka.codec.messages import FieldSchema

Buffer: TypeAlias = bytes | bytearray | memoryview
Frame: TypeAlias = bytes | bytearray
"""One request or answer without its length."""

FIXED = {"bool": "?", "int8": "b", "int16": "h", "int32": "i", "int64": "q", "float64": "d", "uuid": "16s"}
"""Primitives of one size, by the letter that the struct module has for them."""


class MalformedFrame(ValueError):
    """The bytes are no such message. The text names the message, its version and the field."""


class Unencodable(ValueError):
    """An object cannot be written as this message: a mistake on this side."""


class CodeEmitter:
    """Collects a function's lines. `names` is what they refer to; every loop and temporary gets a number of its own."""

    def __init__(self, title: str, version: int, names: dict[str, object]) -> None:
        self.title = f"{title} version {version}"
        self.version = version
        self.names = names
        self._lines: list[str] = []
        self._paths: list[str] = []
        self._depth = 0
        self._numbers = 0

    def line(self, path: str, text: str) -> None:
        self._lines.append("    " * self._depth + text)
        self._paths.append(path)

    @contextmanager
    def block(self, path: str, text: str) -> Iterator[None]:
        self.line(path, text)
        self._depth += 1
        yield
        self._depth -= 1

    def number(self) -> int:
        """A number that no other line uses."""
        self._numbers += 1
        return self._numbers

    def constant(self, prefix: str, value: object) -> str:
        """A name under which the lines find `value`."""
        name = f"{prefix}{self.number()}"
        self.names[name] = value
        return name

    def packed(self, letters: str) -> tuple[str, struct.Struct]:
        """The name of a Struct for these letters, and the Struct."""
        packer = struct.Struct(f">{letters}")
        return self.constant("s", packer), packer

    def function(self) -> Any:
        """Compile the lines, which define one function `f`."""
        code: CodeType = compile("\n".join(self._lines), f"<{self.title}>", "exec")
        exec(code, self.names)
        return self.names["f"]

    def failing(self, error: BaseException) -> str:
        """The path of the field whose line raised `error`."""
        path, trace = self._paths[0], error.__traceback__
        while trace is not None:
            if is_generated_frame(trace, self.title):
                path = self._paths[trace.tb_lineno - 1]
            trace = trace.tb_next
        return path


def is_generated_frame(trace: TracebackType, title: str) -> bool:
    return trace.tb_frame.f_code.co_filename == f"<{title}>"


def fields_in_version(fields: list[FieldSchema], version: int) -> list[FieldSchema]:
    """The fields that stand in the message's body in this version, in order."""
    return [one for one in fields if version in one.versions and one.tag is None]


def tagged_fields(fields: list[FieldSchema], version: int) -> list[FieldSchema]:
    """The tagged fields of this version, by tag."""
    return sorted(
        (one for one in fields if version in one.versions and one.tag is not None), key=lambda one: one.tag or 0
    )


def has_fixed_size(one: FieldSchema) -> bool:
    return not one.array and one.type in FIXED
