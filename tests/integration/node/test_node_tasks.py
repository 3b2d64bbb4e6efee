"""A background task of a node that ends by a mistake: the log, `muster health` and /metrics say so, and it goes on."""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from structlog.testing import capture_logs

from muster.coordinator.edge import background_tasks
from muster.coordinator.kafka.connections.listener import ConnectionListener
from muster.coordinator.server.backend.upkeep import NodeUpkeep
from muster.coordinator.server.driver.clock import WallClock
from muster.coordinator.server.driver.driver import EngineDriver
from muster.coordinator.server.monitoring.group_sampling import GroupSampler
from muster.coordinator.server.node.node import CoordinatorNode
from muster.coordinator.server.security.audit_log import AuditTrail
from muster.storage.service.staging_service import StagingService
from tests.support.grpc_node import serving

pytestmark = pytest.mark.integration

Loops = dict[str, tuple[type, str]]

LOOPS: Loops = {
    "samples of groups": (GroupSampler, "_run"),
    "log upkeep": (NodeUpkeep, "_tick"),
    "compaction": (NodeUpkeep, "_compact"),
    "staged records": (StagingService, "keep_up"),
    "idle connections": (ConnectionListener, "_sweep"),
}
OF_SECURITY: Loops = {"clock of credentials": (WallClock, "turn"), "audit log": (AuditTrail, "_turn")}


def mistaken_once(method: Callable[[Any], Any], again: asyncio.Event) -> Callable[[Any], Any]:
    """The first of its runs ends by a mistake; `again`: another one was begun."""
    runs = 0

    async def run(self: Any) -> None:
        nonlocal runs
        runs += 1
        if runs == 1:
            raise ZeroDivisionError
        again.set()
        await method(self)

    return run


async def health_of(node: CoordinatorNode) -> str:
    words = ["health", "--bootstrap", f"127.0.0.1:{node.bound.port}"]
    run = f"import sys; from muster.cli.main import main; sys.exit(main({words!r}))"
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", run, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
    )
    out, _ = await process.communicate()
    return out.decode()


async def metrics_of(node: CoordinatorNode) -> str:
    assert node.http_bound is not None
    async with httpx.AsyncClient() as client:
        return (await client.get(f"http://{node.http_bound.host}:{node.http_bound.port}/metrics")).text


@asynccontextmanager
async def all_mistaken_once(
    loops: Loops, data: Path, monkeypatch: pytest.MonkeyPatch, **more: str
) -> AsyncIterator[CoordinatorNode]:
    """A node each of whose loops has ended by a mistake, and was begun again."""
    monkeypatch.setattr(background_tasks, "FIRST_PAUSE_S", 0.001)
    again = {name: asyncio.Event() for name in loops}
    for name, (owner, method) in loops.items():
        monkeypatch.setattr(owner, method, mistaken_once(getattr(owner, method), again[name]))
    with capture_logs() as lines:
        async with asyncio.timeout(60), serving(data, **more) as node:
            for name in loops:
                await again[name].wait()
            yield node
    told = Counter(line["task"] for line in lines if line["event"] == "a background task ended and is restarted")
    assert told == dict.fromkeys(loops, 1)


def test_each_loop_is_begun_again_and_whoever_looks_after_the_node_sees_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        doors = {"http_listeners": "127.0.0.1:0", "kafka_listeners": "127.0.0.1:0"}
        async with all_mistaken_once(LOOPS, tmp_path, monkeypatch, **doors) as node:
            health, metrics = await health_of(node), await metrics_of(node)
        for name in LOOPS:
            assert f"error: task-ended:{name}: the background task '{name}' ended unexpectedly" in health
            assert f'muster_task_failures_total{{task="{name}"}} 1.0' in metrics
        assert f'muster_node_conditions{{kind="task-ended"}} {len(LOOPS)}.0' in metrics

    asyncio.run(story())


def test_so_is_each_loop_of_security(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        secured = {"authorizer": "acl", "super_users": "User:admin"}
        async with all_mistaken_once(OF_SECURITY, tmp_path, monkeypatch, **secured) as node:
            told = {condition.name for condition in node.condition_reporter.conditions.current()}
        assert told == {f"task-ended:{name}" for name in OF_SECURITY}

    asyncio.run(story())


def test_work_of_groups_that_ends_by_a_mistake_ends_the_node(tmp_path: Path) -> None:
    """A group would wait for its plan for ever; what was promised is in the log, and the next start goes on from it."""

    async def story() -> None:
        async def mistaken() -> None:
            raise ZeroDivisionError

        async with serving(tmp_path) as node:
            driver: EngineDriver = node.driver
            driver._working.start(mistaken())
            assert isinstance(await asyncio.wait_for(asyncio.shield(node.failed), 30), ZeroDivisionError)

    asyncio.run(story())
