"""Kafka's small text checkpoints: a version, a count, then one line of fields each.

Kafka's own have no checksum. Ours carry one as a last line that reads as an entry of a topic which cannot
exist, so that Kafka's tools still read the file and a flipped digit does not become an offset.
"""

from collections.abc import Iterable, Mapping

from crc32c import crc32c

from storage.errors import DataDirectoryError
from storage.files import Files, read_file, replace_file
from storage.types import TopicPartition

_SEAL = "#checksum"


def write_offsets(files: Files, path: str, offsets: Mapping[TopicPartition, int]) -> None:
    """Replace the checkpoint with these offsets, crash-safely."""
    lines = [(topic, str(partition), str(offset)) for (topic, partition), offset in sorted(offsets.items())]
    write_lines(files, path, lines)


def read_offsets(files: Files, path: str) -> dict[TopicPartition, int]:
    """The offsets in a checkpoint; empty when there is none; DataDirectoryError when it is damaged."""
    return {(topic, int(partition)): int(offset) for topic, partition, offset in read_lines(files, path, 3)}


def write_lines(files: Files, path: str, lines: Iterable[tuple[str, ...]], width: int = 3) -> None:
    """Replace the checkpoint with these lines of `width` fields, crash-safely."""
    body = [" ".join(line) for line in lines]
    seal = crc32c("\n".join(body).encode())
    last = " ".join((_SEAL, *["0"] * (width - 2), str(seal)))
    text = "\n".join(("0", str(len(body) + 1), *body, last)) + "\n"
    replace_file(files, path, text.encode())


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
