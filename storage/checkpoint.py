"""Kafka's small text checkpoints: a version, a count, then one line of fields each.

Kafka's own have no checksum. Ours carry one as a last line that reads as an entry of a topic which cannot
exist, so that Kafka's tools still read the file and a flipped digit does not become an offset. In the same way a line
`#id/TOPIC/ID 0 0` says whose offsets these are: a topic of that name that was made anew has another id.
"""

import logging
from collections.abc import Iterable, Mapping

from crc32c import crc32c

from muster.storage.errors import DataDirectoryError
from muster.storage.files import Files, read_file, replace_file
from muster.storage.types import TopicPartition

_SEAL = "#checksum"
_ID = "#id"

logger = logging.getLogger("muster.storage")


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int], ids: Mapping[str, str]) -> None:
    """Replace the checkpoint with these offsets, crash-safely; `ids` are those of their topics."""
    lines = [(topic, str(partition), str(offset)) for (topic, partition), offset in sorted(offsets.items())]
    named = [name for name in dict.fromkeys(topic for topic, _ in sorted(offsets)) if name in ids]
    write_lines(files, path, [*lines, *((f"{_ID}/{name}/{ids[name]}", "0", "0") for name in named)])


def read_offsets(files: Files, path: str, ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint of the topics that have these `ids`; empty without a file.

    Offsets of another topic of the same name are left out. Where the file names no id, as older ones do not, the name
    has to do. DataDirectoryError when it is damaged.
    """
    offsets, owners = read_checkpoint(files, path)
    ours = {name for name, topic_id in ids.items() if owners.get(name, topic_id) == topic_id}
    return {tp: offset for tp, offset in offsets.items() if tp[0] in ours}


def read_trusted_offsets(files: Files, path: str, ids: Mapping[str, str]) -> dict[TopicPartition, int]:
    """`read_offsets`; one that is damaged is told of, and counts as empty."""
    try:
        return read_offsets(files, path, ids)
    except DataDirectoryError as error:
        logger.error("%s It is taken as empty.", error)
        return {}


def read_checkpoint(files: Files, path: str) -> tuple[dict[TopicPartition, int], dict[str, str]]:
    """All offsets in a checkpoint, and the ids of their topics as far as it names them."""
    offsets: dict[TopicPartition, int] = {}
    owners: dict[str, str] = {}
    for name, partition, offset in read_lines(files, path, 3):
        if name.startswith(_ID + "/"):
            _, topic, owners[topic] = name.split("/")
        else:
            offsets[name, int(partition)] = int(offset)
    return offsets, owners


def write_lines(
    files: Files, path: str, lines: Iterable[tuple[str, ...]], width: int = 3, *, sync: bool = True
) -> None:
    """Replace the checkpoint with these lines of `width` fields, crash-safely (see `replace_file`)."""
    body = [" ".join(line) for line in lines]
    seal = crc32c("\n".join(body).encode())
    last = " ".join((_SEAL, *["0"] * (width - 2), str(seal)))
    text = "\n".join(("0", str(len(body) + 1), *body, last)) + "\n"
    replace_file(files, path, text.encode(), sync=sync)


def read_lines(files: Files, path: str, width: int) -> list[tuple[str, ...]]:
    """The fields of each line; empty without a file; DataDirectoryError names what is wrong."""
    if not files.exists(path):
        return []
    try:
        text = read_file(files, path).decode()
        version, count, *rest = text.splitlines()
        lines = [tuple(line.split(" ")) for line in rest]
        whole = version == "0" and int(count) == len(lines) and all(len(line) == width for line in lines)
        whole = whole and text.endswith("\n")
        seal = lines.pop() if lines else ("",)
        whole = whole and seal[0] == _SEAL and int(seal[-1]) == crc32c("\n".join(rest[:-1]).encode())
    except ValueError:
        whole = False
    if not whole:
        raise DataDirectoryError(
            f"The checkpoint {path} is damaged: expected version 0, a count, as many lines of {width} fields "
            "and a matching checksum. "
            "Restore it from a copy, or remove it to have it rebuilt."
        )
    return lines
