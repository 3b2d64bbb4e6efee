"""`muster engine init`, `status` and `acls`: the state that Muster keeps in a Kafka, and the rights it needs there.

Commands reach the same Kafka as `muster serve --engine` does, with the same settings. `acls` only prints commands of
Kafka's own tool, for somebody with the right to run them to review.
"""

import asyncio
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.common.commands import CommandError, ConnectionOption, Exit
from muster.cli.common.options import key_values, output_option, repeated_option
from muster.cli.common.output import columns, notice, print_document, print_rows
from muster.coordinator.observability.views.formatting import plural

if TYPE_CHECKING:
    from muster.coordinator.config import Settings
    from muster.coordinator.kafka_backend.inspection import BackendSurvey
    from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream


# Reaching the Kafka below
# ------------------------

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])


def upstream_options(function: Function) -> Function:
    """--engine, --config and --set, as `engine`, `file` and `given`."""
    for option in (
        repeated_option(
            "--set", "given", metavar="KEY=VALUE", callback=key_values, cls=ConnectionOption,
            help="Set a setting of a node by its dotted name",
        ),
        click.option("--config", "file", type=click.Path(path_type=Path), cls=ConnectionOption,
                     help="Read a node's properties from this file."),
        click.option("--engine", metavar="URL", cls=ConnectionOption,
                     help="Connect to this Kafka: kafka://HOST:PORT,..., unless --config names it."),
    ):  # fmt: skip
        function = option(function)
    return function


def load_engine_settings(engine: str | None, file: Path | None, given: dict[str, str]) -> "Settings":
    from muster.cli.nodes.node import load_node_settings

    settings = load_node_settings(
        file, given if engine is None else {**given, "engine": engine}, of_file=is_engine_setting
    )
    if not settings.upstream:
        raise CommandError(
            "no Kafka is named", "expected --engine kafka://HOST:PORT, or engine in --config", code=Exit.USAGE
        )
    return settings


def is_engine_setting(name: str) -> bool:
    """Whether a setting says something of that Kafka. Where the node listens is nothing to these commands, and may want
    what is said only when it is started.

    >>> is_engine_setting("engine.kafka.cluster"), is_engine_setting("kafka.listeners")
    (True, False)
    """
    return name == "engine" or name.startswith("engine.") or name in ("offsets.topic.num.partitions", "node.id")


def run_upstream_work(settings: "Settings", work: "Callable[[Upstream], Awaitable[Result]]") -> Result:
    """Do something with the upstream, and tell what goes wrong as a command does. A loop of its own."""
    return asyncio.run(await_upstream_work(settings, work))


async def await_upstream_work(settings: "Settings", work: "Callable[[Upstream], Awaitable[Result]]") -> Result:
    from muster.coordinator.kafka_backend.backend_settings import upstream_address_of
    from muster.coordinator.kafka_backend.offset_migration import MoveBlocked, NoSuchUpstreamGroup
    from muster.coordinator.kafka_backend.state_topic import UnusableUpstream
    from muster.coordinator.kafka_backend.upstream.protocol import UpstreamError, UpstreamRefused
    from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream

    upstream = Upstream(upstream_address_of(settings))
    try:
        return await work(upstream)
    except MoveBlocked as error:
        raise CommandError(str(error), code=Exit.CONFLICT) from error
    except NoSuchUpstreamGroup as error:
        raise CommandError(str(error), "expected one that it lists", code=Exit.NOT_FOUND) from error
    except (UnusableUpstream, UpstreamRefused) as error:
        raise CommandError(str(error)) from error
    except UpstreamError as error:
        raise CommandError(str(error), code=Exit.UNHEALTHY) from error
    finally:
        upstream.close()


# `init`
# ------


@click.command()
@upstream_options
@click.option("--again", is_flag=True, help="Accept the topic as it is, or create it again, after a loss.")
@click.option("--security", is_flag=True, help="Also create the topic of rights, tokens and quotas (authorizer=acl).")
def init(engine: str | None, file: Path | None, given: dict[str, str], again: bool, security: bool) -> None:
    """Create the state topic, or check the existing one.

    A node does the same when it starts; this command helps where nodes may not create topics. Only --again recreates
    a topic that existed before, or accepts one that has lost something: nodes never do that themselves, and running
    nodes continue within seconds. With --security, also creates the topic of rights where it is missing or empty,
    which nodes do only together with a first state topic.
    """
    from muster.coordinator.kafka_backend.backend_settings import state_topic_spec_of
    from muster.coordinator.kafka_backend.state_topic import accept_state_topic, prepare_state_topic

    settings = load_engine_settings(engine, file, given)
    if security:
        from muster.coordinator.server.kafka_backend.security_store import prepare_security

        asking = settings.model_copy(update={"authorizer": "acl"})
        run_upstream_work(settings, lambda upstream: prepare_security(asking, upstream, anew=True))
        notice(f"{settings.security_topic} will do")
    look = accept_state_topic if again else prepare_state_topic
    batch_bytes = run_upstream_work(settings, lambda upstream: look(upstream, state_topic_spec_of(settings)))
    notice(
        f"{settings.state_topic} will do: {settings.offsets_topic_num_partitions} partitions, "
        f"{batch_bytes:,} bytes for one batch"
    )


# `status`
# --------

NODE_COLUMNS = columns("NODE:cyan, STATE, SHARDS, GRPC, KAFKA, HOST, INSTANCE+")
SHARD_COLUMNS = columns("SHARD:cyan, NODE, LEADER, RECORDS")


@click.command()
@upstream_options
@output_option
@click.option("--shards", is_flag=True, help="List the shards: owner, leader in that Kafka, and number of records.")
def status(engine: str | None, file: Path | None, given: dict[str, str], style: str, shards: bool) -> int:
    """Show nodes and the owner of each shard.

    Exit code 4 while a shard has no owner, or no leader there. The nodes' metrics show how long acknowledgements take
    and which records were skipped as void (muster_engine_*).
    """
    from muster.coordinator.kafka_backend.inspection import survey_backend

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


# `acls`
# ------

LITERAL = re.compile(r"[A-Za-z0-9_-]*")


@click.command()
@upstream_options
@click.option(
    "--principal",
    metavar="TYPE:NAME",
    help="Principal of Muster's nodes in that Kafka; User: and their login by default.",
)
@repeated_option("--deny", metavar="TYPE:NAME", help="Also deny these principals")
@repeated_option("--group", "groups", metavar="GROUP", help="Deny others access to this group")
def acls(
    engine: str | None,
    file: Path | None,
    given: dict[str, str],
    principal: str | None,
    deny: Sequence[str],
    groups: Sequence[str],
) -> None:
    """Print the ACLs that Muster needs in that Kafka.

    Includes those that keep clients out of Muster's groups there. Nothing is changed: the lines are commands for
    kafka-acls.sh. Without --group they follow engine.kafka.groups, where that is `.*` or a prefix such as `shop-.*`.
    """
    settings = load_engine_settings(engine, file, given)
    login = settings.engine_kafka_sasl_username
    who = principal or (f"User:{login}" if login else "")
    if not who:
        raise CommandError(
            "who Muster's nodes are in that Kafka is not known", "expected --principal User:NAME", code=Exit.USAGE
        )
    for line in (*acl_commands(settings, who, deny, groups), *client_acl_commands(settings)):
        click.echo(line)


def acl_commands(settings: "Settings", who: str, deny: Sequence[str], groups: Sequence[str]) -> Iterator[str]:
    tool = command_prefix(settings)
    me, cluster = f"--allow-principal {shlex.quote(who)}", settings.engine_kafka_cluster
    topic = shlex.quote(settings.state_topic)
    yield "# what the nodes do there"
    yield (
        f"{tool} {me} --topic {topic} --operation Read --operation Write --operation Create --operation Describe "
        "--operation DescribeConfigs"
    )
    yield (
        f"{tool} {me} --transactional-id {cluster}.shard- --resource-pattern-type prefixed --operation Write "
        "--operation Describe"
    )
    yield "# with authorizer=acl: lists of rights, tokens and quotas. Nobody else may have a right to this topic"
    yield (
        f"{tool} {me} --topic {shlex.quote(settings.security_topic)} --operation Read --operation Write "
        "--operation Create --operation Describe --operation DescribeConfigs"
    )
    yield f"{tool} {me} --transactional-id {cluster}.security --operation Write --operation Describe"
    yield f"{tool} {me} --group {cluster}.nodes --operation Read --operation Describe"
    yield f"{tool} {me} --topic '*' --operation Describe"
    yield "# exactly-once: positions of clients' transactions are written beside their records"
    yield f"{tool} {me} --transactional-id '*' --operation Write --operation Describe"
    yield "# groups of ours that are at the brokers nevertheless are looked for, adopted, mirrored and given back"
    yield f"{tool} {me} --group '*' --operation Describe"
    yield "# the back door: with a rule for Muster's nodes alone nobody else may read in these groups at the brokers"
    yield "# (who has Read by a wider rule keeps it: take that away, or --deny TYPE:NAME)"
    for resource in group_resources(settings, groups):
        yield f"{tool} {me} {resource} --operation Read"
        for each in deny:
            yield f"{tool} --deny-principal {shlex.quote(each)} {resource} --operation Read"


def client_acl_commands(settings: "Settings") -> Iterator[str]:
    """Of those as whom clients with certificates come to the brokers."""
    who = settings.engine_kafka_proxy_principal
    if not who:
        return
    tool = f"{command_prefix(settings)} --deny-principal {shlex.quote(who)}"
    cluster = settings.engine_kafka_cluster
    yield "# engine.kafka.proxy.principal: all clients with certificates come to the brokers as it. It needs the rights"
    yield "# of these applications to topics and transactional ids, and none to what is Muster's:"
    for topic in (settings.state_topic, settings.security_topic):
        yield f"{tool} --topic {shlex.quote(topic)} --operation All"
    yield f"{tool} --transactional-id {cluster}.shard- --resource-pattern-type prefixed --operation All"
    yield f"{tool} --transactional-id {cluster}.security --operation All"
    yield f"{tool} --group {cluster}.nodes --operation All"


def command_prefix(settings: "Settings") -> str:
    """How each of the commands begins."""
    server = ",".join(f"{host}:{port}" for host, port in settings.upstream)
    return f"kafka-acls.sh --bootstrap-server {server} --add"


def group_resources(settings: "Settings", groups: Sequence[str]) -> list[str]:
    """The groups that are Muster's, in the tool's words."""
    if groups:
        return [f"--group {shlex.quote(group)}" for group in groups]
    wanted = settings.engine_kafka_groups
    beginning = wanted.removesuffix(".*")
    if wanted.endswith(".*") and LITERAL.fullmatch(beginning) and not settings.engine_kafka_groups_except:
        return [f"--group {beginning} --resource-pattern-type prefixed" if beginning else "--group '*'"]
    raise CommandError(
        f"Kafka's ACLs cannot express engine.kafka.groups ({wanted}) together with engine.kafka.groups.except",
        "expected --group GROUP, once for each",
        code=Exit.USAGE,
    )
