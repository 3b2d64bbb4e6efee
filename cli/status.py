"""`muster engine status`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from muster.cli.asking import load_engine_settings, run_upstream_work, upstream_options
from muster.cli.common.errors import Exit
from muster.cli.common.options import output_option
from muster.cli.common.output import Column, notice, print_document, print_rows
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.coordinator.kafka_backend.survey import BackendSurvey

NODE_COLUMNS = [
    Column("NODE", "node", style="cyan"),
    Column("STATE", "state"),
    Column("SHARDS", "shards"),
    Column("GRPC", "grpc"),
    Column("KAFKA", "kafka"),
    Column("HOST", "host"),
    Column("INSTANCE", "instance", wide=True),
]
SHARD_COLUMNS = [
    Column("SHARD", "shard", style="cyan"),
    Column("NODE", "node"),
    Column("LEADER", "leader"),
    Column("RECORDS", "records"),
]


@click.command()
@upstream_options
@output_option
@click.option("--shards", is_flag=True, help="A line for each shard: whose it is, who leads it there, how long it is.")
def status(engine: str | None, file: Path | None, given: dict[str, str], style: str, shards: bool) -> int:
    """Show the nodes over that Kafka, and whose each shard is.

    Exit code 4 while a shard is nobody's, or has no leader there. How long acknowledgements take, and what was passed
    over as void, the nodes' metrics tell (muster_engine_*).
    """
    from muster.coordinator.kafka_backend.survey import survey_backend

    settings = load_engine_settings(engine, file, given)
    found = run_upstream_work(
        settings, lambda upstream: survey_backend(upstream, settings.engine_kafka_cluster, settings.state_topic)
    )
    if style in ("json", "yaml"):
        print_document(status_document(found), style)
    elif shards:
        print_rows(shard_rows(found), SHARD_COLUMNS, style)
    else:
        print_rows(node_rows(found), NODE_COLUMNS, style)
    for sentence in find_troubles(found):
        notice(sentence)
    return Exit.UNHEALTHY if found.unowned or found.leaderless else Exit.OK


def node_rows(found: "BackendSurvey") -> list[dict[str, Any]]:
    return [
        {
            "node": node.node,
            "state": "draining" if node.draining else "up" if node.node in found.hosts else "gone",
            "shards": len(node.shards),
            "grpc": node.addresses.get("grpc"),
            "kafka": node.addresses.get("kafka"),
            "host": found.hosts.get(node.node, "").removeprefix("/") or None,
            "instance": node.instance,
        }
        for node in found.nodes
    ]


def shard_rows(found: "BackendSurvey") -> list[dict[str, Any]]:
    return [
        {
            "shard": shard.number,
            "node": shard.owner if shard.owner >= 0 else None,
            "leader": shard.leader if shard.leader >= 0 else None,
            "records": shard.records if shard.records >= 0 else None,
        }
        for shard in found.shards
    ]


def status_document(found: "BackendSurvey") -> dict[str, Any]:
    return {
        "upstream": {
            "cluster_id": found.cluster_id,
            "controller": found.controller,
            "brokers": [{"id": number, "address": address} for number, address in found.brokers.items()],
        },
        "state_topic": found.topic,
        "nodes": node_rows(found),
        "shards": shard_rows(found),
    }


def find_troubles(found: "BackendSurvey") -> list[str]:
    said = []
    if not found.nodes:
        said.append("no node is there: the nodes' group has no members")
    elif found.unowned:
        said.append(f"{plural(len(found.unowned), 'shard')} nobody's: {format_shards(found.unowned)}")
    if found.leaderless:
        said.append(
            f"{plural(len(found.leaderless), 'shard')} without a leader in {found.topic}: "
            f"{format_shards(found.leaderless)}"
        )
    return said


def format_shards(shards: list[int]) -> str:
    return ", ".join(map(str, shards[:10])) + (", ..." if len(shards) > 10 else "")
