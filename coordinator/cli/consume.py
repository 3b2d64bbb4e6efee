"""`muster consume`: values to standard output, one per line; what happens to the group to standard error."""

import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from coordinator.cli.options import client_options, properties
from coordinator.cli.output import notice
from coordinator.cli.signals import stop_on_signal
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
@click.option("--from-beginning", is_flag=True, help="Begin with the first record where nothing is committed.")
@click.option("--max-messages", type=click.IntRange(min=1), metavar="N", help="Stop after so many.")
@click.option(
    "--idle-timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Stop when nothing came for this long."
)
def consume(
    bootstrap: str,
    overrides: dict[str, str],
    topic: str,
    group: str | None,
    from_beginning: bool,
    max_messages: int | None,
    idle_timeout: float | None,
) -> None:
    """Print a topic's values as they come, until Ctrl-C or SIGTERM, which leave the group in order."""
    from coordinator.client import Consumer

    given = properties(
        bootstrap,
        overrides,
        group_id=group,
        auto_offset_reset="earliest" if from_beginning else "latest",
    )
    stopping = stop_on_signal()
    with Consumer(given) as consumer:
        begin(consumer, topic, group, bootstrap, from_beginning)
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
        messages = consumer.consume(wanted, LOOK_EVERY_S)
        if messages:
            write(messages)
            printed += len(messages)
            last = time.monotonic()
        elif idle_timeout is not None and time.monotonic() - last >= idle_timeout:
            break
    return printed


def begin(consumer: "Consumer", topic: str, group: str | None, bootstrap: str, from_beginning: bool) -> None:
    """Subscribe as a member, or assign all partitions to oneself."""
    if group is not None:
        consumer.subscribe(topic, on_assign=tell, on_revoke=tell, on_lost=tell)
        return
    from coordinator.client import Admin

    with Admin({"bootstrap.servers": bootstrap}) as admin:
        count = admin.describe_topic(topic).partitions
    partitions = [(topic, number) for number in range(count)]
    consumer.assign(partitions)
    if from_beginning:
        consumer.seek_to_beginning(*partitions)
    else:
        consumer.seek_to_end(*partitions)


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
