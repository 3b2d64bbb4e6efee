"""What the demo produces: lines of a file, or of every source file of this Python's standard library."""

import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from muster.cli.common.errors import CommandError, Exit

MAX_LINE_BYTES = 64 << 10
"""Longer lines are refused by name: a demo is no way to test message.max.bytes."""


class SourceLine(NamedTuple):
    key: bytes | None
    value: bytes


class LineSource(NamedTuple):
    """Where lines come from, in words and as an iterator that can be made again."""

    description: str
    keyed_by: str
    files: tuple[Path, ...]
    pattern: re.Pattern[bytes] | None

    def lines(self) -> Iterator[SourceLine]:
        """Every line, without its end; the key is the expression's first group, or the file's name."""
        for file in self.files:
            name = file_key(file, self.files)
            for number, value in enumerate(read_whole_lines(file), start=1):
                if len(value) > MAX_LINE_BYTES:
                    raise CommandError(
                        f"{file}:{number} has {len(value)} bytes",
                        f"expected at most {MAX_LINE_BYTES} a line",
                        "cut the line, or choose another --input",
                        code=Exit.USAGE,
                    )
                yield SourceLine(key_of(value, self.pattern) if self.pattern else name, value)


def choose_source(file: Path | None, key_regex: str | None) -> LineSource:
    """The demo's input. Raises CommandError when FILE cannot be read or the expression is none."""
    pattern = compile_expression(key_regex) if key_regex is not None else None
    keyed_by = f"what matches {key_regex}" if key_regex is not None else "file"
    if file is None:
        files = standard_library_files()
        return LineSource(f"{len(files)} source files of the Python standard library", keyed_by, files, pattern)
    try:
        with file.open("rb") as opened:
            empty = not opened.read(1)
    except OSError as error:
        raise CommandError(
            f"cannot read {file}: {error.strerror}", "expected a readable text file", "check --input", code=Exit.USAGE
        ) from error
    if empty:
        raise CommandError(f"{file} is empty", "expected at least one line", "choose another --input", code=Exit.USAGE)
    return LineSource(str(file), keyed_by, (file,), pattern)


def compile_expression(expression: str) -> re.Pattern[bytes]:
    """A regular expression over bytes. Raises CommandError."""
    try:
        return re.compile(expression.encode(errors="surrogateescape"))
    except re.error as error:
        raise CommandError(
            f"{expression!r} is no regular expression ({error})",
            r"expected one such as 'sshd\[(\d+)\]', whose first group is the key",
            "check --key-regex",
            code=Exit.USAGE,
        ) from error


def key_of(line: bytes, pattern: re.Pattern[bytes]) -> bytes | None:
    r"""The first group (or, without groups, the whole match); None where nothing matches.

    >>> key_of(b"sshd[24200]: closed", re.compile(rb"sshd\[(\d+)\]"))
    b'24200'
    """
    found = pattern.search(line)
    if found is None:
        return None
    return found.group(1) if pattern.groups else found.group()


def standard_library_files() -> tuple[Path, ...]:
    """Its .py files, in a fixed order; what pip added beside them does not belong to it."""
    root = Path(sysconfig.get_path("stdlib"))
    foreign = {"site-packages", "dist-packages", "__pycache__"}
    return tuple(
        sorted(
            path for path in root.rglob("*.py") if path.is_file() and foreign.isdisjoint(path.relative_to(root).parts)
        )
    )


def file_key(file: Path, files: tuple[Path, ...]) -> bytes | None:
    """A single file's name would put every line into one partition: without an expression its lines have no key."""
    if len(files) == 1:
        return None
    root = Path(sysconfig.get_path("stdlib"))
    return str(file.relative_to(root)).encode(errors="surrogateescape")


def read_whole_lines(file: Path) -> Iterator[bytes]:
    with file.open("rb") as opened:
        for line in opened:
            yield line.rstrip(b"\r\n")
