"""`muster consume`: values to standard output, one per line; what happens to the group to standard error."""

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from coordinator.cli.errors import CommandError, Exit
from coordinator.cli.options import NumberRange, client_options, properties
from coordinator.cli.output import notice
from coordinator.cli.plugins import find_plugins_here
from coordinator.cli.signals import interrupt_on_sigterm, stop_on_signal
from coordinator.cli.words import plural

if TYPE_CHECKING:
    from coordinator.client import Consumer, Message, RebalanceEvent, TopicPartition

BATCH = 500
LOOK_EVERY_S = 0.2
"""How soon a signal is noticed while nothing comes."""


@click.command()
@client_options
@click.option("--topic", required=True, metavar="T", help="What to read; ^ begins a regular expression (with --group).")
@click.option("--group", metavar="G", help="Take part in this group; without it, read every partition alone.")
@click.option(
    "--black-list",
    is_flag=True,
    help="Every topic that the pattern in --topic does not match (with group.protocol=zookeeper).",
)
@click.option("--from-beginning", is_flag=True, help="Begin with the first record where nothing is committed.")
@click.option("--max-messages", type=click.IntRange(min=1), metavar="N", help="Stop after so many.")
@click.option(
    "--idle-timeout", type=NumberRange(min=0), metavar="SECONDS", help="Stop when nothing came for this long."
)
def consume(
    bootstrap: str,
    overrides: dict[str, str],
    topic: str,
    group: str | None,
    black_list: bool,
    from_beginning: bool,
    max_messages: int | None,
    idle_timeout: float | None,
) -> None:
    """Print a topic's values as they come, until Ctrl-C or SIGTERM, which leave the group in order."""
    from coordinator.client import Consumer

    check_topic(topic, group)
    if black_list and (not topic.startswith("^") or overrides.get("group.protocol") != "zookeeper"):
        raise click.UsageError(
            "--black-list goes with a pattern such as '^tmp' in --topic, and with --set group.protocol=zookeeper"
        )
    find_plugins_here()
    given = properties(
        bootstrap,
        overrides,
        group_id=group,
        auto_offset_reset="earliest" if from_beginning else "latest",
    )
    if overrides.get("group.protocol") == "zookeeper" and not names_a_node():
        # Such a consumer finds its nodes in ZooKeeper.
        del given["bootstrap.servers"]
    interrupt_on_sigterm()
    with Consumer(given) as consumer:
        begin(consumer, topic, group, black_list, from_beginning, lambda: partition_count(bootstrap, overrides, topic))
        # Only now is there something to finish first; a node that is away can be interrupted before.
        stopping = stop_on_signal()
        printed = copy_values(consumer, stopping, max_messages, idle_timeout)
    notice(f"{plural(printed, 'message')} from {topic}")


def copy_values(
    consumer: "Consumer", stopping: threading.Event, max_messages: int | None, idle_timeout: float | None
) -> int:
    """Print values until told to stop, or one of the limits is reached; returns how many.

    Signals are looked at between two batches only, so that no record is handed over, and committed, but not printed.
    """
    printed, last = 0, time.monotonic()
    while not stopping.is_set() and (max_messages is None or printed < max_messages):
        wanted = BATCH if max_messages is None else min(BATCH, max_messages - printed)
        messages = consumed(consumer, wanted)
        if messages:
            write(messages)
            printed += len(messages)
            last = time.monotonic()
        elif idle_timeout is not None and time.monotonic() - last >= idle_timeout:
            break
    return printed


def consumed(consumer: "Consumer", wanted: int) -> "list[Message]":
    """What has come lately. Raises CommandError where the group's members are of another kind."""
    from coordinator.client.errors import GroupNotFound

    try:
        return consumer.consume(wanted, LOOK_EVERY_S)
    except GroupNotFound as error:
        # A member makes its group: only one of another kind under that name is no group to it (KIP-848).
        raise CommandError(str(error), code=Exit.CONFLICT) from None


def begin(
    consumer: "Consumer",
    topic: str,
    group: str | None,
    black_list: bool,
    from_beginning: bool,
    count: Callable[[], int],
) -> None:
    """Subscribe as a member, or assign all partitions to oneself; `count` finds out how many there are."""
    if group is not None:
        consumer.subscribe(topic, on_assign=tell, on_revoke=tell, on_lost=tell, black_list=black_list)
        return
    partitions = [(topic, number) for number in range(count())]
    consumer.assign(partitions)
    if from_beginning:
        consumer.seek_to_beginning(*partitions)
    else:
        consumer.seek_to_end(*partitions)


def names_a_node() -> bool:
    """Whether a node was named, by --bootstrap or in the environment."""
    source = click.get_current_context().get_parameter_source("bootstrap")
    return source is click.core.ParameterSource.COMMANDLINE or bool(os.environ.get("MUSTER_BOOTSTRAP"))


def check_topic(topic: str, group: str | None) -> None:
    """Raises UsageError for a pattern that is none, or that has no group to go with it."""
    if not topic.startswith("^"):
        return
    if group is None:
        raise click.UsageError(f"{topic!r} is a pattern; expected one topic, or --group with it")
    try:
        re.compile(topic)
    except re.error as error:
        raise click.UsageError(
            f"{topic!r} is no regular expression ({error}); expected one such as '^orders-'"
        ) from None


def partition_count(bootstrap: str, overrides: dict[str, str], topic: str) -> int:
    from coordinator.client import Admin
    from coordinator.client.config import ClientConfig, dotted

    every_client = {dotted(name) for name in ClientConfig.model_fields}
    shared = {key: value for key, value in overrides.items() if key in every_client}
    with Admin(properties(bootstrap, shared)) as admin:
        return admin.describe_topic(topic).partitions


def write(messages: Sequence["Message"]) -> None:
    """Values as they are; a null value is an empty line. Flushed, because somebody may be reading along."""
    out = sys.stdout.buffer
    for message in messages:
        out.write((message.value or b"") + b"\n")
    out.flush()


def tell(consumer: "Consumer", partitions: Sequence["TopicPartition"], event: "RebalanceEvent") -> None:
    """One line per callback: what came or went, and why."""
    from coordinator.cli.words import spans

    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    named = " ".join(f"{topic}[{spans(numbers)}]" for topic, numbers in sorted(by_topic.items())) or "nothing"
    cause = event.cause.name.lower().replace("_", " ")
    notice(
        f"{event.kind}: {named} (generation {event.generation}; {cause}{': ' if event.detail else ''}{event.detail})"
    )
