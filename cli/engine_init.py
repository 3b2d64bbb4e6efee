"""`muster engine`: groups over somebody's Kafka."""

import click

from muster.cli.common.lazy import LazyCommand, LazyGroup

ENGINE_COMMANDS = {
    "status": LazyCommand("muster.cli.status:status", "Show the nodes over that Kafka, and whose each shard is."),
    "init": LazyCommand("muster.cli.init:init", "Make the state topic, or look whether the one there will do."),
    "acls": LazyCommand(
        "muster.cli.acls:acls", "Print what Muster needs to be allowed there, and what shuts the back door."
    ),
    "adopt": LazyCommand(
        "muster.cli.engine_adoption:adopt", "Take groups over from that Kafka, with what they have committed."
    ),
    "release": LazyCommand(
        "muster.cli.engine_adoption:release", "Give a group back to that Kafka, with what it has committed."
    ),
}


@click.group(cls=LazyGroup, lazy=ENGINE_COMMANDS)
def engine() -> None:
    """Groups over somebody's Kafka (`muster serve --engine kafka://HOST:PORT`).

    These commands ask that Kafka themselves: --engine says where it is, --config and --set how it is reached (the
    node's own properties file will do).
    """
