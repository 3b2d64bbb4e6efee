"""Groups of commands that import a command only when it is called, and suggest the nearest name for a wrong one."""

import importlib
from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, NamedTuple

import click
from click.shell_completion import CompletionItem


class LazyCommand(NamedTuple):
    """Where a command lives (`module:attribute`) and its line in --help; an empty line hides it."""

    target: str
    summary: str


class LazyGroup(click.Group):
    """A group whose commands are named in a table and imported on use."""

    def __init__(self, *args: Any, lazy: Mapping[str, LazyCommand], **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.lazy = lazy

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, command in self.lazy.items() if command.summary]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.lazy:
            return None
        module, _, attribute = self.lazy[cmd_name].target.partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name not in self.lazy and not name.startswith("-"):
            known = self.list_commands(ctx)
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean '{near[0]}'?" if near else f"expected one of {', '.join(known)}"
            ctx.fail(f"there is no command '{ctx.command_path} {name}'; {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The table itself again; options are the ordinary way."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        names = (name for name in self.list_commands(ctx) if name.startswith(incomplete))
        return [CompletionItem(name, help=self.lazy[name].summary) for name in names]

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table itself, so that --help imports nothing."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, self.lazy[name].summary) for name in self.list_commands(ctx)])
