"""How commands are told of a group and of partitions."""

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from muster.client import Admin

PARTITION_NUMBER = re.compile(r"[0-9]{1,10}")

Function = TypeVar("Function", bound=Callable[..., Any])


def group_argument(function: Function) -> Function:
    """GROUP, or --group GROUP for fingers used to Kafka's tool, as `group`."""
    # Eager, so that it is known when the argument is looked at.
    option = click.option("--group", "group_option", metavar="GROUP", is_eager=True, help="The same as the argument.")
    argument = click.argument("group", metavar="GROUP", required=False, callback=choose_group)
    return option(argument(function))


reason_option = click.option(
    "--reason", default="", metavar="TEXT", help="Why: for the group's ledger and the node's log."
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
