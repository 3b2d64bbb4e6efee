"""How staged records and decisions about them lie on disk: frames of record batches, and one small file per sink.

A frame is topic, partition and record batches as a producer sends them. A sink's file is a line of JSON and its
CRC-32C; it is replaced as a whole.
"""

import json
import re
import struct
from collections.abc import Iterator
from typing import NamedTuple

from crc32c import crc32c
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from muster.storage.errors import CorruptMessage, DataDirectoryError, InvalidRequest
from muster.storage.files import File, Files, read_file, replace_file
from muster.storage.records.batch import ATTRIBUTES_AT, CRC_AT, read_batches
from muster.storage.types import TopicPartition

_FRAME = struct.Struct(">HiI")
_CRC = struct.Struct(">I")
_PRODUCER = struct.Struct(">qhi")
_PRODUCER_AT = 43
_LEGAL = re.compile(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,199}")
STATE = "sink.json"


class StagedTarget(BaseModel):
    """Where a decided batch goes in one partition: nothing of it lies before `offset`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    topic: str
    topic_id: str
    partition: int = Field(ge=0)
    offset: int = Field(ge=0)
    sequence: int = Field(ge=0)

    @property
    def tp(self) -> TopicPartition:
        return self.topic, self.partition


class StagingDecision(BaseModel):
    """The attempts that count for a batch, by name and size. It stands from the moment it is on disk."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch: int = Field(ge=0)
    attempts: dict[str, int]
    targets: tuple[StagedTarget, ...]


class SinkState(BaseModel):
    """What is durable of one sink: the last batch that is in the log whole, and one that is decided but may not be."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    batch: int = -1
    producer_id: int = Field(ge=0)
    decision: StagingDecision | None = None


class Frame(NamedTuple):
    """Record batches of one partition, staged with one call; `at` is where they lie in their file."""

    tp: TopicPartition
    at: int
    size: int


def check_path_name(what: str, name: str) -> None:
    """InvalidRequest unless the name may be part of a path."""
    if not _LEGAL.fullmatch(name):
        raise InvalidRequest(
            f"The {what} is {name!r}; expected 1 to 200 of a-z, A-Z, 0-9, '.', '_' and '-', and no '.' in front."
        )


def frame_batches(tp: TopicPartition, batches: bytes | memoryview) -> tuple[bytes, bytes | memoryview]:
    topic = tp[0].encode()
    return _FRAME.pack(len(topic), tp[1], len(batches)) + topic, batches


def read_frames(file: File, size: int, path: str) -> Iterator[Frame]:
    """The frames in the first `size` bytes of a file, without their records."""
    at = 0
    while at < size:
        head = file.read(_FRAME.size, at)
        length, partition, records = _FRAME.unpack(head) if len(head) == _FRAME.size else (0, 0, 0)
        at += _FRAME.size
        topic = file.read(length, at).decode(errors="replace")
        at += length
        if not length or at + records > size:
            raise CorruptMessage(f"{path} is damaged near byte {at}: a frame does not fit. Restore it from a copy.")
        yield Frame((topic, partition), at, records)
        at += records


def seal_for_producer(batches: bytes, skip: int, producer_id: int, sequence: int) -> tuple[bytes, int, int]:
    """The batches behind the first `skip`, numbered for a producer: bytes, how many batches, how many records."""
    out: list[bytearray] = []
    records = 0
    for place, batch in enumerate(read_batches(batches)):
        if place < skip:
            continue
        data = bytearray(batch.data)
        _PRODUCER.pack_into(data, _PRODUCER_AT, producer_id, 0, (sequence + records) & 0x7FFFFFFF)
        _CRC.pack_into(data, CRC_AT, crc32c(memoryview(data)[ATTRIBUTES_AT:]))
        out.append(data)
        records += batch.count
    return b"".join(out), len(out), records


def save_sink_state(files: Files, path: str, state: SinkState) -> None:
    line = json.dumps(state.model_dump(), sort_keys=True)
    replace_file(files, f"{path}/{STATE}", f"{line}\n{crc32c(line.encode())}\n".encode())


def load_sink_state(files: Files, path: str) -> SinkState | None:
    """The state of the sink in this folder; None when it never came to a decision; DataDirectoryError when damaged."""
    name = f"{path}/{STATE}"
    if not files.exists(name):
        return None
    try:
        line, crc, _ = read_file(files, name).decode().split("\n")
        if int(crc) != crc32c(line.encode()):
            raise ValueError("its checksum does not match")
        return SinkState.model_validate_json(line)
    except (ValueError, ValidationError) as error:
        raise DataDirectoryError(
            f"The state of a sink, {name}, is damaged: {error}. Restore it from a copy; without it, a batch that its "
            "writer sends again would be written twice."
        ) from None
