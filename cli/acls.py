"""`muster engine acls`: commands of Kafka's own tool, to be looked at and run by whoever may."""

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from muster.cli.asking import load_engine_settings, upstream_options
from muster.cli.common.errors import CommandError, Exit

if TYPE_CHECKING:
    from muster.coordinator.config import Settings

LITERAL = re.compile(r"[A-Za-z0-9_-]*")


@click.command()
@upstream_options
@click.option("--principal", metavar="TYPE:NAME", help="Who Muster's nodes are there; else User: and their login.")
@click.option("--deny", multiple=True, metavar="TYPE:NAME", help="Also deny these principals; may be repeated.")
@click.option("--group", "groups", multiple=True, metavar="GROUP", help="Shut the back door of these; may be repeated.")
def acls(
    engine: str | None,
    file: Path | None,
    given: dict[str, str],
    principal: str | None,
    deny: Sequence[str],
    groups: Sequence[str],
) -> None:
    """Print what Muster needs to be allowed in that Kafka, and what keeps clients out of its groups there.

    Nothing is changed: the lines are commands for kafka-acls.sh. Without --group they are made of engine.kafka.groups,
    where that is `.*`, or a beginning such as `shop-.*`.
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
        f"what engine.kafka.groups ({wanted}) and engine.kafka.groups.except say together is no rule of Kafka's",
        "expected --group GROUP, once for each",
        code=Exit.USAGE,
    )
