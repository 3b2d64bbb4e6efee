"""A page for each command of `muster`, made from what click knows of it."""

import inspect
from collections.abc import Iterator, Mapping

import click

from docs.tools.tables import code, table
from muster.cli.common.commands import LazyCommand
from muster.cli.main import COMMANDS, EPILOG, cli


def commands() -> dict[str, click.Command]:
    """The commands that `muster --help` lists."""
    context = click.Context(cli, info_name="muster")
    found = {name: cli.get_command(context, name) for name in cli.list_commands(context)}
    return {name: command for name, command in found.items() if command is not None}


def page(name: str) -> str:
    """One command and those below it."""
    context = click.Context(cli, info_name="muster")
    return "\n\n".join(part for part in parts(commands()[name], name, context, 1) if part) + "\n"


def overview() -> str:
    """All commands under the headings of `muster --help`, then exit codes and surroundings."""
    tables = [
        f"**{heading}**\n\n" + table(["command", "what it does"], rows)
        for heading, rows in ((heading, summaries(below)) for heading, below in COMMANDS.items())
        if rows
    ]
    return "\n\n".join([*tables, " ".join(EPILOG.split())])


def summaries(below: Mapping[str, LazyCommand]) -> list[list[str]]:
    return [[f"[`muster {name}`]({name}.md)", command.summary] for name, command in below.items() if command.summary]


def parts(command: click.Command, name: str, parent: click.Context, level: int) -> Iterator[str]:
    context = click.Context(command, info_name=name, parent=parent)
    yield f"{'#' * level} `{context.command_path}`"
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    yield prose(command.help or "")
    yield f"```text\n{usage}\n```"
    params = [param for param in command.get_params(context) if not getattr(param, "hidden", False)]
    options = [
        row(param, context) for param in params if isinstance(param, click.Option) and "--help" not in param.opts
    ]
    if options:
        yield table(["option", "meaning"], options)
    yield prose(command.epilog or "")
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found is not None and not found.hidden:
                yield from parts(found, child, context, level + 1)


def row(option: click.Option, context: click.Context) -> list[str]:
    """Its names with what it takes; what it means, what it is without it, and whether it must be given."""
    record = option.get_help_record(context)
    names, meaning = record if record is not None else (", ".join(option.opts), option.help or "")
    if isinstance(option.type, click.Choice):
        # Choices would make the column of names as wide as the page.
        names = names.replace(option.make_metavar(context), "").rstrip()
        meaning = f"{meaning} One of {', '.join(str(choice) for choice in option.type.choices)}."
    return [code(names), escaped(meaning)]


def escaped(text: str) -> str:
    """Without what HTML would take for a tag."""
    return text.replace("<", "&lt;").replace("[", "\\[")


def prose(text: str) -> str:
    r"""Help in paragraphs; one that click was asked not to wrap (\b) keeps its lines."""
    told = []
    for paragraph in inspect.cleandoc(text).replace("\f", "").split("\n\n"):
        lines = paragraph.splitlines()
        if lines and lines[0].strip() == "\b":
            told.append("```text\n" + "\n".join(lines[1:]) + "\n```")
        elif lines:
            told.append(escaped(" ".join(lines)))
    return "\n\n".join(told)
