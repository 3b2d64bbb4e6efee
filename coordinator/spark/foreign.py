"""Assignors of other people, with a deadline: one that hangs must not hold up a query or a backtest for ever."""

from queue import Empty, SimpleQueue
from threading import Thread

from assignors.api import Assignment, Assignor, AssignorError, Snapshot
from assignors.run import run
from assignors.shield import is_ours

DEADLINE_MS = 10_000
"""What the leader of a group gives its assignor, too, unless partition.assignment.deadline.ms says otherwise."""

MAX_DEADLINE_MS = 3_600_000


class Overran(AssignorError):
    """An assignor that was not done by its deadline."""


def run_in_time(
    assignor: Assignor, snapshot: Snapshot, deadline_ms: int, remedy: str, *, withhold: bool = True
) -> Assignment:
    """As `assignors.run.run`; Overran, which ends with `remedy`, when a plugin takes too long. Ours are not timed.

    The thread of a plugin that hangs cannot be stopped: it ends with its process, which it does not keep alive.
    """
    if is_ours(assignor):
        return run(assignor, snapshot, withhold)
    answers: SimpleQueue[Assignment | BaseException] = SimpleQueue()

    def work() -> None:
        try:
            answers.put(run(assignor, snapshot, withhold))
        except BaseException as error:  # it is raised where somebody waits for it
            answers.put(error)

    Thread(target=work, name="muster-assignor", daemon=True).start()
    try:
        answer = answers.get(timeout=deadline_ms / 1000)
    except Empty:
        raise Overran(assignor.name, f"was not done after {deadline_ms} ms; {remedy}") from None
    if isinstance(answer, BaseException):
        raise answer
    return answer
