"""`muster health`: ask a node whether it serves, as probes and load balancers do (grpc.health.v1)."""

import click

from coordinator.cli.errors import Unhealthy
from coordinator.cli.options import bootstrap_option


@click.command()
@bootstrap_option
@click.option(
    "--timeout",
    type=click.FloatRange(0.01, 600),
    default=3.0,
    show_default=True,
    metavar="SECONDS",
    help="How long to wait for an answer.",
)
def health(bootstrap: str, timeout: float) -> None:
    """Exit with 0 when the node serves, with 4 when it drains or does not answer."""
    import grpc
    from grpc_health.v1 import health_pb2, health_pb2_grpc

    with grpc.insecure_channel(bootstrap, options=[("grpc.enable_http_proxy", 0)]) as channel:
        stub = health_pb2_grpc.HealthStub(channel)
        try:
            answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=timeout, wait_for_ready=True)
        except grpc.RpcError as error:
            raise Unhealthy(
                f"{bootstrap} gave no answer within {timeout:g} s ({error.code().name})",
                "expected a node that serves",
                "is one running there (muster serve), and is --bootstrap right?",
            ) from None
    status = health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status)
    click.echo(status)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        raise Unhealthy(
            f"{bootstrap} is {status}", "expected SERVING", "it is being stopped; ask again once it is back"
        )
