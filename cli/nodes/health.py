"""`muster health`: ask a node whether it serves, as probes and load balancers do (grpc.health.v1)."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from muster.cli.common.command_config import current_command_config
from muster.cli.common.errors import CommandError, Exit, Unhealthy
from muster.cli.common.options import NumberRange, bootstrap_option
from muster.cli.common.output import notice
from muster.cli.common.reach import require_listening_node

if TYPE_CHECKING:
    import grpc
    from grpc_health.v1 import health_pb2_grpc

    from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

ZOOKEEPER = "zookeeper"
"""The part that only a node with zookeeper.connect has."""

MAX_UNWELL_NAMED = 20
"""Partitions that are told one by one."""


@click.command()
@bootstrap_option
@click.option(
    "--timeout",
    type=NumberRange(0.01, 600),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an answer; said, it also waits for a node that is only just starting.",
)
@click.option(
    "--service",
    default="",
    metavar="NAME",
    help="Ask about one part: a gRPC service, or zookeeper (whether the node is in touch with it).",
)
def health(bootstrap: str, timeout: float, service: str) -> None:
    """Exit with 0 when the node serves and nothing is wrong with it, with 4 and the reason otherwise.

    Of a cluster, also when any partition has no leader, or too few copies in sync. Whether this one node may get
    requests is another question, which the answer's first line and gRPC's health checks tell.
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
        wrong = fetch_conditions(channel, timeout)
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
    if service:
        wrong = [condition for condition in wrong if condition.impairs == service]
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

    from muster.client.calls.troubles import describe_handshake_failure
    from muster.client.errors import AuthenticationError, CallNotAuthorized

    detail = error.details() or ""
    if error.code() is grpc.StatusCode.UNAUTHENTICATED:
        return CommandError(str(AuthenticationError(bootstrap, "asking for health", detail)))
    if error.code() is grpc.StatusCode.PERMISSION_DENIED:
        return CommandError(str(CallNotAuthorized(bootstrap, "asking for health", detail)))
    if (words := describe_handshake_failure(detail)) is not None:
        return Unhealthy(f"{bootstrap} {words}")
    return None


def fetch_conditions(channel: "grpc.Channel", timeout: float) -> "Sequence[pb.Condition]":
    """What the node says is wrong with it. Nothing, where it does not answer any more: it is being stopped."""
    import grpc

    from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
    from muster.coordinator.rpc.v1.coordinator_service_pb2_grpc import GroupCoordinatorStub

    stub = GroupCoordinatorStub(channel)  # type: ignore[no-untyped-call]
    try:
        return list(stub.DescribeNode(pb.DescribeNodeRequest(), timeout=timeout).conditions)
    except grpc.RpcError:
        return []


def unwell_partitions(channel: "grpc.Channel", timeout: float) -> list[str] | None:
    """Of a cluster: which partitions nobody leads, or which have too few copies in sync, a sentence each. None where
    the node is on its own, or does not tell."""
    import grpc

    from muster.coordinator.observability.views.cluster import age_words, unwell_words
    from muster.coordinator.rpc.v1 import cluster_service_pb2 as pb
    from muster.coordinator.rpc.v1.cluster_service_pb2_grpc import ClusterStub

    stub = ClusterStub(channel)  # type: ignore[no-untyped-call]
    found: dict[tuple[str, int], pb.ClusterPartitionState] = {}
    try:
        for wanted in (pb.PARTITION_FILTER_OFFLINE, pb.PARTITION_FILTER_UNDER_MIN_ISR):
            answer = stub.DescribeCluster(pb.DescribeClusterRequest(partitions=wanted), timeout=timeout)
            found |= {(row.topic, row.partition): row for row in answer.partitions}
    except grpc.RpcError:
        return None
    if answer.cut_off:
        return [age_words(answer)]  # how partitions stand by now, others know
    lines = [unwell_words(found[place]) for place in sorted(found)]
    more = len(lines) - MAX_UNWELL_NAMED
    return (
        lines
        if more <= 0
        else [*lines[:MAX_UNWELL_NAMED], f"{more} more partitions: muster cluster partitions --under-min-isr"]
    )


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
