"""Clients of Kafka's protocol as load: one that does nothing but move bytes, one request again and again on a blocking
socket, so that a node in its way is seen as large as it can be; and librdkafka's, which most programs have.
"""

import socket
import time
from collections.abc import Sequence
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import decode_frame, encode, struct
from muster.coordinator.kafka.connections.frames import HEAD, LENGTH_BYTES
from muster.workshop.bench.line import KEYS
from muster.workshop.bench.processes import BenchFailed

FETCH, PRODUCE = 11, 8
"""The last versions whose headers have no tagged fields."""

PARTITION_BYTES: Final = 1 << 20
"""Of one partition in one answer: what consumers ask for where nobody says otherwise."""

BUFFER_BYTES: Final = 1 << 23
ANSWER_S: Final = 60.0
AT_ONCE: Final = 5_000
"""Records that a consumer is asked for."""

AHEAD: Final = 2
"""Produce requests under way before an answer is waited for."""


def fetch_bytes(address: str, topic: str, partitions: int, wanted: int) -> float:
    """Bytes a second of at least `wanted` bytes, each time from the beginning of all partitions."""
    part, named = struct("FetchRequest.topics.partitions"), struct("FetchRequest.topics")
    parts = [part(partition=each, fetch_offset=0, partition_max_bytes=PARTITION_BYTES) for each in range(partitions)]
    topics = [named(topic=topic, partitions=parts)]
    asked = struct("FetchRequest")(
        replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=BUFFER_BYTES, session_epoch=-1, topics=topics
    )
    request, got = encode_frame("Fetch", FETCH, asked), 0
    with connect_socket(address) as line:
        buffer = memoryview(bytearray(BUFFER_BYTES))
        began = time.perf_counter()
        while got < wanted:
            line.sendall(request)
            size = read_answer(line, buffer)
            if not got and size < PARTITION_BYTES:
                raise BenchFailed(f"a Fetch of {topic!r} at {address} was answered with {size} bytes: no records")
            got += size
        return got / (time.perf_counter() - began)


def produce_bytes(address: str, topic: str, partitions: int, batch: bytes, wanted: int) -> float:
    """Bytes a second of at least `wanted` bytes: a batch for each partition in a request, acks=1."""
    data, named = struct("ProduceRequest.topic_data.partition_data"), struct("ProduceRequest.topic_data")
    told = [named(name=topic, partition_data=[data(index=each, records=batch) for each in range(partitions)])]
    request = encode_frame("Produce", PRODUCE, struct("ProduceRequest")(acks=1, timeout_ms=30_000, topic_data=told))
    sent = ahead = 0
    with connect_socket(address) as line:
        buffer = memoryview(bytearray(1 << 16))
        began = time.perf_counter()
        while sent < wanted or ahead:
            if sent < wanted:
                line.sendall(request)
                sent, ahead = sent + len(request), ahead + 1
            if ahead > AHEAD or sent >= wanted:
                size, ahead = read_answer(line, buffer), ahead - 1
                check_accepted(bytes(buffer[LENGTH_BYTES:size]), address)
        return sent / (time.perf_counter() - began)


def consume_bytes(address: str, topic: str, partitions: int, records: int, size: int) -> float:
    """Bytes a second of so many records of this size, from the beginning, by librdkafka's consumer."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": address, "group.id": "bulk", "enable.auto.commit": False})
    try:
        consumer.assign([TopicPartition(topic, each, 0) for each in range(partitions)])
        if not consumer.consume(1, ANSWER_S):
            raise BenchFailed(f"a consumer of {topic!r} at {address} read nothing within {ANSWER_S:.0f} s")
        read, began = 0, time.perf_counter()
        while read < records:
            found = len(consumer.consume(min(AT_ONCE, records - read), ANSWER_S))
            if not found:
                raise BenchFailed(f"a consumer of {topic!r} at {address} read {read} records, and no more")
            read += found
        return read * size / (time.perf_counter() - began)
    finally:
        consumer.close()


def connect_socket(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), ANSWER_S)


def encode_frame(name: str, version: int, message: Any) -> bytes:
    client = b"bulk"
    body = encode(f"{name}Request", version, message)
    head = HEAD.pack(KEYS[name], version, 1) + len(client).to_bytes(2, "big") + client
    return (len(head) + sum(map(len, body))).to_bytes(LENGTH_BYTES, "big") + head + b"".join(body)


def read_answer(line: socket.socket, buffer: memoryview) -> int:
    """Reads one, into the buffer as far as it has room; the bytes behind its length."""
    size = int.from_bytes(line.recv(LENGTH_BYTES, socket.MSG_WAITALL), "big")
    left = size
    while left:
        found = line.recv_into(buffer, min(left, len(buffer)))
        if not found:
            raise BenchFailed("the connection ended within an answer")
        left -= found
    return size


def check_accepted(body: bytes, address: str) -> None:
    """Raises BenchFailed for records that were refused."""
    answers: Sequence[Any] = decode_frame("ProduceResponse", PRODUCE, body).responses
    codes = {each.error_code for topic in answers for each in topic.partition_responses} - {0}
    if codes:
        raise BenchFailed(f"Produce at {address} was refused with the codes {sorted(codes)}")
