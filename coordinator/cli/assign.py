"""`muster assign`: assignment problems in, one JSON object per line; plans out, one per line.

Each line is answered before the next one is read, and the answer is flushed: a program may hold a conversation. A line
that cannot be answered is named on standard error by its number and leaves an empty line on standard output, so that
answers stay in step with problems. The others are answered all the same, and the exit code at the end is 2, or 1 when
only assignors failed, on good problems. An assignor that exceeds --deadline is stopped and reported like one that
raises.
"""

import json
import signal
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, NoReturn

import click

from coordinator.cli.errors import Exit, complain
from coordinator.cli.options import NumberRange
from coordinator.cli.plugins import find_plugins_here

MAX_LINE_BYTES = 256 << 20
"""A million partitions with racks and claims take about a tenth of this."""


@click.command()
@click.option("--assignor", metavar="NAME", help="Overrules the assignor that a problem names.")
@click.option(
    "--deadline",
    type=NumberRange(0.01, 3600),
    default=60.0,
    show_default=True,
    metavar="SECONDS",
    help="Longest time for one problem.",
)
@click.argument("file", type=click.File("rb"), default="-")
def assign(assignor: str | None, deadline: float, file: Iterable[bytes]) -> int:
    """Solve assignment problems: one JSON object per line in, {member: {topic: [partitions]}} out.

    Reads standard input, or FILE. NAME is a built-in assignor, a Kafka class name, the entry point of a plugin, or
    package.module:Class, which may lie in the current directory.
    """
    from assignors.registry import resolve

    find_plugins_here()
    chosen = resolve(assignor) if assignor is not None else None
    worst = Exit.OK
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        code, answer = answer_to(line, number, chosen, deadline)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
        worst = max(worst, code)
    return worst


class DeadlineExceeded(BaseException):
    """Not an Exception, so that neither the assignor nor its caller takes it for a failure of their own."""


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """Raise DeadlineExceeded in the body after so many seconds. In the main thread only."""

    def expired(number: int, frame: FrameType | None) -> NoReturn:
        raise DeadlineExceeded

    before = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def answer_to(line: bytes, number: int, assignor: Any, deadline: float) -> tuple[Exit, str]:
    """The plan as JSON, or an empty answer and a complaint that names the line."""
    from assignors.api import AssignorError
    from assignors.problem import solve
    from assignors.registry import UnknownAssignor

    try:
        problem = parsed(line)
        with time_limit(deadline):
            plan = solve(problem, assignor)
        return Exit.OK, json.dumps(plan, separators=(",", ":"))
    except DeadlineExceeded:
        name = getattr(assignor, "name", None) or problem.get("assignor")
        complain(
            f"line {number}: assignor {name!r} gave no plan within {deadline:g} s; expected one in that time; "
            "raise --deadline or use another assignor"
        )
        return Exit.FAILURE, ""
    except (UnknownAssignor, ValueError) as error:
        complain(f"line {number}: {error}")
        bad_plan = isinstance(error, AssignorError) and not isinstance(error, UnknownAssignor)
        return (Exit.FAILURE if bad_plan else Exit.USAGE), ""


def parsed(line: bytes) -> dict[str, Any]:
    if len(line) > MAX_LINE_BYTES:
        raise ValueError(f"{len(line)} bytes, expected at most {MAX_LINE_BYTES}; split the problem")
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"not UTF-8 (byte {error.start + 1}: {error.reason}); expected JSON in UTF-8") from None
    try:
        problem = json.loads(text)
    except (json.JSONDecodeError, RecursionError) as error:
        raise ValueError(f"not JSON ({error}); expected one problem as a JSON object on one line") from error
    if not isinstance(problem, dict):
        raise ValueError(f"a JSON {type(problem).__name__}, expected an object with topics and members")
    return problem
