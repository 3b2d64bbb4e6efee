"""The primitive fields of Kafka's record schemas: big-endian numbers, strings and bytes, plain and compact.

Plain strings carry an int16 length, plain bytes an int32 length, -1 for null. From a schema's first flexible version
on lengths are "compact": an unsigned varint of length + 1, 0 for null, and every struct ends with tagged fields
(KIP-482).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from struct import Struct
from struct import error as StructError

MAX_STRING_BYTES = 32_767
"""The longest plain string, in UTF-8 bytes. Edges refuse longer ids before they reach a shard."""

INT8 = Struct(">b")
INT16 = Struct(">h")
INT32 = Struct(">i")
INT64 = Struct(">q")


class MalformedRecord(ValueError):
    """Bytes that no version of their schema explains. The message says where the reading stopped and why."""


class UnknownVersion(MalformedRecord):
    """A version of their schema that is not known here."""

    def __init__(self, version: int, newest: int) -> None:
        super().__init__(f"value version {version}; this node reads 0 to {newest}")


@dataclass(frozen=True, slots=True)
class SkippedRecord:
    """A record of a kind that this node does not keep; `kind` names it."""

    kind: str


class FieldReader:
    """Reads fields from left to right. Every shortage or contradiction raises MalformedRecord."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self.compact = False

    @property
    def left(self) -> int:
        return len(self._data) - self._at

    def int8(self) -> int:
        return self._number(INT8)

    def int16(self) -> int:
        return self._number(INT16)

    def int32(self) -> int:
        return self._number(INT32)

    def int64(self) -> int:
        return self._number(INT64)

    def string(self) -> str:
        """A string that must not be null."""
        text = self.nullable_string()
        if text is None:
            raise MalformedRecord(f"null at byte {self._at}; expected a string")
        return text

    def nullable_string(self) -> str | None:
        length = self._varint() - 1 if self.compact else self._number(INT16)
        if length == -1:
            return None
        try:
            return str(self._take(length), "utf-8")
        except UnicodeDecodeError as error:
            raise MalformedRecord(f"string before byte {self._at} is not UTF-8: {error.reason}") from error

    def blob(self) -> bytes:
        """Bytes that must not be null."""
        length = self._varint() - 1 if self.compact else self._number(INT32)
        if length == -1:
            raise MalformedRecord(f"null at byte {self._at}; expected bytes")
        return self._take(length)

    def count(self) -> int:
        """The length of an array that must not be null; never more than the bytes left could hold."""
        number = self.nullable_count()
        if number is None:
            raise MalformedRecord(f"array of -1 elements at byte {self._at} with {self.left} bytes left")
        return number

    def nullable_count(self) -> int | None:
        """The length of an array, None for null; never more than the bytes left could hold."""
        number = self._varint() - 1 if self.compact else self._number(INT32)
        if number == -1:
            return None
        if not 0 <= number <= self.left:
            raise MalformedRecord(f"array of {number} elements at byte {self._at} with {self.left} bytes left")
        return number

    def uuid(self) -> bytes:
        return self._take(16)

    def varint(self) -> int:
        return self._varint()

    def tags(self) -> dict[int, bytes]:
        """A struct's tagged fields by their number, unread."""
        found: dict[int, bytes] = {}
        for _ in range(self._varint()):
            tag = self._varint()
            found[tag] = self._take(self._varint())
        return found

    def skip_tags(self) -> None:
        """Pass over a struct's tagged fields: none that we know changes what we keep."""
        for _ in range(self._varint()):
            self._varint()
            self._take(self._varint())

    def end(self) -> None:
        """The data must be used up: what follows a known version's last field is damage, not a feature."""
        if self.left:
            raise MalformedRecord(f"{self.left} bytes after the last field at byte {self._at}")

    def _number(self, layout: Struct) -> int:
        start = self._at
        self._at = start + layout.size
        try:
            number: int = layout.unpack_from(self._data, start)[0]
        except StructError:
            raise MalformedRecord(
                f"field of {layout.size} bytes at byte {start} with {len(self._data) - start} bytes left"
            ) from None
        return number

    def _varint(self) -> int:
        byte = self._take(1)[0]
        if byte < 0x80:
            return byte
        number = byte & 0x7F
        for shift in range(7, 35, 7):
            byte = self._take(1)[0]
            number |= (byte & 0x7F) << shift
            if byte < 0x80:
                return number
        raise MalformedRecord(f"varint before byte {self._at} is longer than 5 bytes")

    def _take(self, length: int) -> bytes:
        start = self._at
        end = start + length
        if not start <= end <= len(self._data):
            raise MalformedRecord(f"field of {length} bytes at byte {start} with {len(self._data) - start} bytes left")
        self._at = end
        return self._data[start:end]


def plain_string(text: str | None) -> bytes:
    """Raises ValueError when the text is over MAX_STRING_BYTES or holds a lone surrogate."""
    if text is None:
        return INT16.pack(-1)
    raw = text.encode()
    if len(raw) > MAX_STRING_BYTES:
        raise ValueError(
            f"string of {len(raw)} bytes ({text[:40]!r}...) cannot be stored; the format allows {MAX_STRING_BYTES}"
        )
    return INT16.pack(len(raw)) + raw


def compact_string(text: str | None) -> bytes:
    if text is None:
        return varint(0)
    raw = text.encode()
    return varint(len(raw) + 1) + raw


def compact_bytes(data: bytes) -> bytes:
    return varint(len(data) + 1) + data


def compact_array(elements: Sequence[bytes]) -> bytes:
    return varint(len(elements) + 1) + b"".join(elements)


def tagged(fields: Mapping[int, bytes]) -> bytes:
    """A struct's tagged fields, by rising number."""
    parts = [varint(tag) + varint(len(data)) + data for tag, data in sorted(fields.items())]
    return varint(len(parts)) + b"".join(parts)


def varint(number: int) -> bytes:
    """An unsigned varint, seven bits a byte, lowest first.

    >>> varint(300).hex()
    'ac02'
    """
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)
