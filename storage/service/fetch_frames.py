"""Answers of fetches in protobuf's encoding, with their records copied once when written and never when read.

Setting a field of bytes copies it, putting one message into another copies it again, and so does looking at it. For
megabytes of records that costs more than the fetch itself, so here their bytes are set between those of small
messages. What goes over the wire is the same: protobuf lets the fields of a message come in any order.
https://protobuf.dev/programming-guides/encoding/
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from google.protobuf.message import DecodeError

from muster.storage.errors import CorruptMessage
from muster.storage.files import Buffer
from muster.storage.records.batch import read_unsigned
from muster.storage.rpc.v1 import broker_service_pb2 as pb

_RECORDS = pb.FetchPartitionResult.DESCRIPTOR.fields_by_name["records"].number
_RESULT = pb.MultiFetchResult.DESCRIPTOR.fields_by_name["result"].number
_RESULTS = pb.MultiFetchResponse.DESCRIPTOR.fields_by_name["results"].number
_PARTITIONS = pb.FetchTopicResult.DESCRIPTOR.fields_by_name["partitions"].number
_RESPONSES = pb.FetchResponse.DESCRIPTOR.fields_by_name["responses"].number

_VARINT, _FIXED64, _DELIMITED, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10


class FetchResultFrame(NamedTuple):
    """The answer for one partition; `result` is without its records."""

    topic: str
    result: pb.FetchPartitionResult
    records: Buffer


def fetch_response(topics: Iterable[tuple[str, Iterable[FetchResultFrame]]]) -> bytes:
    """A FetchResponse with a FetchTopicResult for each topic."""
    pieces: list[Buffer] = []
    for topic, parts in topics:
        inner: list[Buffer] = [pb.FetchTopicResult(topic=topic).SerializeToString()]
        for part in parts:
            inner += _delimited(_PARTITIONS, _result(part))
        pieces += _delimited(_RESPONSES, inner)
    return b"".join(pieces)


def multi_fetch_response(parts: Iterable[FetchResultFrame]) -> bytes:
    """A MultiFetchResponse with a MultiFetchResult for each part."""
    pieces: list[Buffer] = []
    for part in parts:
        topic = pb.MultiFetchResult(topic=part.topic).SerializeToString()
        pieces += _delimited(_RESULTS, [topic, *_delimited(_RESULT, _result(part))])
    return b"".join(pieces)


def _result(part: FetchResultFrame) -> list[Buffer]:
    head = part.result.SerializeToString()
    return [head, *_delimited(_RECORDS, [part.records])] if part.records else [head]


def _delimited(number: int, content: Sequence[Buffer]) -> list[Buffer]:
    return [_varint(number << 3 | _DELIMITED) + _varint(sum(map(len, content))), *content]


def _varint(value: int) -> bytes:
    """
    >>> _varint(127), _varint(300)
    (b'\\x7f', b'\\xac\\x02')
    """
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class MultiFetchFrames(NamedTuple):
    """A MultiFetchResponse whose records are views of the bytes that came."""

    parts: list[FetchResultFrame]

    @staticmethod
    def FromString(data: bytes) -> "MultiFetchFrames":
        """DecodeError when the bytes are no MultiFetchResponse."""
        try:
            results, rest = _split(memoryview(data), _RESULTS)
            pb.MultiFetchResponse.FromString(rest)
            return MultiFetchFrames([_read_part(content) for content in results])
        except (IndexError, CorruptMessage) as error:
            raise DecodeError(f"no MultiFetchResponse: {error}") from None


def _read_part(data: memoryview) -> FetchResultFrame:
    results, rest = _split(data, _RESULT)
    topic = pb.MultiFetchResult.FromString(rest).topic
    heads, records = [], memoryview(b"")
    # One, unless somebody wants to know whether fields given twice are merged as protobuf has it.
    for content in results:
        found, head = _split(content, _RECORDS)
        heads.append(head)
        records = found[-1] if found else records
    return FetchResultFrame(topic, pb.FetchPartitionResult.FromString(b"".join(heads)), records)


def _split(data: memoryview, wanted: int) -> tuple[list[memoryview], bytes]:
    """The contents of the fields of one number, and all other fields as they are, for protobuf to read."""
    contents, rest = [], []
    for number, content, whole in _located(data):
        if number == wanted:
            contents.append(content)
        else:
            rest.append(whole)
    return contents, b"".join(rest)


def _located(data: memoryview) -> Iterator[tuple[int, memoryview, memoryview]]:
    """Each field's number, its content, and the whole of it with tag and length; 0 for what has no length."""
    at, end = 0, len(data)
    while at < end:
        first = at
        tag, at = read_unsigned(data, at, _LONGEST_VARINT)
        begin = at
        match tag & 7:
            case kind if kind == _DELIMITED:
                size, begin = read_unsigned(data, at, _LONGEST_VARINT)
                at = begin + size
            case kind if kind == _VARINT:
                _, at = read_unsigned(data, at, _LONGEST_VARINT)
            case kind if kind == _FIXED64:
                at += 8
            case kind if kind == _FIXED32:
                at += 4
            case kind:
                raise CorruptMessage(f"A field at byte {first} has wire type {kind}, which is none of protobuf 3.")
        if at > end:
            raise CorruptMessage(f"A field at byte {first} ends at byte {at}, of {end}.")
        yield tag >> 3 if tag & 7 == _DELIMITED else 0, data[begin:at], data[first:at]
