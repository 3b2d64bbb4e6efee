"""Distinguished names as text: RFC 2253 as Java's `X500Principal.getName()` writes it, by which Kafka names users.

Read from DER here, because the text depends on the exact bytes: a value that is no string, or whose attribute has no
keyword in RFC 2253, is written as its object identifier and the value's bytes.
"""

from collections.abc import Iterator
from typing import Final

KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.25": "DC",
    "0.9.2342.19200300.100.1.1": "UID",
}
SEQUENCE, SET, OBJECT_IDENTIFIER = 0x30, 0x31, 0x06
STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""UTF8, Printable, Teletex, IA5, General, BMP: Java takes the bytes of each for UTF-8. Where they are none it puts a
replacement character, by which two subjects would be one: such a name is refused here."""

ESCAPED: Final = frozenset(',=+<>#;"\\')


class MalformedName(ValueError):
    """These bytes are no distinguished name."""


def format_rfc2253(der: bytes) -> str:
    """The text of an X.501 Name in DER. Raises MalformedName.

    >>> format_rfc2253(bytes.fromhex("301d310b3009060355040613024445310e300c06035504030c05612c622b63"))
    'CN=a\\\\,b\\\\+c,C=DE'
    """
    parts = []
    for tag, content in read_elements(read_single_element(der, SEQUENCE)):
        if tag != SET:
            raise MalformedName("a part of the name is not a set")
        parts.append("+".join(format_attribute(pair) for _, pair in read_elements(content)))
    return ",".join(reversed(parts))


def format_attribute(pair: bytes) -> str:
    """One KEYWORD=value, or OID=#bytes."""
    read = list(read_elements(pair))
    if len(read) != 2 or read[0][0] != OBJECT_IDENTIFIER:
        raise MalformedName("an attribute of the name is not a pair of an identifier and a value")
    (_, identifier), (tag, content) = read
    number = format_object_identifier(identifier)
    name = KEYWORDS.get(number, number)
    if number not in KEYWORDS or tag not in STRINGS:
        return f"{name}=#{encode_element(tag, content).hex()}"
    try:
        return f"{name}={escape_value(content.decode())}"
    except UnicodeDecodeError as error:
        raise MalformedName(f"the value of {name} is not text: {error.reason}") from error


def escape_value(text: str) -> str:
    """Backslashes before what has a meaning, and before spaces at both ends."""
    inner = text.strip(" ")
    before = len(text) - len(text.lstrip(" "))
    after = len(text) - before - len(inner)
    middle = "".join(f"\\{char}" if char in ESCAPED else "\\00" if char == "\0" else char for char in inner)
    return "\\ " * before + middle + "\\ " * after


def read_elements(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of each element, one after the other."""
    at = 0
    while at < len(data):
        tag, begin, at = read_element(data, at)
        yield tag, data[begin:at]


def read_element(data: bytes, at: int) -> tuple[int, int, int]:
    """Tag, where the content begins, and where it ends."""
    try:
        tag, size = data[at], data[at + 1]
    except IndexError:
        raise MalformedName("the name ends in the middle of an element") from None
    begin = at + 2
    if size & 0x80:
        digits = size & 0x7F
        if not 0 < digits <= 4:
            raise MalformedName("an element of the name has no length")
        size = int.from_bytes(data[begin : begin + digits])
        begin += digits
    if begin + size > len(data):
        raise MalformedName("an element of the name is longer than the name")
    return tag, begin, begin + size


def encode_element(tag: int, content: bytes) -> bytes:
    size = len(content)
    if size < 0x80:
        return bytes((tag, size)) + content
    digits = (size.bit_length() + 7) // 8
    return bytes((tag, 0x80 | digits)) + size.to_bytes(digits) + content


def read_single_element(data: bytes, wanted: int) -> bytes:
    """The content of the one element that these bytes are."""
    tag, begin, end = read_element(data, 0)
    if tag != wanted or end != len(data):
        raise MalformedName("these bytes are no name")
    return data[begin:end]


def format_object_identifier(identifier: bytes) -> str:
    """
    >>> format_object_identifier(bytes.fromhex("2a864886f70d010901")), format_object_identifier(bytes.fromhex("550403"))
    ('1.2.840.113549.1.9.1', '2.5.4.3')
    """
    numbers, number = [], 0
    for byte in identifier:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or identifier[-1] & 0x80:
        raise MalformedName("an attribute of the name has no identifier")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))
