"""Converts Kafka's messages to bytes and back. The codec of a (message, version) is generated on first use.

Messages are objects with one attribute per field, in snake_case; `struct` makes them. Any object with such attributes
can be encoded: a missing attribute has the schema's default. Arrays are lists, record batches memoryviews of the
frame.

A decoder is straight code without calls for what ordinary messages hold. Every length is compared with the bytes
that are left before anything is allocated, an array's length with the fewest bytes that so many elements can take,
and in a request with the table of limits for that list. All arrays of one message together have at most MAX_ELEMENTS
elements; a message has at most MAX_TAGS tagged fields.

An encoder writes small parts and joins them once; record batches are passed through without a copy.
"""

import struct as packing
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from types import CodeType, TracebackType
from typing import Any, Protocol, TypeAlias

from muster.coordinator.edge import request_limits
from muster.coordinator.kafka.codec.messages import STRUCT, FieldSchema, MessageSchema, all_messages, struct

# Lines of generated code
# -----------------------

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

    def packed(self, letters: str) -> tuple[str, packing.Struct]:
        """The name of a Struct for these letters, and the Struct."""
        packer = packing.Struct(f">{letters}")
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


# Decoders
# --------

Decoder: TypeAlias = Callable[[Frame, int], tuple[Any, int]]

MAX_ELEMENTS = 1_000_000
MAX_TAGS = 100_000
LONGEST_VARINT = 5
"""Bytes of a 32-bit varint."""


class MessageReader(Protocol):
    """Reads a message at `position`. `end` is where the frame ends, if this is only how it begins."""

    def __call__(self, buffer: Frame, position: int = 0, end: int | None = None) -> tuple[Any, int]:
        """The message, and where it ends. Raises MalformedFrame, also when the beginning is too short to read it."""


class DecodeFailure(Exception):
    """What a decoder raises; the text says what is wrong with the field."""


class ListTooLong(DecodeFailure):
    """A list is longer than the table of limits allows."""


class RequestTooLong(MalformedFrame):
    """The request is one, but lists more than is taken; nothing was built of the list."""


INTEGERS = ("int32", "int64")
"""Arrays of these are packed as a whole."""


def make_decoder(message: MessageSchema, version: int) -> MessageReader:
    """A function of a frame and a position that returns the message and where it ends; raises MalformedFrame."""
    names: dict[str, object] = {
        "Broken": DecodeFailure,
        "Excess": ListTooLong,
        "too_many": request_limits.describe_too_many,
        "uvarint": read_uvarint,
        "skip_tags": skip_tags,
        "unpack_ints": unpack_ints,
    }
    emit = CodeEmitter(message.name, version, names)
    with emit.block(message.name, "def f(b, p, end):"):
        limited = message.name.endswith("Request")
        if not limited:
            emit.line(message.name, f"room = {MAX_ELEMENTS}")
        emit.line(message.name, f"tags = {MAX_TAGS}")
        structs = DecoderWriter(emit, version in message.flexible, limited)
        structs.budgets(message.fields)
        structs.struct(message.name, message.fields, "m0")
        with emit.block(message.name, "if p > end:"):
            emit.line(message.name, "raise Broken('it ends too early')")
        emit.line(message.name, "return m0, p")
    raw = emit.function()

    def decode(buffer: Frame, position: int = 0, end: int | None = None) -> tuple[Any, int]:
        try:
            decoded: tuple[Any, int] = raw(buffer, position, len(buffer) if end is None else end)
        except Exception as error:  # whatever hostile bytes lead to
            text = str(error) if isinstance(error, DecodeFailure) else explain_failure(error)
            if isinstance(error, ListTooLong):
                raise RequestTooLong(f"{emit.title}: {text}") from error
            raise MalformedFrame(f"{emit.title}, {emit.failing(error)}: {text}") from error
        return decoded

    return decode


def explain_failure(error: Exception) -> str:
    return "it is no UTF-8" if isinstance(error, UnicodeDecodeError) else "the frame ends too early"


class DecoderWriter:
    """Emits the reading of structs, fields and arrays; runs of fixed size are read by one call."""

    def __init__(self, emit: CodeEmitter, flexible: bool, limited: bool) -> None:
        self._emit = emit
        self._flexible = flexible
        self._limited = limited
        self._left: dict[str, str] = {}

    def budgets(self, fields: list[FieldSchema]) -> None:
        """Of each list of a request, how many entries the whole request may still have."""
        for one in fields_in_version(fields, self._emit.version) if self._limited else ():
            if one.array:
                name = self._left[one.path] = f"left{len(self._left)}"
                self._emit.line(one.path, f"{name} = {request_limits.max_entries(one.path)}")
            self.budgets(one.fields)

    def struct(self, path: str, fields: list[FieldSchema], target: str) -> None:
        emit, kind = self._emit, struct(path)
        name = emit.constant("c", kind)
        emit.names["new"] = object.__new__
        emit.line(path, f"{target} = new({name})")
        body = fields_in_version(fields, emit.version)
        in_message = {one.name for one in body}
        for one in fields:
            if one.name not in in_message:
                emit.line(one.path, f"{target}.{one.name} = {one.default!r}")
        self._body(body, target)
        if self._flexible:
            self._tags(path, tagged_fields(fields, emit.version), target)

    def _body(self, body: list[FieldSchema], target: str) -> None:
        """Fixed fields are gathered; an old-style length that follows them is read with them."""
        run: list[FieldSchema] = []
        for one in body:
            if has_fixed_size(one):
                run.append(one)
                continue
            if self._compact(one) or (one.type == STRUCT and not one.array):
                self._run(run, target, "")
                self._value(one, target, self._read_compact_length)
            else:
                length = "h" if one.type == "string" and not one.array else "i"
                self._run(run, target, length, one.path)
                self._value(one, target, lambda path: None)
            run = []
        self._run(run, target, "")

    def _run(self, run: list[FieldSchema], target: str, length: str, path: str = "") -> None:
        if not run and not length:
            return
        name, packer = self._emit.packed("".join(FIXED[one.type] for one in run) + length)
        targets = [f"{target}.{one.name}" for one in run] + (["n"] if length else [])
        where = run[0].path if run else path
        self._emit.line(where, f"{', '.join(targets)}, = {name}.unpack_from(b, p)")
        self._emit.line(where, f"p += {packer.size}")

    def _value(self, one: FieldSchema, target: str, read_length: Callable[[str], None]) -> None:
        """One field of variable size; its length is in `n` once `read_length` has emitted its lines."""
        if one.type == STRUCT and not one.array:
            self._single(one, target)
            return
        read_length(one.path)
        emit = self._emit
        with emit.block(one.path, "if n < 0:"):
            if emit.version in one.nullable:
                emit.line(one.path, f"{target}.{one.name} = None")
            else:
                emit.line(one.path, "raise Broken('it is null, which it must not be')")
        with emit.block(one.path, "else:"):
            if one.array:
                self._array(one, target)
            else:
                self._bytes(one, f"{target}.{one.name}")

    def _single(self, one: FieldSchema, target: str) -> None:
        """A struct that is no array: where it may be null, a byte before it says so."""
        emit, inner = self._emit, f"m{self._emit.number()}"
        if emit.version not in one.nullable:
            self.struct(one.path, one.fields, inner)
            emit.line(one.path, f"{target}.{one.name} = {inner}")
            return
        emit.line(one.path, "n = b[p]")
        emit.line(one.path, "p += 1")
        with emit.block(one.path, "if n == 255:"):
            emit.line(one.path, f"{target}.{one.name} = None")
        with emit.block(one.path, "elif n != 1:"):
            emit.line(one.path, "raise Broken('its first byte is neither 1 nor -1')")
        with emit.block(one.path, "else:"):
            self.struct(one.path, one.fields, inner)
            emit.line(one.path, f"{target}.{one.name} = {inner}")

    def _bytes(self, one: FieldSchema, target: str) -> None:
        emit = self._emit
        emit.line(one.path, "q = p + n")
        with emit.block(one.path, "if q > end:"):
            emit.line(one.path, "raise Broken('the frame ends too early')")
        taken = {"string": "b[p:q].decode()", "bytes": "bytes(b[p:q])", "records": "memoryview(b)[p:q]"}
        emit.line(one.path, f"{target} = {taken[one.type]}")
        emit.line(one.path, "p = q")

    def _array(self, one: FieldSchema, target: str) -> None:
        emit, number = self._emit, self._emit.number()
        beyond = "" if self._limited else " or n > room"
        with emit.block(one.path, f"if n * {self._least(one)} > end - p{beyond}:"):
            emit.line(one.path, "raise Broken(f'it announces {n} elements, more than the frame can hold')")
        if self._limited:
            self._spend(one)
        else:
            emit.line(one.path, "room -= n")
        if one.type in INTEGERS:
            emit.line(one.path, f"{target}.{one.name}, p = unpack_ints(b, p, n, {FIXED[one.type]!r})")
            return
        if one.type == "int8":
            emit.line(one.path, f"{target}.{one.name} = memoryview(b)[p : p + n].cast('b').tolist()")
            emit.line(one.path, "p += n")
            return
        emit.line(one.path, f"{target}.{one.name} = a{number} = []")
        with emit.block(one.path, f"for _{number} in range(n):"):
            if one.type == STRUCT:
                self.struct(one.path, one.fields, f"m{number}")
                emit.line(one.path, f"a{number}.append(m{number})")
            else:
                self._element(one)
                emit.line(one.path, f"a{number}.append(v)")

    def _spend(self, one: FieldSchema) -> None:
        """Take the list's entries from what is left for it."""
        left, most = self._left[one.path], request_limits.max_entries(one.path)
        with self._emit.block(one.path, f"if n > {left}:"):
            told = one.path.partition(".")[2]
            self._emit.line(one.path, f"raise Excess(too_many({told!r}, {most} - {left} + n, {most}))")
        self._emit.line(one.path, f"{left} -= n")

    def _element(self, one: FieldSchema) -> None:
        """One string of an array of strings."""
        emit = self._emit
        if self._flexible:
            self._read_compact_length(one.path)
        else:
            name, _ = emit.packed("h")
            emit.line(one.path, f"n, = {name}.unpack_from(b, p)")
            emit.line(one.path, "p += 2")
        with emit.block(one.path, "if n < 0:"):
            emit.line(one.path, "raise Broken('an element is null, which it must not be')")
        self._bytes(one, "v")

    def _tags(self, path: str, fields: list[FieldSchema], target: str) -> None:
        """Tagged fields in ascending order; those that nobody knows are passed over (KIP-482)."""
        emit = self._emit
        for one in fields:
            emit.line(one.path, f"{target}.{one.name} = {one.default!r}")
        if not fields:
            with emit.block(path, "if b[p]:"):
                emit.line(path, "p, tags = skip_tags(b, p, end, tags)")
            with emit.block(path, "else:"):
                emit.line(path, "p += 1")
            return
        number = emit.number()
        emit.line(path, f"t{number}, p = uvarint(b, p)")
        with emit.block(path, f"if t{number} > tags:"):
            emit.line(path, f"raise Broken(f'it announces {{t{number}}} tagged fields, more than are taken')")
        emit.line(path, f"tags -= t{number}")
        emit.line(path, f"l{number} = -1")
        with emit.block(path, f"for _{number} in range(t{number}):"):
            emit.line(path, "n, p = uvarint(b, p)")
            with emit.block(path, f"if n <= l{number}:"):
                emit.line(path, "raise Broken(f'tag {n} is out of order')")
            emit.line(path, f"l{number} = g{number} = n")
            emit.line(path, "n, p = uvarint(b, p)")
            emit.line(path, f"e{number} = p + n")
            with emit.block(path, f"if e{number} > end:"):
                emit.line(path, "raise Broken('the frame ends within a tagged field')")
            for one in fields:
                with emit.block(one.path, f"if g{number} == {one.tag}:"):
                    self._body([one], target)
                    with emit.block(one.path, f"if p != e{number}:"):
                        emit.line(one.path, "raise Broken('it is not as long as its tag says')")
            emit.line(path, f"p = e{number}")

    def _compact(self, one: FieldSchema) -> bool:
        return self._flexible and one.flexible

    def _read_compact_length(self, path: str) -> None:
        """Lengths are sent plus one, so that 0 is null."""
        emit = self._emit
        emit.line(path, "n = b[p]")
        with emit.block(path, "if n < 128:"):
            emit.line(path, "p += 1")
        with emit.block(path, "else:"):
            emit.line(path, "n, p = uvarint(b, p)")
        emit.line(path, "n -= 1")

    def _least(self, one: FieldSchema) -> int:
        """The fewest bytes that an element can take."""
        if one.type == STRUCT:
            own = sum(self._least_of(each) for each in fields_in_version(one.fields, self._emit.version))
            return max(own + self._flexible, 1)
        return {"int64": 8, "int32": 4, "int8": 1}.get(one.type, 2 - self._flexible)

    def _least_of(self, one: FieldSchema) -> int:
        if one.array or one.type != STRUCT:
            fixed = not one.array and one.type in FIXED
            return self._emit.packed(FIXED[one.type])[1].size if fixed else self._length_size(one)
        if self._emit.version in one.nullable:
            return 1
        return sum(map(self._least_of, fields_in_version(one.fields, self._emit.version))) + self._flexible

    def _length_size(self, one: FieldSchema) -> int:
        if self._compact(one):
            return 1
        return 2 if one.type == "string" and not one.array else 4


def read_uvarint(b: Frame, p: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits, and the position behind it."""
    value = 0
    for shift in range(0, 7 * LONGEST_VARINT, 7):
        byte = b[p]
        p += 1
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0xFFFFFFFF:
                break
            return value, p
    raise DecodeFailure("its length is not a varint of 32 bits")


def skip_tags(b: Frame, p: int, end: int, room: int) -> tuple[int, int]:
    """The position behind tagged fields of which none is known here, and the room that is left."""
    count, p = read_uvarint(b, p)
    if count > room:
        raise DecodeFailure(f"it announces {count} tagged fields, more than are taken")
    last = -1
    for _ in range(count):
        tag, p = read_uvarint(b, p)
        if tag <= last:
            raise DecodeFailure(f"tag {tag} is out of order")
        last = tag
        size, p = read_uvarint(b, p)
        p += size
        if p > end:
            raise DecodeFailure("the frame ends within a tagged field")
    return p, room - count


def unpack_ints(b: Frame, p: int, count: int, letter: str = "i") -> tuple[list[int], int]:
    """`count` integers of the size that the letter stands for, and the position behind them."""
    q = p + packing.calcsize(f">{letter}") * count
    return list(packing.unpack(f">{count}{letter}", b[p:q])), q


# Encoders
# --------

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
            if cuts:
                return join_parts(parts, cuts)
            return [b"".join(parts) if len(parts) <= JOINED_AT_ONCE else join_in_runs(parts)]
        except Exception as error:
            raise Unencodable(f"{emit.title}, {emit.failing(error)}: {error}") from error

    return encode


JOINED_AT_ONCE = 20_000
"""Parts, in a millisecond: while they are joined, the interpreter lets no other thread run, the loop's neither."""


def join_in_runs(parts: list[Buffer]) -> bytes:
    """A large answer's parts as one, while other threads have their turns."""
    starts = range(0, len(parts), JOINED_AT_ONCE)
    return b"".join([b"".join(parts[start : start + JOINED_AT_ONCE]) for start in starts])


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
        if one.type in INTEGERS:
            emit.names["pack_ints"] = pack_ints
            emit.line(one.path, f"a(pack_ints({value}, {FIXED[one.type]!r}))")
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


def pack_ints(values: Sequence[int], letter: str = "i") -> bytes:
    return packing.pack(f">{len(values)}{letter}", *values)


# Decode and encode by name and version
# -------------------------------------

__all__ = ["MalformedFrame", "Unencodable", "decode", "decode_frame", "encode", "is_flexible", "struct"]


def decode(name: str, version: int, buffer: Frame, position: int = 0) -> tuple[Any, int]:
    """Read the message `name` at `position` and return it with the position behind it. Raises MalformedFrame.

    >>> decode("HeartbeatResponse", 1, bytes(4) + b"\\0\\x1b")
    (HeartbeatResponse(throttle_time_ms=0, error_code=27), 6)
    """
    return decoder_of(name, version)(buffer, position)


def decode_frame(name: str, version: int, buffer: Frame, position: int = 0) -> Any:
    """Read a message that ends where the frame ends. Raises MalformedFrame."""
    message, end = decoder_of(name, version)(buffer, position)
    if end != len(buffer):
        raise MalformedFrame(f"{name} version {version}: {len(buffer) - end} bytes follow it; expected none")
    return message


def encode(name: str, version: int, message: object) -> list[Buffer]:
    """Write a message. One buffer, or several when it holds record batches: those are not copied. Raises Unencodable.

    >>> encode("HeartbeatResponse", 1, struct("HeartbeatResponse")(error_code=27))[0].hex()
    '00000000001b'
    """
    return encoder_of(name, version)(message)


def is_flexible(name: str, version: int) -> bool:
    """Whether this version has tagged fields, in its header too (KIP-482)."""
    return version in message_of(name, version).flexible


@cache
def decoder_of(name: str, version: int) -> MessageReader:
    return make_decoder(message_of(name, version), version)


@cache
def encoder_of(name: str, version: int) -> Encoder:
    return make_encoder(message_of(name, version), version)


def message_of(name: str, version: int) -> MessageSchema:
    found = all_messages().get(name)
    if found is None:
        raise LookupError(f"{name!r} is not a message of the schema; expected such as 'HeartbeatRequest'")
    if version not in found.versions:
        raise LookupError(f"{name} is known in versions {found.versions[0]} to {found.versions[-1]}, not {version}")
    return found
