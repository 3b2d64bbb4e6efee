"""What tests with servers in their own process share."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeAlias

import pytest

from tests.support.client_node import admin, nobody, node, producer, topic
from tests.support.pace import pace
from tests.support.spark.session import spark
from tests.support.zookeeper.servers import zookeeper, zookeeper_ensemble, zookeeper_server

Story: TypeAlias = Callable[[], Coroutine[Any, Any, None]]
Run: TypeAlias = Callable[[Story], None]

PATIENCE_S = 60

__all__ = [
    "admin",
    "nobody",
    "node",
    "producer",
    "run",
    "runner",
    "spark",
    "topic",
    "zookeeper",
    "zookeeper_ensemble",
    "zookeeper_server",
]


@pytest.fixture(scope="session")
def runner() -> Iterator[asyncio.Runner]:
    """One event loop for all: several loops in a process share grpcio's poller and disturb each other."""
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture
def run(runner: asyncio.Runner) -> Run:
    """Runs a story to its end, or fails when it takes too long."""

    async def bounded(story: Story) -> None:
        async with asyncio.timeout(PATIENCE_S * pace()):
            await story()

    return lambda story: runner.run(bounded(story))
