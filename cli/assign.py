"""`muster assign`: assignment problems in, one JSON object per line; plans out, one per line.

Each line is answered before the next one is read, and the answer is flushed: a program may hold a conversation. A line
that cannot be answered is named on standard error by its number and leaves an empty line on standard output, so that
answers stay in step with problems. The others are answered all the same, and the exit code at the end is 2, or 1 when
only assignors failed, on good problems. An assignor that exceeds --deadline is stopped and reported like one that
raises; a plugin, which runs in a process of its own, is killed.
"""

import json
import sys
from collections.abc import Iterable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.errors import Exit, print_error
from muster.cli.common.options import NumberRange
from muster.cli.common.plugins import find_plugins_here

if TYPE_CHECKING:
    from muster.assignors.api import Assignment, Assignor, Snapshot

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
    from muster.assignors.registry import resolve

    find_plugins_here()
    chosen = resolve(assignor) if assignor is not None else None
    worst = Exit.OK
    for number, line in enumerate(file, start=1):
        if not line.strip():
            continue
        code, answer = answer_line(line, number, chosen, deadline)
        sys.stdout.write(answer + "\n")
        sys.stdout.flush()
        worst = max(worst, code)
    return worst


def answer_line(line: bytes, number: int, assignor: Any, deadline: float) -> tuple[Exit, str]:
    """The plan as JSON, or an empty answer and a complaint that names the line."""
    from muster.assignors.api import AssignorError
    from muster.assignors.registry import UnknownAssignor
    from muster.assignors.tools.problem import solve

    try:
        plan = solve(parse_problem(line), assignor, partial(run_in_time, round(1000 * deadline)))
        return Exit.OK, json.dumps(plan, separators=(",", ":"))
    except (UnknownAssignor, ValueError) as error:
        print_error(f"line {number}: {error}")
        bad_plan = isinstance(error, AssignorError) and not isinstance(error, UnknownAssignor)
        return (Exit.FAILURE if bad_plan else Exit.USAGE), ""


def run_in_time(deadline_ms: int, assignor: "Assignor", snapshot: "Snapshot") -> "Assignment":
    """Ours in a thread, which a deadline ends soon enough; others in a process, which is killed."""
    from muster.assignors.plugin_pool import run_in_thread, shared_isolation
    from muster.assignors.run import run
    from muster.assignors.shield import is_ours

    remedy = "raise --deadline or use another assignor"
    if is_ours(assignor):
        late = f"was not done after {{deadline_ms}} ms; {remedy}"
        return run_in_thread(assignor.name, partial(run, assignor, snapshot), deadline_ms, late)
    return shared_isolation().run(assignor, snapshot, deadline_ms, remedy=remedy)


def parse_problem(line: bytes) -> dict[str, Any]:
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
