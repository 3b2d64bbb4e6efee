"""Kafka's messages to bytes and back. Each (message, version) is compiled when it is first met.

Messages are objects with one attribute per field, in snake_case; `struct` makes them, and any object with such
attributes can be encoded: what it lacks has the schema's default. Arrays are lists, record batches memoryviews of the
frame.
"""

from functools import cache
from typing import Any

from muster.coordinator.kafka.codec.decoding import MessageReader, make_decoder
from muster.coordinator.kafka.codec.emitter import Buffer, Frame, MalformedFrame, Unencodable
from muster.coordinator.kafka.codec.encoding import Encoder, make_encoder
from muster.coordinator.kafka.codec.messages import struct
from muster.coordinator.kafka.codec.notation import MessageSchema
from muster.coordinator.kafka.codec.schema_init import all_messages

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
        raise LookupError(f"{name!r} is no message of the schema; expected such as 'HeartbeatRequest'")
    if version not in found.versions:
        raise LookupError(f"{name} is known in versions {found.versions[0]} to {found.versions[-1]}, not {version}")
    return found
