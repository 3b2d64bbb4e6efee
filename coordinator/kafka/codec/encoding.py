"""Writes an encoder for one message in one version: small parts, joined once; record batches are not copied."""

import struct as packing
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

from muster.coordinator.kafka.codec.emitter import (
    FIXED,
    Buffer,
    CodeEmitter,
    Unencodable,
    fields_in_version,
    has_fixed_size,
    tagged_fields,
)
from muster.coordinator.kafka.codec.notation import STRUCT, FieldSchema, MessageSchema

Encoder: TypeAlias = Callable[[Any], list[Buffer]]

SHORT = 127
"""Lengths below this one take one byte."""

SHORT_LENGTHS = [bytes([length + 1]) for length in range(SHORT)]
"""The compact form of a short length: plus one, so that 0 is null."""


def make_encoder(message: MessageSchema, version: int) -> Encoder:
    """A function of an object with the message's attributes that returns its bytes; raises Unencodable.

    The bytes come as several buffers where they hold record batches: each batch is the buffer that the object had.
    """
    names: dict[str, object] = {"U": SHORT_LENGTHS, "uv": encode_uvarint}
    emit = CodeEmitter(message.name, version, names)
    with emit.block(message.name, "def f(m0):"):
        for text in ("w = []", "a = w.append", "cuts = []"):
            emit.line(message.name, text)
        EncoderWriter(emit, version in message.flexible).struct(message.name, message.fields, "m0")
        emit.line(message.name, "return w, cuts")
    raw = emit.function()

    def encode(value: Any) -> list[Buffer]:
        try:
            parts, cuts = raw(value)
            return join_parts(parts, cuts) if cuts else [b"".join(parts)]
        except Exception as error:
            raise Unencodable(f"{emit.title}, {emit.failing(error)}: {error}") from error

    return encode


def join_parts(parts: list[Buffer], cuts: list[int]) -> list[Buffer]:
    """Join what lies between the record batches, whose places are `cuts`."""
    buffers: list[Buffer] = []
    begin = 0
    for cut in cuts:
        buffers.append(b"".join(parts[begin:cut]))
        buffers.append(parts[cut])
        begin = cut + 1
    buffers.append(b"".join(parts[begin:]))
    return [each for each in buffers if each]


class EncoderWriter:
    """Emits the writing of structs, fields and arrays; runs of fixed size are written by one call."""

    def __init__(self, emit: CodeEmitter, flexible: bool) -> None:
        self._emit = emit
        self._flexible = flexible

    def struct(self, path: str, fields: list[FieldSchema], source: str) -> None:
        body, tags = fields_in_version(fields, self._emit.version), tagged_fields(fields, self._emit.version)
        untagged = self._flexible and not tags
        self._body(body, source, untagged)
        if untagged and not (body and has_fixed_size(body[-1])):
            self._emit.line(path, "a(b'\\0')")
        elif tags and self._flexible:
            self._tags(path, tags, source)

    def _body(self, body: list[FieldSchema], source: str, untagged: bool = False) -> None:
        """Fixed fields are gathered; an old-style length or the zero for no tags that follows is written with them."""
        run: list[FieldSchema] = []
        for one in body:
            if has_fixed_size(one):
                run.append(one)
                continue
            if self._compact(one) or (one.type == STRUCT and not one.array):
                self._run(run, source)
                run = []
            self._value(one, source, run)
            run = []
        self._run(run, source, "x" * untagged)

    def _run(self, run: list[FieldSchema], source: str, behind: str = "") -> None:
        if run:
            name, _ = self._emit.packed("".join(FIXED[one.type] for one in run) + behind)
            self._emit.line(run[0].path, f"a({name}.pack({', '.join(read_attribute(one, source) for one in run)}))")

    def _value(self, one: FieldSchema, source: str, run: list[FieldSchema]) -> None:
        """One field of variable size, with the fixed fields before it where its length is written along with them."""
        emit, value = self._emit, f"v{self._emit.number()}"
        if one.type == STRUCT and not one.array:
            self._single(one, source, value)
            return
        emit.line(one.path, f"{value} = {read_attribute(one, source)}")
        write_length = self._length_writer(one, source, run)
        if emit.version in one.nullable:
            with emit.block(one.path, f"if {value} is None:"):
                write_length("-1")
            with emit.block(one.path, "else:"):
                self._content(one, value, write_length)
        else:
            self._content(one, value, write_length)

    def _length_writer(self, one: FieldSchema, source: str, run: list[FieldSchema]) -> Callable[[str], None]:
        emit = self._emit
        if self._compact(one):

            def write_compact(length: str) -> None:
                if length == "-1":
                    emit.line(one.path, "a(b'\\0')")
                    return
                emit.line(one.path, f"n = {length}")
                emit.line(one.path, f"a(U[n] if n < {SHORT} else uv(n + 1))")

            return write_compact
        letter = "h" if one.type == "string" and not one.array else "i"
        name, _ = emit.packed("".join(FIXED[each.type] for each in run) + letter)
        before = "".join(f"{read_attribute(each, source)}, " for each in run)
        return lambda length: emit.line(one.path, f"a({name}.pack({before}{length}))")

    def _content(self, one: FieldSchema, value: str, write_length: Callable[[str], None]) -> None:
        emit = self._emit
        if one.array:
            write_length(f"len({value})")
            self._elements(one, value)
            return
        if one.type == "string":
            emit.line(one.path, f"{value} = {value}.encode()")
        write_length(f"len({value})")
        if one.type == "records":
            emit.line(one.path, "cuts.append(len(w))")
        emit.line(one.path, f"a({value})")

    def _elements(self, one: FieldSchema, value: str) -> None:
        emit = self._emit
        if one.type == "int32":
            emit.names["pack_ints"] = pack_ints
            emit.line(one.path, f"a(pack_ints({value}))")
            return
        if one.type == "int8":
            emit.line(one.path, f"a(bytes([each & 0xFF for each in {value}]))")
            return
        element = f"e{emit.number()}"
        with emit.block(one.path, f"for {element} in {value}:"):
            if one.type == STRUCT:
                # An element may have no field in this version.
                emit.line(one.path, "pass")
                self.struct(one.path, one.fields, element)
            else:
                emit.line(one.path, f"{element} = {element}.encode()")
                self._length_writer(self._as_element(one), "", [])(f"len({element})")
                emit.line(one.path, f"a({element})")

    def _as_element(self, one: FieldSchema) -> FieldSchema:
        return FieldSchema(one.name, one.type, False, one.versions, range(0), "", None, one.flexible, one.path)

    def _single(self, one: FieldSchema, source: str, value: str) -> None:
        """A struct that is no array; None counts as one of defaults where it may not be null."""
        emit = self._emit
        emit.line(one.path, f"{value} = {read_attribute(one, source)}")
        if emit.version not in one.nullable:
            self.struct(one.path, one.fields, value)
            return
        with emit.block(one.path, f"if {value} is None:"):
            emit.line(one.path, "a(b'\\xff')")
        with emit.block(one.path, "else:"):
            emit.line(one.path, "a(b'\\1')")
            self.struct(one.path, one.fields, value)

    def _tags(self, path: str, fields: list[FieldSchema], source: str) -> None:
        """Tagged fields are left out where they have their default (KIP-482)."""
        emit = self._emit
        tags = f"t{emit.number()}"
        emit.line(path, f"{tags} = []")
        for one in fields:
            value, outer = f"v{emit.number()}", f"w{emit.number()}"
            emit.line(one.path, f"{value} = {read_attribute(one, source)}")
            with emit.block(one.path, f"if not ({emit_default_test(one, value)}):"):
                emit.line(one.path, f"{outer} = w")
                emit.line(one.path, "w = []")
                emit.line(one.path, "a = w.append")
                self._body([one], source)
                emit.line(one.path, f"{value} = b''.join(w)")
                emit.line(one.path, f"{tags}.append(uv({one.tag}) + uv(len({value})) + {value})")
                emit.line(one.path, f"w = {outer}")
                emit.line(one.path, "a = w.append")
        emit.line(path, f"a(uv(len({tags})))")
        emit.line(path, f"w.extend({tags})")

    def _compact(self, one: FieldSchema) -> bool:
        return self._flexible and one.flexible


def read_attribute(one: FieldSchema, source: str) -> str:
    """What reads the field; an object that lacks it counts as one that has the default."""
    return f"getattr({source}, {one.name!r}, {one.default!r})"


def emit_default_test(one: FieldSchema, value: str) -> str:
    """What tests whether a tagged field has its default: a struct has it when all its fields have theirs."""
    if one.array:
        return f"not {value}"
    if one.type != STRUCT:
        return f"{value} == {one.default!r}"
    return " and ".join(f"{read_attribute(each, value)} == {each.default!r}" for each in one.fields)


def encode_uvarint(value: int) -> bytes:
    """An unsigned varint.

    >>> encode_uvarint(300).hex()
    'ac02'
    """
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def pack_ints(values: Sequence[int]) -> bytes:
    return packing.pack(f">{len(values)}i", *values)
