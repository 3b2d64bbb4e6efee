"""`muster engine init`."""

from pathlib import Path

import click

from muster.cli.asking import load_engine_settings, run_upstream_work, upstream_options
from muster.cli.common.output import notice


@click.command()
@upstream_options
@click.option(
    "--again",
    is_flag=True,
    help="The topic was deleted, cut or made anew, and you have looked: what is there counts from now on.",
)
@click.option("--security", is_flag=True, help="Also the topic of rights, tokens and quotas (authorizer=acl).")
def init(engine: str | None, file: Path | None, given: dict[str, str], again: bool, security: bool) -> None:
    """Make the state topic, or look whether the one there will do.

    A node does the same when it starts. Beforehand it is of use where nodes may not create topics. A topic that was
    there before is made anew, or taken as it is after it lost something, with --again only: nodes never do that by
    themselves, and those that run go on within seconds. With --security the topic of rights is made, too, where it is
    missing or empty, which nodes do by themselves only together with a first state topic.
    """
    from muster.coordinator.kafka_backend.again import accept_state_topic
    from muster.coordinator.kafka_backend.backend_settings import state_topic_spec_of
    from muster.coordinator.kafka_backend.starting import prepare_state_topic

    settings = load_engine_settings(engine, file, given)
    if security:
        from muster.coordinator.server.kafka_backend.rights import prepare_security

        asking = settings.model_copy(update={"authorizer": "acl"})
        run_upstream_work(settings, lambda upstream: prepare_security(asking, upstream, anew=True))
        notice(f"{settings.security_topic} will do")
    look = accept_state_topic if again else prepare_state_topic
    batch_bytes = run_upstream_work(settings, lambda upstream: look(upstream, state_topic_spec_of(settings)))
    notice(
        f"{settings.state_topic} will do: {settings.offsets_topic_num_partitions} partitions, "
        f"{batch_bytes:,} bytes for one batch"
    )
