"""How commands name a group, its partitions and a length of time, and how they report operator overrides.

Every command of `muster groups` takes GROUP or `--group GROUP`, and further arguments after it. The commands that
override a group (freeze, deploy, drain, pin, resume) share `--version`, `--dry-run`, `--reason` and `--for`, and print
the overrides that are active afterwards.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.common.commands import CommandError, Exit
from muster.cli.common.options import Duration
from muster.cli.common.output import columns, notice, print_document, print_rows
from muster.coordinator.observability.views.controls import hold_rows
from muster.coordinator.observability.views.groups import watched_words
from muster.coordinator.observability.views.member_names import Names

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.client.described import ForecastMove, GroupDescription, HoldResult


# Groups and partitions
# ---------------------

PARTITION_NUMBER = re.compile(r"[0-9]{1,10}")

Function = TypeVar("Function", bound=Callable[..., Any])


def refuse_watched(group: "GroupDescription") -> None:
    """For a command that looks before it changes something. Raises CommandError where the node only watches."""
    if group.watched:
        raise CommandError(
            f"group '{group.group_id}' is {watched_words(group.watched)}, so nothing can be changed here",
            "expected a group that Muster coordinates",
            f"use Kafka's own tools, or run nodes over that Kafka and muster engine adopt {group.group_id}",
            code=Exit.CONFLICT,
        )


class GroupArgument(click.Argument):
    """GROUP, the first argument. With --group it may be left out: the words are the command's other arguments then."""

    def handle_parse_result(
        self, ctx: click.Context, opts: Mapping[str, Any], args: list[str]
    ) -> tuple[Any, list[str]]:
        option = opts.get("group_option")
        others = [each for each in ctx.command.params if isinstance(each, click.Argument) and each is not self]
        if isinstance(option, str) and not names_group(opts, option, others):
            assert isinstance(opts, dict), "click gives one dictionary to all parameters"
            shift_words(opts, others)
        return super().handle_parse_result(ctx, opts, args)


def names_group(opts: Mapping[str, Any], option: str, others: Sequence[click.Argument]) -> bool:
    """Whether the first word is GROUP although --group is given: every other argument has words of its own."""
    given = (opts.get(str(each.name)) for each in others)
    complete = all(isinstance(words, str) or (isinstance(words, tuple) and words) for words in given)
    return complete and (opts.get("group") == option or all(each.nargs == 1 for each in others))


def shift_words(opts: dict[str, Any], others: Iterable[click.Argument]) -> None:
    """Give GROUP's word to the next argument, that one's to the one after it, and so on."""
    word = opts.pop("group", None)
    for argument in others:
        if not isinstance(word, str):
            return
        name = str(argument.name)
        following = opts.get(name)
        if argument.nargs == 1:
            opts[name], word = word, following
        else:
            opts[name] = (word, *following) if isinstance(following, tuple) else (word,)


def group_argument(function: Function) -> Function:
    """GROUP, or --group GROUP for fingers used to Kafka's tool, as `group`."""
    # Eager, so that it is known when the argument is looked at.
    option = click.option(
        "--group",
        "group_option",
        metavar="GROUP",
        is_eager=True,
        help="Name the group by an option instead of the argument.",
    )
    argument = click.argument("group", cls=GroupArgument, metavar="GROUP", required=False, callback=choose_group)
    return option(argument(function))


reason_option = click.option(
    "--reason", default="", metavar="TEXT", help="Reason, kept in the group's ledger and the node's log."
)


def choose_group(ctx: click.Context, param: click.Parameter, argument: str | None) -> str:
    """The one group that was named, either way."""
    option = ctx.params.pop("group_option", None)
    if argument is not None and option is not None and argument != option:
        raise click.UsageError(f"two groups are named, {argument!r} and {option!r}; expected one", ctx)
    named = argument if argument is not None else option
    if not named:
        what = "no group is named" if named is None else "the group's name is empty"
        raise click.UsageError(f"{what}; expected GROUP", ctx)
    return str(named)


def resolve_partitions(admin: "Admin", words: Iterable[str]) -> list[tuple[str, int]]:
    """Every partition that TOPIC or TOPIC:0,1,2 names, each once. Raises UnknownTopic and UsageError."""
    chosen: dict[tuple[str, int], None] = {}
    for word in words:
        topic, colon, listed = word.partition(":")
        count = admin.describe_topic(topic).partitions
        numbers = partition_numbers(word, listed, count) if colon else range(count)
        chosen.update(dict.fromkeys((topic, number) for number in numbers))
    return sorted(chosen)


def partition_numbers(word: str, listed: str, count: int) -> list[int]:
    numbers = []
    for text in (part.strip() for part in listed.split(",")):
        if not PARTITION_NUMBER.fullmatch(text) or int(text) >= count:
            raise click.UsageError(
                f"{word!r} names partition {text!r}; expected numbers from 0 to {count - 1}, by commas"
            )
        numbers.append(int(text))
    return numbers


# Operator overrides
# ------------------

OVERRIDE_COLUMNS = columns("GROUP, VERSION, HELD:cyan, UNTIL, UNTIL-MS+")

MOVE_COLUMNS = columns("TOPIC:cyan, PARTITION, FROM=source, TO=target")

for_option = click.option(
    "--for", "for_ms", type=Duration(), metavar="TIME", help="End it automatically after this time: 90s, 15m, 2h."
)


def override_options(function: Function) -> Function:
    """--version, --dry-run and --reason as `muster groups set` has them, named as the admin client names them."""
    for option in (
        click.option("--reason", default="", help="Reason, kept in the ledger."),
        click.option(
            "--dry-run", "validate_only", is_flag=True, help="Show what would change, with figures, and change nothing."
        ),
        click.option(
            "--version",
            "expected_version",
            type=click.IntRange(0),
            metavar="N",
            help="Only if the overrides are at this version (0: none); exit code 5 otherwise.",
        ),
    ):
        function = option(function)
    return function


def report_overrides(group: str, held: "HoldResult", style: str, admin: "Admin", *, dry_run: bool) -> None:
    """What was done in a sentence on standard error, and what is held now in a table.

    A dry run in JSON or YAML is an object: the sentence, what would be held (`holds`) and what would change hands
    (`moves`; null: nothing is known of it).
    """
    notice(f"{held.sentence}.")
    rows = hold_rows(group, held.holds)
    if dry_run and style in ("json", "yaml"):
        print_document({"sentence": held.sentence, "holds": rows, "moves": move_rows(held.moves)}, style)
        notice("Nothing was changed; leave out --dry-run to do it.")
        return
    if dry_run and held.moves and style in ("table", "wide"):
        print_moves(group, held.moves, style, admin)
    if rows or style not in ("table", "wide"):
        print_rows(rows, OVERRIDE_COLUMNS, style)
    if dry_run:
        notice("Nothing was changed; leave out --dry-run to do it.")


def print_moves(group: str, moves: "Sequence[ForecastMove]", style: str, admin: "Admin") -> None:
    """Forecast moves in a table, with members as they are called in every table."""
    names = Names.of_members(admin.describe_group(group).members)
    called = [replace(move, source=named(move.source, names), target=named(move.target, names)) for move in moves]
    print_rows(move_rows(called) or [], MOVE_COLUMNS, style)


def named(member_id: str | None, names: Names) -> str:
    return "nobody" if member_id is None else names[member_id]


def move_rows(moves: "Sequence[ForecastMove] | None") -> list[dict[str, Any]] | None:
    """What changes hands, a row each; None: nothing is known of it."""
    return None if moves is None else [asdict(move) for move in moves]
