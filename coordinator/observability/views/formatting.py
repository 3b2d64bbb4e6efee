"""How numbers, times and lists of names are written for people."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime

MAX_WORD = 255
"""Longer than any topic name and most paths."""
KEPT_OF_A_WORD = 40
NAMED = 3
"""So many names stand in a sentence; the others are counted."""


def host_and_port(host: str, port: int) -> str:
    """An address for people, and for who connects to it; of nodes' settings `config.addresses` has the same.

    >>> host_and_port("node-1", 9290), host_and_port("::1", 9290)
    ('node-1:9290', '[::1]:9290')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def spans(numbers: Iterable[int]) -> str:
    """Partition numbers, neighbours joined.

    >>> spans([7, 0, 1, 2, 4])
    '0-2,4,7'
    """
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 2 else ",".join(map(str, run)) for run in runs)


def duration(ms: float) -> str:
    """A length of time that is read at a glance.

    >>> duration(4), duration(3412), duration(95_000)
    ('4 ms', '3.41 s', '1 min 35 s')
    """
    if ms < 1000:
        return f"{ms:.0f} ms"
    if ms < 60_000:
        return f"{ms / 1000:.2f} s"
    return f"{ms // 60_000:.0f} min {ms % 60_000 / 1000:.0f} s"


def bounded(at_least: float, at_most: float, write: Callable[[float], str]) -> str:
    """A figure of which bounds are known, in words; `write` writes one number.

    >>> bounded(500, 6600, duration), bounded(0, 6600, duration), bounded(6600, 6600, duration)
    ('at least 500 ms, at most 6.60 s', 'at most 6.60 s', '6.60 s')
    """
    least, most = write(at_least), write(at_most)
    if least == most:
        return most
    return f"at least {least}, at most {most}" if at_least > 0 else f"at most {most}"


def size(count: int) -> str:
    """Bytes for people.

    >>> size(512), size(3 << 20), size(1 << 30)
    ('512 B', '3.0 MiB', '1.0 GiB')
    """
    number, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if number < 1024:
            break
        number, unit = number / 1024, larger
    return f"{count} B" if unit == "B" else f"{number:.1f} {unit}"


def part_of_size(part: int, whole: int) -> str:
    """How many bytes of how many, in whole units.

    >>> part_of_size(11 << 20, 96 << 20), part_of_size(300 << 10, 812 << 10), part_of_size(3, 9)
    ('11 of 96 MiB', '300 of 812 KiB', '3 of 9 B')
    """
    shift, unit = next(((bits, name) for bits, name in ((20, "MiB"), (10, "KiB")) if whole >> bits), (0, "B"))
    return f"{part >> shift:,} of {whole >> shift:,} {unit}"


def moment(epoch_ms: int) -> str:
    """Local time with milliseconds."""
    return datetime.fromtimestamp(epoch_ms / 1000).isoformat(" ", "milliseconds")


def utc_moment(epoch_ms: int) -> str:
    """
    >>> utc_moment(0)
    '1970-01-01T00:00:00.000Z'
    """
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def utc_clock(epoch_ms: int, now_ms: int) -> str:
    """Hours and minutes in UTC, with the date unless it is today's.

    >>> utc_clock(50_520_000, 60_000_000), utc_clock(50_520_000, 90_000_000)
    ('14:02 UTC', '1970-01-01 14:02 UTC')
    """
    at, now = (datetime.fromtimestamp(ms / 1000, UTC) for ms in (epoch_ms, now_ms))
    return f"{at:%H:%M} UTC" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M} UTC"


def clock_time(epoch_ms: int) -> str:
    """Local time of day, to the second."""
    return datetime.fromtimestamp(epoch_ms / 1000).strftime("%H:%M:%S")


def clipped(text: str) -> str:
    """A line in which no word is endless: ids may have thousands of characters.

    >>> clipped("no topic " + "x" * 1000)
    'no topic xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...(1,000 characters)'
    """
    return re.sub(
        rf"[^\s'\";:,]{{{MAX_WORD + 1},}}",
        lambda long: f"{long[0][:KEPT_OF_A_WORD]}...({len(long[0]):,} characters)",
        text,
    )


def harmless(text: str) -> str:
    """What others may have chosen (names, reasons), on one line of a terminal: what would command it is spelt out.

    Escapes, line ends, and what turns the direction of writing round.

    >>> harmless("a\\x1b[2Jb\\n"), harmless("grün \\u202e x")
    ('a\\\\x1b[2Jb\\\\n', 'grün \\\\u202e x')
    """
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def escape_unprintable(text: str, escape: Callable[[str], str]) -> str:
    """Each character that no terminal shows, but for line ends, as `escape` writes it."""
    if is_printable(text):
        return text
    return "".join(char if char.isprintable() or char == "\n" else escape(char) for char in text)


def is_printable(text: str) -> bool:
    """Of lines."""
    return text.replace("\n", "").isprintable()


def plural(count: int, noun: str) -> str:
    """
    >>> plural(1, "line"), plural(1200, "line")
    ('1 line', '1,200 lines')
    """
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def partition_seconds(seconds: float) -> str:
    """
    >>> partition_seconds(0.0), partition_seconds(13.24), partition_seconds(12_345.6)
    ('0', '13.2', '12,346')
    """
    return (
        "0"
        if not seconds
        else f"{seconds:,.0f}"
        if seconds >= 100
        else f"{seconds:.1f}"
        if seconds >= 1
        else f"{seconds:.2f}"
    )


def listed(names: Sequence[str]) -> str:
    """
    >>> listed(["a"]), listed(["a", "b"]), listed(["a", "b", "c", "d", "e"])
    ('a', 'a and b', 'a, b, c and 2 others')
    """
    if len(names) > NAMED + 1:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED} others"
    return " and ".join(filter(None, (", ".join(names[:-1]), names[-1]))) if names else "nobody"
