"""`muster engine init`."""

from pathlib import Path

import click

from muster.coordinator.cli.common.output import notice
from muster.coordinator.cli.engine.asking import ask, settings_of, upstream_options


@click.command()
@upstream_options
def init(engine: str | None, file: Path | None, given: dict[str, str]) -> None:
    """Make the state topic, or look whether the one there will do.

    A node does the same when it starts. Beforehand it is of use where nodes may not create topics, and to make the
    topic anew after it was lost: nodes that run never do that by themselves.
    """
    from muster.coordinator.engine.configured import wanted_of
    from muster.coordinator.engine.starting import usable

    settings = settings_of(engine, file, given)
    batch_bytes = ask(settings, lambda upstream: usable(upstream, wanted_of(settings)))
    notice(
        f"{settings.state_topic} will do: {settings.offsets_topic_num_partitions} partitions, "
        f"{batch_bytes:,} bytes for one batch"
    )
