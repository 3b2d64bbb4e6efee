"""How a command fails: one line on standard error and one of six exit codes.

The line reads `error: <what is wrong>; <what was expected>; <what to do>`. Errors of the packages below carry such a
sentence already; here they only get their exit code.
"""

import sys
from collections.abc import Callable
from enum import IntEnum

import click

from muster.coordinator.observability.views.formatting import clipped


class Exit(IntEnum):
    """What a command's exit status means, for every command."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    UNHEALTHY = 4
    CONFLICT = 5
    INTERRUPTED = 130


class CommandError(Exception):
    """A command cannot do what it was asked: what is wrong, what was expected, what to do."""

    def __init__(self, what: str, expected: str = "", remedy: str = "", *, code: Exit = Exit.FAILURE) -> None:
        super().__init__("; ".join(part for part in (what, expected, remedy) if part))
        self.code = code


class Unhealthy(CommandError):
    """The command worked, and what it looked at is not well."""

    def __init__(self, what: str, expected: str = "", remedy: str = "") -> None:
        super().__init__(what, expected, remedy, code=Exit.UNHEALTHY)


def run_command(command: Callable[[], object]) -> int:
    """Run a command; print its error, if any; return the exit code."""
    try:
        result = command()
    except click.exceptions.Exit as error:
        return error.exit_code
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except BrokenPipeError:
        # The reader of our output went away (muster consume | head); there is nobody left to tell.
        sys.stderr.close()
        return Exit.FAILURE
    except Exception as error:
        code = exit_code_of(error)
        if code is None:
            raise
        print_error(error_message(error))
        return code
    return result if isinstance(result, int) else Exit.OK


def print_error(message: str) -> None:
    for line in message.splitlines():
        click.echo(f"error: {clipped(line)}", err=True)


def error_message(error: Exception) -> str:
    if isinstance(error, click.UsageError):
        path = error.ctx.command_path if error.ctx else "muster"
        return f"{error.format_message().rstrip('.')}; see '{path} --help'"
    if isinstance(error, click.ClickException):
        return error.format_message()
    if isinstance(error, UnicodeEncodeError):
        return f"{error.object!r} is not UTF-8 text; expected names and settings in UTF-8"
    # asyncio's TimeoutError, for one, has nothing to say.
    return str(error) or f"{type(error).__name__}, without a reason"


def exit_code_of(error: Exception) -> Exit | None:
    """The exit code of an expected error; None for what can only be a bug."""
    if isinstance(error, CommandError):
        return error.code
    if isinstance(error, click.ClickException):
        return Exit.USAGE if isinstance(error, click.UsageError) else Exit.FAILURE
    if isinstance(error, UnicodeEncodeError):
        # Python hands over what was typed in other encodings with marks that no message can carry.
        return Exit.USAGE
    return exit_code_by_class(error)


NO_SUCH_RESOURCE = 91
ASKED_WRONGLY = frozenset({24, 26, 37, 40, 42, 92, 93, 112, 128})
"""Kafka's codes that blame what was asked for: group id, session timeout, partitions, config, request, assignor,
pattern."""
CONFLICTING = frozenset({23, 86, 95})
"""Kafka's codes for what is in the way: members of another kind or in need of the offsets, a change made meanwhile."""


def exit_code_by_class(error: Exception) -> Exit | None:
    # Imported only once something failed: --help and a good run need none of them.
    from muster.assignors.api import AssignorError
    from muster.assignors.registry import UnknownAssignor
    from muster.client import errors as client
    from muster.storage.errors import DataDirectoryError, StorageError

    fates: tuple[tuple[tuple[type[Exception], ...], Exit], ...] = (
        ((client.ConfigError, client.InvalidTopic, UnknownAssignor), Exit.USAGE),
        ((client.UnknownTopic, client.GroupNotFound), Exit.NOT_FOUND),
        ((client.TopicExists, client.GroupNotEmpty, client.FencedInstance), Exit.CONFLICT),
        ((client.Unreachable, client.ZookeeperAway), Exit.UNHEALTHY),
        # What the operating system says names the file and the reason: no space, no permission, no such directory.
        ((client.ClientError, AssignorError, StorageError, OSError), Exit.FAILURE),
    )
    if isinstance(error, client.DeliveryFailed):
        return exit_code_by_class(error.first)
    if isinstance(error, client.Refused) and error.code in ASKED_WRONGLY:
        return Exit.USAGE
    if isinstance(error, client.Refused) and error.code == NO_SUCH_RESOURCE:
        return Exit.NOT_FOUND
    if isinstance(error, client.Refused) and error.code in CONFLICTING:
        return Exit.CONFLICT
    if isinstance(error, DataDirectoryError) and error.holder is not None:
        return Exit.CONFLICT
    return next((code for classes, code in fates if isinstance(error, classes)), None)
