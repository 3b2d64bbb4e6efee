"""Running a command: it is imported on use, stopped by a signal, and its failure becomes an exit code.

Groups of commands import a command only when it is called, and suggest the nearest name for a wrong one.

A failure is one line on standard error and one of six exit codes. The line reads `error: <what is wrong>; <what was
expected>; <what to do>`. Errors of the packages below carry such a sentence already; this module only assigns their
exit code.

Commands that have something to finish first turn Ctrl-C and SIGTERM into an event or into `KeyboardInterrupt`. A
process that was started by another one ends when its standard input ends, which happens however the parent died.
"""

import importlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Mapping
from difflib import get_close_matches
from enum import IntEnum
from types import FrameType
from typing import Any, NamedTuple, NoReturn, TypeAlias

import click
from click.shell_completion import CompletionItem

from muster.coordinator.observability.views.formatting import clipped, harmless

# Loading on use
# --------------


class LazyCommand(NamedTuple):
    """Where below `muster.cli` a command is (`module:attribute`), and its line in --help; an empty line hides it."""

    target: str
    summary: str


Sections: TypeAlias = Mapping[str, Mapping[str, LazyCommand]]
"""Commands by name, under the headings of --help."""


SYNONYMS = {
    "thaw": "resume", "unfreeze": "resume", "release": "resume", "hold": "freeze", "pause": "freeze", "why": "explain",
    "show": "describe", "get": "describe", "ls": "list", "rm": "delete", "remove": "delete", "reset": "reset-offsets",
    "migrate": "migrate-offsets", "config": "settings", "configs": "settings", "logs": "log", "status": "health",
    "start": "serve", "run": "serve",
}  # fmt: skip
"""What people try, and the command that does it, where the same table of commands has it."""


class LazyGroup(click.Group):
    """A group whose commands are named in a table and imported on use."""

    def __init__(self, *args: Any, sections: Sections, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.sections = sections
        self.lazy = {name: command for commands in sections.values() for name, command in commands.items()}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, command in self.lazy.items() if command.summary]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name].target.partition(":")
        command: click.Command = getattr(importlib.import_module(f"muster.cli.{module}"), attribute)
        move_connection_options_last(command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.lazy and not name.startswith("-"):
            known = self.list_commands(ctx)
            near = [SYNONYMS[name]] if SYNONYMS.get(name) in known else get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(known)}"
            ctx.fail(f"there is no command '{ctx.command_path} {name}'; {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands from the table; options as every click group completes them."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        return [CompletionItem(name, help=self.lazy[name].summary) for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the table under its headings, so that --help imports no command."""
        width = max(map(len, self.list_commands(ctx)))
        for heading, commands in self.sections.items():
            rows = [(name.ljust(width), command.summary) for name, command in commands.items() if command.summary]
            if rows:
                with formatter.section(heading):
                    formatter.write_dl(rows)


class ConnectionOption(click.Option):
    """An option that says how to connect: --help shows it after the options of the command itself."""


def move_connection_options_last(command: click.Command) -> None:
    """Put a command's own options first, and those of the commands below it as well."""
    command.params.sort(key=lambda param: isinstance(param, ConnectionOption))
    if isinstance(command, click.Group):
        for below in command.commands.values():
            move_connection_options_last(below)


# Errors and exit codes
# ---------------------


class Exit(IntEnum):
    """What a command's exit status means, for every command."""

    OK = 0
    FAILURE = 1
    USAGE = 2
    NOT_FOUND = 3
    UNHEALTHY = 4
    CONFLICT = 5
    ADVICE = 6
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


def describe_missing(sentence: str) -> str:
    """
    >>> describe_missing("partition 3 of h:1 is loading")
    'groups are missing in this list: partition 3 of h:1 is loading'
    """
    return f"groups are missing in this list: {sentence}"


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
    for line in message.rstrip("\n").split("\n"):
        click.echo(f"error: {harmless(clipped(line))}", err=True)


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
        ((client.UnknownTopic, client.GroupNotFound, client.TransactionalIdNotFound), Exit.NOT_FOUND),
        ((client.TopicExists, client.GroupNotEmpty, client.FencedInstance), Exit.CONFLICT),
        ((client.Unreachable, client.ZookeeperAway), Exit.UNHEALTHY),
        # What the operating system says names the file and the reason: no space, no permission, no such directory.
        ((client.ClientError, AssignorError, StorageError, OSError), Exit.FAILURE),
    )
    if isinstance(error, client.DeliveryFailed):
        return exit_code_by_class(error.first)
    if isinstance(error, client.TransactionAborted):
        return exit_code_by_class(error.reason)
    if isinstance(error, client.Refused) and error.code in ASKED_WRONGLY:
        return Exit.USAGE
    if isinstance(error, client.Refused) and error.code == NO_SUCH_RESOURCE:
        return Exit.NOT_FOUND
    if isinstance(error, client.Refused) and error.code in CONFLICTING:
        return Exit.CONFLICT
    if isinstance(error, DataDirectoryError) and error.holder is not None:
        return Exit.CONFLICT
    return next((code for classes, code in fates if isinstance(error, classes)), None)


# Signals
# -------

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_interrupted = threading.Event()


def stop_on_signal() -> threading.Event:
    """An event that the first Ctrl-C or SIGTERM sets; a second one interrupts at once."""
    stopping = threading.Event()

    def stop(number: int, frame: FrameType | None) -> None:
        stopping.set()
        for ending in STOP_SIGNALS:
            signal.signal(ending, handle_interrupt)

    for ending in STOP_SIGNALS:
        signal.signal(ending, stop)
    return stopping


def interrupt_on_signals() -> None:
    """Ctrl-C and SIGTERM raise KeyboardInterrupt. Who works for long calls `raise_if_interrupted` now and then."""
    _interrupted.clear()
    signal.signal(signal.SIGTERM, handle_interrupt)
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, handle_interrupt)


def raise_if_interrupted() -> None:
    """Raise KeyboardInterrupt when a signal has come, also one whose exception nobody heard.

    A signal's handler runs between any two steps of the main thread. Where that is in the callback of a weak reference,
    or in a finalizer, Python prints what the handler raises and goes on.
    """
    if _interrupted.is_set():
        raise KeyboardInterrupt


def handle_interrupt(number: int, frame: FrameType | None) -> NoReturn:
    _interrupted.set()
    raise KeyboardInterrupt


# The end of the parent process
# -----------------------------


def stop_with_stdin() -> None:
    """SIGTERM to this process once standard input ends, however the process at its other end died."""
    threading.Thread(target=stop_at_end_of_input, name="stdin", daemon=True).start()


def stop_at_end_of_input() -> None:
    descriptor = sys.stdin.fileno()
    while os.read(descriptor, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
