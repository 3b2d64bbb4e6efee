"""`muster consume`: records to standard output, one per line; events of the group to standard error.

A record is printed as its value alone, as chosen fields with a separator, or as one JSON object a line; bytes that
are not UTF-8 appear in base64 under `key_base64` and the like.
"""

import base64
import json
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from muster.cli.common.commands import CommandError, Exit, interrupt_on_signals, stop_on_signal
from muster.cli.common.options import (
    NumberRange,
    client_options,
    client_properties,
    find_plugins_here,
    repeated_option,
    require_listener,
)
from muster.cli.common.output import notice
from muster.cli.groups.arguments import resolve_partitions
from muster.cli.groups.offsets import fetch_offsets_at, find_targets
from muster.coordinator.observability.views.formatting import plural
from muster.coordinator.observability.views.topics import Position, parse_position

if TYPE_CHECKING:
    from muster.client import Consumer, Message, RebalanceEvent, TopicPartition
    from muster.client.types import IsolationLevel


# How a record is printed
# -----------------------

FIELDS = ("topic", "partition", "offset", "timestamp", "key", "value", "headers")
Writer = Callable[["Message"], bytes]


def fields_option(ctx: click.Context, param: click.Parameter, given: str | None) -> tuple[str, ...]:
    """The fields that were named, in that order."""
    names = tuple(word.strip() for word in given.split(",")) if given else ("value",)
    unknown = [name for name in names if name not in FIELDS]
    if unknown:
        raise click.BadParameter(f"{unknown[0]!r} is not a field; expected some of {', '.join(FIELDS)}", ctx, param)
    return names


def make_writer(fields: tuple[str, ...], separator: str, *, as_json: bool) -> Writer:
    """What turns a record into the bytes of its line, without the line feed."""
    if as_json:
        return json_line
    if fields == ("value",):
        return lambda message: message.value or b""
    between = separator.encode("utf-8", "surrogateescape")
    return lambda message: between.join(encode_field(message, name) for name in fields)


def encode_field(message: "Message", name: str) -> bytes:
    """One field as bytes; a key or value that is null is nothing."""
    match name:
        case "key":
            return message.key or b""
        case "value":
            return message.value or b""
        case "timestamp":
            return str(message.timestamp_ms).encode()
        case "headers":
            return b",".join(name.encode() + b"=" + (value or b"") for name, value in message.headers)
        case _:
            return str(getattr(message, name)).encode()


def json_line(message: "Message") -> bytes:
    """Everything about a record. Bytes that are no UTF-8 stand in base64, under `key_base64` and the like."""
    line: dict[str, Any] = {
        "topic": message.topic,
        "partition": message.partition,
        "offset": message.offset,
        "timestamp_ms": message.timestamp_ms,
        **told("key", message.key),
        **told("value", message.value),
        "headers": [{"name": name, **told("value", value)} for name, value in message.headers],
    }
    return json.dumps(line, ensure_ascii=False).encode()


def told(name: str, data: bytes | None) -> dict[str, str | None]:
    """
    >>> told("key", b"a"), told("key", b"\\xff"), told("key", None)
    ({'key': 'a'}, {'key_base64': '/w=='}, {'key': None})
    """
    if data is None:
        return {name: None}
    try:
        return {name: data.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(data).decode()}


# `muster consume`
# ----------------

LATEST = -1
BATCH = 500
CHECK_INTERVAL_S = 0.2
"""How soon a signal is noticed while nothing comes."""


def start_option(ctx: click.Context, param: click.Parameter, given: str | None) -> Position | None:
    """Where to begin. A number of records after nothing in particular means nothing here."""
    if given is None:
        return None
    try:
        position = parse_position(given, now_ms=time.time_ns() // 1_000_000)
    except ValueError as error:
        raise click.BadParameter(str(error), ctx, param) from None
    if position.kind == "current" or (position.kind == "shift" and position.value > 0):
        raise click.BadParameter(f"{given!r} needs a group; expected start, end, N, -N, @TIME or @-1h", ctx, param)
    return position


@click.command()
@client_options
@click.option(
    "--topic",
    "topics",
    required=True,
    multiple=True,
    metavar="T",
    help="Read this topic; may be repeated. With --group, ^ begins a regular expression.",
)
@click.option("--group", metavar="G", help="Join this group; without it, read all partitions alone.")
@click.option(
    "--black-list",
    is_flag=True,
    help="Read every topic that the pattern of --topic does not match (with group.protocol=zookeeper).",
)
@click.option("--from-beginning", is_flag=True, help="Begin with the first record of partitions without a commit.")
@click.option(
    "--from",
    "position",
    callback=start_option,
    metavar="WHERE",
    help="Where to begin in each partition (without --group): start, end, N, -N (records before the end), "
    "@TIME or @-1h.",
)
@repeated_option(
    "--partition", "numbers", type=click.IntRange(min=0), metavar="N", help="Read only this partition (without --group)"
)
@click.option(
    "--isolation-level",
    type=click.Choice(["read_uncommitted", "read_committed"]),
    help="Also print records of open and aborted transactions, or not.  [default: read_uncommitted]",
)
@click.option("--max-messages", type=click.IntRange(min=1), metavar="N", help="Stop after this many records.")
@click.option(
    "--idle-timeout", type=NumberRange(min=0), metavar="SECONDS", help="Stop after this long without records."
)
@click.option(
    "--print",
    "fields",
    callback=fields_option,
    metavar="FIELD,...",
    help=f"Fields to print instead of the value: {', '.join(FIELDS)}.",
)
@click.option("--separator", default="\t", show_default="a tab", metavar="TEXT", help="Separator between fields.")
@click.option(
    "-o",
    "--output",
    "style",
    type=click.Choice(["text", "json"]),
    default="text",
    help="Output format; json prints all fields of each record.",
)
def consume(
    bootstrap: str,
    overrides: dict[str, str],
    topics: tuple[str, ...],
    group: str | None,
    black_list: bool,
    from_beginning: bool,
    position: Position | None,
    numbers: tuple[int, ...],
    isolation_level: str | None,
    max_messages: int | None,
    idle_timeout: float | None,
    fields: tuple[str, ...],
    separator: str,
    style: str,
) -> None:
    """Print records of topics as they arrive.

    Ctrl-C and SIGTERM stop it; a member then leaves its group.
    """
    from muster.client import Consumer

    check_topics(topics, group)
    if group is not None and (position or numbers):
        raise click.UsageError(
            "--from and --partition do not work with --group: a group continues at its committed offsets "
            "(`muster groups reset-offsets` changes them)"
        )
    if from_beginning and position:
        raise click.UsageError("--from-beginning and --from both say where to begin; expected one")
    if black_list and (not topics[0].startswith("^") or overrides.get("group.protocol") != "zookeeper"):
        raise click.UsageError(
            "--black-list needs a pattern such as '^tmp' in --topic, and --set group.protocol=zookeeper"
        )
    if isolation_level is not None:
        overrides = overrides | {"isolation.level": isolation_level}
    find_plugins_here()
    given = client_properties(
        bootstrap,
        overrides,
        group_id=group,
        auto_offset_reset="earliest" if from_beginning else "latest",
    )
    if overrides.get("group.protocol") == "zookeeper" and not is_node_named():
        # Such a consumer finds its nodes in ZooKeeper.
        del given["bootstrap.servers"]
    interrupt_on_signals()
    with Consumer(given) as consumer:
        require_listener(bootstrap, overrides)
        if group is not None:
            wanted = topics[0] if topics[0].startswith("^") else topics
            consumer.subscribe(
                wanted,
                on_assign=report_rebalance,
                on_revoke=report_rebalance,
                on_lost=report_rebalance,
                black_list=black_list,
            )
        else:
            assign_partitions(
                consumer,
                start_offsets(
                    bootstrap,
                    overrides,
                    topics,
                    numbers,
                    position or beginning(from_beginning),
                    isolation_of(overrides),
                ),
            )
        # Only now is there something to finish first; a node that is away can be interrupted before.
        stopping = stop_on_signal()
        line = make_writer(fields, separator, as_json=style == "json")
        printed = copy_records(consumer, line, stopping, max_messages, idle_timeout)
    notice(f"{plural(printed, 'message')} from {', '.join(topics)}")


def copy_records(
    consumer: "Consumer", line: Writer, stopping: threading.Event, max_messages: int | None, idle_timeout: float | None
) -> int:
    """Print records until told to stop, or one of the limits is reached; returns how many.

    Signals are looked at between two batches only, so that no record is handed over, and committed, but not printed.
    """
    printed, last = 0, time.monotonic()
    while not stopping.is_set() and (max_messages is None or printed < max_messages):
        wanted = BATCH if max_messages is None else min(BATCH, max_messages - printed)
        messages = consume_batch(consumer, wanted)
        if messages:
            write_messages(messages, line)
            printed += len(messages)
            last = time.monotonic()
        elif idle_timeout is not None and time.monotonic() - last >= idle_timeout:
            break
    return printed


def consume_batch(consumer: "Consumer", wanted: int) -> "list[Message]":
    """What has come lately. Raises CommandError where the group's members are of another kind."""
    from muster.client.errors import GroupNotFound

    try:
        return consumer.consume(wanted, CHECK_INTERVAL_S)
    except GroupNotFound as error:
        # A member makes its group: only one of another kind under that name is no group to it (KIP-848).
        raise CommandError(str(error), code=Exit.CONFLICT) from None


def isolation_of(overrides: dict[str, str]) -> "IsolationLevel":
    """The consumer itself refuses a level that does not exist."""
    return "read_committed" if overrides.get("isolation.level") == "read_committed" else "read_uncommitted"


def beginning(first: bool) -> Position:
    return Position("start" if first else "end")


def assign_partitions(consumer: "Consumer", offsets: dict[tuple[str, int], int]) -> None:
    """Assign these partitions to oneself, each from its offset on."""
    consumer.assign(list(offsets))
    for partition, offset in offsets.items():
        consumer.seek(partition, offset)


def is_node_named() -> bool:
    """Whether a node was named, by --bootstrap or in the environment."""
    source = click.get_current_context().get_parameter_source("bootstrap")
    return source is click.core.ParameterSource.COMMANDLINE or bool(os.environ.get("MUSTER_BOOTSTRAP"))


def check_topics(topics: Sequence[str], group: str | None) -> None:
    """Raises UsageError for a pattern that is none, or has no group to go with it, or stands beside other topics."""
    patterns = [topic for topic in topics if topic.startswith("^")]
    if not patterns:
        return
    topic = patterns[0]
    if len(topics) > 1:
        raise click.UsageError(f"{topic!r} is a pattern and stands alone; write the topics as one, such as '^(a|b)$'")
    if group is None:
        raise click.UsageError(f"{topic!r} is a pattern; expected one topic, or --group with it")
    try:
        re.compile(topic)
    except re.error as error:
        raise click.UsageError(
            f"{topic!r} is not a regular expression ({error}); expected one such as '^orders-'"
        ) from None


def start_offsets(
    bootstrap: str,
    overrides: dict[str, str],
    topics: Sequence[str],
    numbers: Sequence[int],
    position: Position,
    isolation: "IsolationLevel",
) -> dict[tuple[str, int], int]:
    """Where to begin in each partition, within what its log has for such a reader."""
    from muster.client import Admin
    from muster.client.config import ClientConfig
    from muster.storage.settings_text import to_dotted

    every_client = {to_dotted(name) for name in ClientConfig.model_fields}
    shared = {key: value for key, value in overrides.items() if key in every_client}
    listed = "" if not numbers else ":" + ",".join(map(str, numbers))
    with Admin(client_properties(bootstrap, shared)) as admin:
        chosen = resolve_partitions(admin, [topic + listed for topic in topics])
        if position.kind != "shift":
            return find_targets(admin, dict.fromkeys(chosen, position), {}, isolation)
        ends = fetch_offsets_at(admin, dict.fromkeys(chosen, LATEST), isolation)
        return find_targets(admin, dict.fromkeys(chosen, position), ends, isolation)


def write_messages(messages: Sequence["Message"], line: Writer) -> None:
    """One line each. Flushed, because somebody may be reading along."""
    out = sys.stdout.buffer
    for message in messages:
        out.write(line(message) + b"\n")
    out.flush()


def report_rebalance(consumer: "Consumer", partitions: Sequence["TopicPartition"], event: "RebalanceEvent") -> None:
    """One line per callback: what came or went, and why."""
    from muster.coordinator.observability.views.formatting import spans

    by_topic: dict[str, list[int]] = {}
    for topic, number in partitions:
        by_topic.setdefault(topic, []).append(number)
    named = " ".join(f"{topic}[{spans(numbers)}]" for topic, numbers in sorted(by_topic.items())) or "nothing"
    cause = event.cause.name.lower().replace("_", " ")
    notice(
        f"{event.kind}: {named} (generation {event.generation}; {cause}{': ' if event.detail else ''}{event.detail})"
    )
