"""What the commands of a cluster have in common: whom they ask, how partitions are named, what was refused."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

import click

from muster.cli.common.errors import CommandError, Exit, Unhealthy
from muster.cli.common.options import connect_admin
from muster.cli.common.output import notice
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.client import Admin
    from muster.coordinator.rpc.v1.cluster_service_pb2 import DescribeClusterResponse

NODE = click.IntRange(0, 2**31 - 1)
NUMBER = re.compile("[0-9]{1,10}", re.ASCII)


class PartitionOutcome(Protocol):
    """What became of one partition."""

    @property
    def topic(self) -> str: ...

    @property
    def partition(self) -> int: ...

    @property
    def error_code(self) -> int: ...

    @property
    def error_message(self) -> str: ...


@contextmanager
def connect_cluster_admin(bootstrap: str, overrides: dict[str, str]) -> "Iterator[Admin]":
    """An admin client of a node that is one of a cluster. Raises CommandError (3) if it is on its own."""
    from muster.client.errors import TransportRefused

    try:
        with connect_admin(bootstrap, overrides) as admin:
            yield admin
    except TransportRefused as error:
        if error.status != "UNIMPLEMENTED":
            raise
        raise CommandError(
            f"{error.address} is no part of a cluster",
            "expected a node with inter.broker.listeners and zookeeper.connect",
            "name one with --bootstrap; over a Kafka ask `muster engine status`",
            code=Exit.NOT_FOUND,
        ) from None


def parse_partition(word: str, param_hint: str | None = None) -> tuple[str, int]:
    """TOPIC:PARTITION. Raises BadParameter.

    >>> parse_partition("orders:3")
    ('orders', 3)
    """
    topic, colon, number = word.rpartition(":")
    if not (topic and colon and NUMBER.fullmatch(number)):
        raise click.BadParameter(f"{word!r} names no partition; expected TOPIC:PARTITION", param_hint=param_hint)
    return topic, int(number)


def parse_partitions(ctx: click.Context, param: click.Parameter, given: tuple[str, ...]) -> list[tuple[str, int]]:
    return list(dict.fromkeys(parse_partition(word, param.human_readable_name) for word in given))


def report_age(answer: "DescribeClusterResponse") -> None:
    """Say how old it is, where that is worth a word. Raises Unhealthy (4) where the node that told it is cut off."""
    from muster.coordinator.observability.views.cluster import age_words

    if answer.cut_off:
        raise Unhealthy(age_words(answer))
    if age := age_words(answer):
        notice(age)


def report_outcomes(done: str, outcomes: Iterable[PartitionOutcome]) -> None:
    """What was done, and what was refused. Raises CommandError (1) if anything was."""
    outcomes = list(outcomes)
    refused = [each for each in outcomes if each.error_code]
    if len(outcomes) > len(refused) or not outcomes:
        notice(f"{done} {plural(len(outcomes) - len(refused), 'partition')}")
    if refused:
        raise CommandError("\n".join(each.error_message for each in refused))
