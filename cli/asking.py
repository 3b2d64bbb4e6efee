"""What the commands of `muster engine` have in common: how they reach the Kafka that a node is over."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from muster.cli.common.errors import CommandError, Exit
from muster.cli.common.options import key_values

if TYPE_CHECKING:
    from muster.coordinator.config import Settings
    from muster.coordinator.kafka_backend.upstream.upstream import Upstream

Result = TypeVar("Result")
Function = TypeVar("Function", bound=Callable[..., Any])


def upstream_options(function: Function) -> Function:
    """--engine, --config and --set, as `engine`, `file` and `given`."""
    for option in (
        click.option("--set", "given", multiple=True, metavar="KEY=VALUE", callback=key_values,
                     help="Set any setting of a node by its dotted name; may be repeated."),
        click.option("--config", "file", type=click.Path(path_type=Path), help="A node's properties file."),
        click.option("--engine", metavar="URL", help="kafka://HOST:PORT,..., unless --config says it."),
    ):  # fmt: skip
        function = option(function)
    return function


def load_engine_settings(engine: str | None, file: Path | None, given: dict[str, str]) -> "Settings":
    from muster.cli.nodes.settings import load_node_settings

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
    from muster.coordinator.kafka_backend.adopt import MoveBlocked, NoSuchUpstreamGroup
    from muster.coordinator.kafka_backend.backend_settings import upstream_address_of
    from muster.coordinator.kafka_backend.starting import UnusableUpstream
    from muster.coordinator.kafka_backend.upstream.errors import UpstreamError, UpstreamRefused
    from muster.coordinator.kafka_backend.upstream.upstream import Upstream

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
