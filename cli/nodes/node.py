"""`muster serve`, `muster settings` and `muster health`: run one node, show its settings, ask whether it serves.

`muster serve` runs a node until a signal stops it. `muster settings` shows every setting of a node: its value, its
default and one sentence each. `muster health` asks as probes and load balancers do (grpc.health.v1); it imports
neither the client nor the settings unless it needs TLS or a token, so that a probe stays cheap.
"""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.common.commands import CommandError, Exit, Unhealthy
from muster.cli.common.options import (
    FORMATS,
    announce_option,
    bootstrap_option,
    connect_admin,
    current_command_config,
    key_values,
    node_file_option,
    repeated_option,
    require_listening_node,
    seconds_option,
    set_option,
    speaks_tls,
    until_eof_option,
)
from muster.cli.common.output import columns, echo_exactly, notice, print_rows

if TYPE_CHECKING:
    import grpc
    from google.protobuf.message import Message
    from grpc_health.v1 import health_pb2_grpc

    from muster.client.calls.methods import ClientMethod
    from muster.coordinator.config import Settings
    from muster.coordinator.observability.views.settings import NodeSettingRow
    from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

CallRequest = TypeVar("CallRequest", bound="Message")
CallResponse = TypeVar("CallResponse")

# `muster serve`
# --------------

WHERE = "[SSL://]HOST:PORT"
VERBOSITY = "GRPC_VERBOSITY"


@click.command()
@node_file_option
@set_option
@click.option("--engine", metavar="URL", help="Coordinate groups of this Kafka: kafka://HOST:PORT,... (engine).")
@click.option("--data", metavar="DIR", help="The data directory (log.dirs).")
@click.option("--listen", metavar=WHERE, help="Serve gRPC on this address (listeners); port 0 picks a free port.")
@click.option("--kafka-listen", metavar=WHERE, help="Also serve Kafka's protocol on this address (kafka.listeners).")
@click.option(
    "--advertise", metavar="HOST:PORT", help="Address that Kafka clients connect to (kafka.advertised.listeners)."
)
@click.option("--http", metavar=WHERE, help="Serve probes, JSON API and web page on this address (http.listeners).")
@announce_option
@until_eof_option
def serve(
    file: Path | None,
    overrides: dict[str, str],
    engine: str | None,
    data: str | None,
    listen: str | None,
    kafka_listen: str | None,
    advertise: str | None,
    http: str | None,
    announce: bool,
    until_eof: bool,
) -> int:
    """Run a node.

    Settings come from FILE, then from --set, --data, --listen and similar options, which win. `muster settings` lists
    them with their defaults; `muster settings -o wide NAME` explains one. SIGTERM and Ctrl-C drain the node.
    """
    from muster.coordinator.config import SettingsError, load_settings

    named = {
        "engine": engine,
        "log.dirs": data,
        "listeners": listen,
        "kafka.listeners": kafka_listen,
        "kafka.advertised.listeners": advertise,
        "http.listeners": http,
    }
    given = overrides | {key: value for key, value in named.items() if value is not None}
    try:
        settings = load_settings(file, given)
    except SettingsError as error:
        raise CommandError(str(error), code=Exit.USAGE) from error
    if settings.grpc_listener.encrypted and os.environ.get(VERBOSITY) == "ERROR":
        # For each handshake by a name that its certificate has not, gRPC would write that name as it came: a stranger's
        # bytes, as often as he likes. It reads the word as it is imported.
        os.environ[VERBOSITY] = "NONE"
    from muster.coordinator.server.node.main import run_node

    if until_eof:
        from muster.cli.common.commands import stop_with_stdin

        stop_with_stdin()
    return run_node(settings, sys.stdout if announce else None)


# `muster settings`
# -----------------

SETTING_COLUMNS = columns("SETTING:cyan, VALUE, DEFAULT, ALLOWED+, MEANING+")
WIDTH = 98


@click.command()
@bootstrap_option
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="Read this properties file.")
@repeated_option(
    "--set", "overrides", metavar="KEY=VALUE", callback=key_values, help="Set a property as `muster serve` does"
)
@click.option("--running", is_flag=True, help="Show the settings of the running node at --bootstrap.")
@click.option("--changed", is_flag=True, help="Show only settings that differ from their defaults.")
@click.option(
    "-o",
    "--output",
    "style",
    type=click.Choice([*FORMATS, "properties"]),
    default="table",
    show_default=True,
    help="Output format; wide adds allowed values and meanings, properties prints a file for --config.",
)
@click.argument("names", nargs=-1, metavar="[NAME]...")
def settings(
    bootstrap: str,
    file: Path | None,
    overrides: dict[str, str],
    running: bool,
    changed: bool,
    style: str,
    names: tuple[str, ...],
) -> None:
    """Show the settings of a node, all or those that match NAME.

    Part of a name is enough: `muster settings session`. Without --running, shows the settings that `muster serve`
    would start with, given the same --config and --set, and reports mistakes in them; nothing is started.
    """
    if running and (file or overrides):
        raise click.UsageError("--running asks a running node; leave out --config and --set")
    rows = running_rows(bootstrap) if running else setting_rows(load_node_settings(file, overrides))
    rows = [row for row in find_settings(rows, names) if not changed or row["value"] != row["default"]]
    if style == "properties":
        echo_exactly(format_properties(rows))
    else:
        print_rows(rows, SETTING_COLUMNS, style)


def load_node_settings(
    file: Path | None, overrides: Mapping[str, str], *, of_file: Callable[[str], bool] = lambda key: True
) -> "Settings":
    """Raises CommandError."""
    from muster.coordinator.config import SettingsError, load_settings

    try:
        return load_settings(file, overrides, of_file=of_file)
    except SettingsError as error:
        raise CommandError(str(error), code=Exit.USAGE) from error


def setting_rows(given: "Settings") -> "list[NodeSettingRow]":
    from muster.coordinator.config import known_settings
    from muster.coordinator.observability.views.settings import node_setting_row
    from muster.storage.settings_text import shown_setting

    of = {field.alias or name: name for name, field in type(given).model_fields.items()}
    return [node_setting_row(name, shown_setting(given, name, of[name]) or "") for name in known_settings()]


def running_rows(bootstrap: str) -> "list[NodeSettingRow]":
    """What a node says of itself."""
    from muster.coordinator.observability.views.settings import node_setting_row

    with connect_admin(bootstrap, current_command_config()) as admin:
        told = admin.describe_node()
    return [node_setting_row(name, value) for name, value in told.items()]


def find_settings(rows: "Sequence[NodeSettingRow]", words: Sequence[str]) -> "list[NodeSettingRow]":
    """The rows whose name is one of the words, or else has it in it. Raises CommandError for a word that none has."""
    if not words:
        return list(rows)
    names = [str(row["setting"]) for row in rows]
    chosen: set[str] = set()
    for word in words:
        hits = {word} if word in names else {name for name in names if word in name}
        if not hits:
            near = get_close_matches(word, names, n=1, cutoff=0.6)
            remedy = f"did you mean {near[0]}?" if near else "`muster settings` lists all there are"
            raise CommandError(f"no setting of a node is called {word!r}", remedy=remedy, code=Exit.NOT_FOUND)
        chosen |= hits
    return [row for row in rows if row["setting"] in chosen]


def format_properties(rows: Sequence[Mapping[str, Any]]) -> str:
    lines = []
    for each in rows:
        lines += [f"# {line}" for line in wrap(f"{each['meaning']} Allowed: {each['allowed']}.", width=WIDTH)]
        lines += [f"{each['setting']}={each['value']}", ""]
    return "\n".join(lines)


# `muster health`
# ---------------

ZOOKEEPER = "zookeeper"
"""The part that only a node with zookeeper.connect has."""

MAX_UNWELL_LINES = 20
"""About partitions: those of one topic with the same trouble have one."""


@click.command()
@bootstrap_option
@seconds_option(
    "--timeout", 3.0, "How long to wait for an answer; if given, also wait for a node that is still starting.", most=600
)
@click.option(
    "--service",
    default="",
    metavar="NAME",
    help="Check one part only: a gRPC service, or zookeeper (the node's connection to it).",
)
def health(bootstrap: str, timeout: float, service: str) -> None:
    """Check whether a node is serving; exit code 4 if not.

    Prints the reason. In a cluster, also fails when a partition has no leader, or too few replicas in sync. The first
    line, like gRPC's health checks, says only whether this node serves requests.
    """
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    source = click.get_current_context().get_parameter_source("timeout")
    if source is click.core.ParameterSource.DEFAULT:
        require_listening_node([bootstrap])
    with open_channel(bootstrap) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(service=service), timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise CommandError(
                    f"{bootstrap} has no part called {service!r}", remedy="ask without --service", code=Exit.NOT_FOUND
                ) from None
            raise explain_refusal(bootstrap, error) or Unhealthy(
                f"{bootstrap} gave no answer within {timeout:g} s ({error.code().name})",
                "expected a node that serves",
                "is one running there (muster serve), and is --bootstrap right?",
            ) from None
        away = not service and has_lost_zookeeper(stub, timeout)
        wrong = fetch_conditions(channel, bootstrap, timeout)
        of_cluster = None if service else unwell_partitions(channel, timeout)
        unwell = of_cluster or []
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    click.echo(status)
    if away:
        notice(
            f"{bootstrap} is not in touch with ZooKeeper: it coordinates no central groups until it is; "
            "everything else is served"
            if of_cluster is None
            else f"{bootstrap} is not in touch with ZooKeeper: what is in sync goes on for as long as its session; "
            "until it is in touch it takes no topic, no election and no change of settings"
        )
    for condition in wrong:
        if condition.warning and not service:
            notice(condition_line(condition))
    wrong = [
        condition for condition in wrong if not condition.warning and (not service or condition.impairs == service)
    ]
    if answer.status != health_pb2.HealthCheckResponse.SERVING and service and not wrong:
        raise Unhealthy(
            f"{service} of {bootstrap} is {status}", "expected SERVING", "see the node's log for the reason"
        )
    if wrong or unwell:
        raise Unhealthy("\n".join([*map(condition_line, wrong), *unwell]))
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise Unhealthy(
            f"{bootstrap} is {status}", "expected SERVING", "it is being stopped; ask again once it is back"
        )


def open_channel(bootstrap: str) -> "grpc.Channel":
    """What --command-config says of TLS and tokens counts for probes too; without it nothing more is imported."""
    import grpc

    options = [("grpc.enable_http_proxy", 0)]
    if not (given := current_command_config()):
        return grpc.insecure_channel(bootstrap, options=options)
    from muster.client.config import ClientConfig, load
    from muster.client.credentials import Credentials

    security = load(ClientConfig, given, {}).security
    if security is None:
        return grpc.insecure_channel(bootstrap, options=options)
    return Credentials(security).blocking_channel(bootstrap, options)


def explain_refusal(bootstrap: str, error: "grpc.RpcError") -> CommandError | None:
    """What certificates or rights have to do with it; None: nothing."""
    import grpc

    from muster.client.calls.transport import describe_handshake_failure
    from muster.client.errors import AuthenticationError, CallNotAuthorized

    detail = error.details() or ""
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return CommandError(str(AuthenticationError(bootstrap, "asking for health", detail)))
    if error.code() is grpc.StatusCode.PERMISSION_DENIED:
        return CommandError(str(CallNotAuthorized(bootstrap, "asking for health", detail)))
    if (words := describe_handshake_failure(detail)) is not None:
        return Unhealthy(f"{bootstrap} {words}")
    if not current_command_config() and speaks_tls(bootstrap):
        return Unhealthy(
            f"{bootstrap} speaks TLS, and was asked without",
            "expected a client that does, too",
            "give --command-config a file with security.protocol=SSL and ssl.truststore.location",
        )
    return None


def call_once(
    channel: "grpc.Channel", method: "ClientMethod[CallRequest, CallResponse]", request: CallRequest, timeout: float
) -> CallResponse:
    """One call without retries, as a probe makes it. timeout: seconds. Raises grpc.RpcError."""
    call = channel.unary_unary(
        method.path,
        request_serializer=method.request.SerializeToString,
        response_deserializer=method.response.FromString,
    )
    answer: CallResponse = call(request, timeout=timeout)
    return answer


def fetch_conditions(channel: "grpc.Channel", bootstrap: str, timeout: float) -> "Sequence[pb.Condition]":
    """What the node says is wrong with it. Nothing, where it does not answer any more: it is being stopped."""
    import grpc

    from muster.client.calls.methods import DESCRIBE_NODE
    from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

    try:
        return list(call_once(channel, DESCRIBE_NODE, pb.DescribeNodeRequest(), timeout).conditions)
    except grpc.RpcError as error:
        if error.code() in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED):
            notice(
                f"{bootstrap} does not tell this caller what is wrong with it ({error.code().name}); give the login of "
                "somebody who may describe the cluster with --command-config"
            )
        return []


def unwell_partitions(channel: "grpc.Channel", timeout: float) -> list[str] | None:
    """Of a cluster: which partitions nobody leads, or which have too few copies in sync, in lines. None where the node
    is on its own, or does not tell."""
    import grpc

    from muster.client.calls.methods import DESCRIBE_CLUSTER
    from muster.coordinator.observability.views.cluster import age_words, unwell_lines
    from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb

    found: dict[tuple[str, int], pb.ClusterPartitionState] = {}
    try:
        for wanted in (pb.PARTITION_FILTER_OFFLINE, pb.PARTITION_FILTER_UNDER_MIN_ISR):
            answer = call_once(channel, DESCRIBE_CLUSTER, pb.DescribeClusterRequest(partitions=wanted), timeout)
            found |= {(row.topic, row.partition): row for row in answer.partitions}
    except grpc.RpcError:
        return None
    if answer.cut_off:
        return [age_words(answer)]  # how partitions stand by now, others know
    return unwell_lines(found.values(), MAX_UNWELL_LINES)


def condition_line(condition: "pb.Condition") -> str:
    """One trouble for people: name, sentence, since when and how often.

    >>> from types import SimpleNamespace as Condition
    >>> condition_line(Condition(name="disk-full", sentence="no room", since_ms=0, count=3))
    'disk-full: no room (since 1970-01-01T00:00:00Z, 3 times)'
    """
    since = datetime.fromtimestamp(condition.since_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    times = f", {condition.count} times" if condition.count > 1 else ""
    return f"{condition.name}: {condition.sentence} (since {since}{times})"


def has_lost_zookeeper(stub: "health_pb2_grpc.HealthStub", timeout: float) -> bool:
    """Whether the node has a ZooKeeper, and is not in touch with it."""
    import grpc
    from grpc_health.v1 import health_pb2

    try:
        answer = stub.Check(health_pb2.HealthCheckRequest(service=ZOOKEEPER), timeout=timeout)
    except grpc.RpcError:
        return False  # it has none; whether the node itself serves was asked before
    return bool(answer.status != health_pb2.HealthCheckResponse.SERVING)
