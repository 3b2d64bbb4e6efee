"""Fast path for Produce requests with one batch for one partition, which librdkafka and its bindings send.

Such a request is read, and answered, in one step; all others are decoded by the schema, the general way.
tests/property/kafka/test_kafka_produce_reader.py holds both ways to the same bytes. A request for few partitions is
read on the event loop however large it is; a request that may be for many partitions is read in a thread.
"""

import struct as packing
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import DecodeFailure, Frame, decoder_of, read_uvarint, struct
from muster.storage.types import Appended

MESSAGE: Final = "ProduceRequest"
SINGLE_SINCE: Final = 9
"""The version whose requests for one partition are known by their bytes: the first flexible one."""

# No transactional id, acks, timeout, one topic, the length of its name; one partition, its index; then no tags.
_NO_ID, _ONE, _NO_TAGS = 0, 2, bytes(3)
_HEAD, _PLACE = packing.Struct(">BhiBB"), packing.Struct(">Bi")
_SHORT: Final = 128
"""Compact lengths below this one take one byte."""

FEW: Final = 100
"""Partitions whose part of a request takes no time to be read, some 0.2 ms altogether."""

# Before version 9: the length of a text, how many topics there are and the length of the first one's name, a count.
_SIZE, _TOPICS, _COUNT = packing.Struct(">h"), packing.Struct(">ih"), packing.Struct(">i")
_ACKS_AND_TIMEOUT: Final = 6

# One partition, its index, no error, base offset, append time, log start offset, no record errors, no message, no tags
# of the partition and of the topic, no throttle time, no tags.
_DONE = packing.Struct(">BihqqqBBxxix")


class SingleBatch:
    """A request that carries records for one partition, with the fields that any ProduceRequest has."""

    __slots__ = ("acks", "index", "records", "timeout_ms", "topic")

    transactional_id = None

    def __init__(self, acks: int, timeout_ms: int, topic: str, index: int, records: memoryview) -> None:
        self.acks = acks
        self.timeout_ms = timeout_ms
        self.topic = topic
        self.index = index
        self.records = records

    @property
    def topic_data(self) -> list[Any]:
        data = struct(f"{MESSAGE}.topic_data.partition_data")(index=self.index, records=self.records)
        return [struct(f"{MESSAGE}.topic_data")(name=self.topic, partition_data=[data])]

    def answer(self, result: Appended) -> bytes:
        """The ProduceResponse that tells of success, in the same version."""
        base, _, append_time, log_start = result
        name = self.topic.encode()
        done = _DONE.pack(_ONE, self.index, 0, base, append_time, log_start, 1, 0, 0)
        return b"%c%c%b%b" % (_ONE, len(name) + 1, name, done)


class ProduceReader:
    """Reads the requests of one version: a SingleBatch where it is one, or else the message."""

    __slots__ = ("_decode", "_version")

    def __init__(self, version: int) -> None:
        self._version = version
        self._decode = decoder_of(MESSAGE, version)

    def __call__(self, frame: Frame, position: int = 0) -> tuple[Any, int]:
        if self._version < SINGLE_SINCE:
            return self._decode(frame, position)
        try:
            single = read_single_batch(frame, position)
        except (IndexError, ValueError, packing.error, DecodeFailure):
            single = None  # what is wrong with it is for the decoder to say
        return self._decode(frame, position) if single is None else (single, len(frame))

    def brief(self, frame: Frame, position: int) -> bool:
        """Whether its records are for one topic, and for FEW partitions of it at most."""
        try:
            topics, partitions = read_first_counts(frame, position, self._version >= SINGLE_SINCE)
        except (IndexError, packing.error, DecodeFailure):
            return False
        return 0 <= topics <= 1 and 0 <= partitions <= FEW


def read_first_counts(frame: Frame, position: int, compact: bool) -> tuple[int, int]:
    """How many topics the request has, and how many partitions of its first."""
    if compact:
        size, position = read_uvarint(frame, position)
        topics, position = read_uvarint(frame, position + max(size - 1, 0) + _ACKS_AND_TIMEOUT)
        size, position = read_uvarint(frame, position)
        partitions, _ = read_uvarint(frame, position + max(size - 1, 0))
        return topics - 1, partitions - 1
    (size,) = _SIZE.unpack_from(frame, position)
    topics, size_of_name = _TOPICS.unpack_from(frame, position + _SIZE.size + max(size, 0) + _ACKS_AND_TIMEOUT)
    position += 2 * _SIZE.size + max(size, 0) + _ACKS_AND_TIMEOUT + _COUNT.size + max(size_of_name, 0)
    return topics, *_COUNT.unpack_from(frame, position)


def read_single_batch(frame: Frame, position: int) -> SingleBatch | None:
    """The request from `position` to the frame's end; None if it says more, or less, than one partition's records."""
    transactional_id, acks, timeout_ms, topics, length = _HEAD.unpack_from(frame, position)
    if transactional_id != _NO_ID or topics != _ONE or not 0 < length < _SHORT:
        return None
    begin = position + _HEAD.size
    end = begin + length - 1
    count, index = _PLACE.unpack_from(frame, end)
    size, start = read_uvarint(frame, end + _PLACE.size)
    if count != _ONE or not size or start + size - 1 != len(frame) - len(_NO_TAGS) or not frame.endswith(_NO_TAGS):
        return None
    return SingleBatch(acks, timeout_ms, frame[begin:end].decode(), index, memoryview(frame)[start : start + size - 1])
