"""Whatever is sent to Kafka's door, the node goes on serving everybody else."""

import asyncio
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from muster.coordinator.kafka.codec.messages import all_messages
from muster.coordinator.kafka.protocol import APIS
from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.grpc_node import settings as node_settings
from tests.support.kafka.client import frame
from tests.support.kafka.messages import random_message
from tests.support.kafka.node import beat, kafka, lone_member

pytestmark = pytest.mark.integration

Run = Callable[[Callable[[], Any]], None]
REQUESTS = [(api.name, version) for api in APIS for version in range(api.first, api.last + 1)]
PIECES = st.one_of(
    st.binary(max_size=64),
    st.builds(lambda body: len(body).to_bytes(4, "big") + body, st.binary(min_size=8, max_size=200)),
    st.builds(
        lambda key, version, body: framed(key.to_bytes(2, "big") + version.to_bytes(2, "big") + body),
        st.sampled_from([api.key for api in APIS]),
        st.integers(0, 20),
        st.binary(min_size=4, max_size=100),
    ),
    st.builds(lambda which, seed: whole(*which, seed), st.sampled_from(REQUESTS), st.integers(0, 2**32)),
)


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


def whole(name: str, version: int, seed: int) -> bytes:
    """A request in perfect form, whatever nonsense it says. One that parks would outlive the test."""
    if name in ("JoinGroup", "Fetch"):
        return b""
    rng = random.Random(seed)
    return frame(name, version, seed % 1000, random_message(all_messages()[f"{name}Request"], version, rng))


@pytest.fixture(scope="module")
def node(runner: asyncio.Runner, tmp_path_factory: pytest.TempPathFactory) -> Iterator[CoordinatorNode]:
    """One node for all that is thrown at it."""
    data: Path = tmp_path_factory.mktemp("hostile") / "d"

    async def start() -> CoordinatorNode:
        started = CoordinatorNode(node_settings(data, kafka_listeners="127.0.0.1:0"))
        await started.start()
        return started

    running = runner.run(start())
    yield running
    runner.run(running.stop())


@settings(deadline=None, max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(pieces=st.lists(PIECES, max_size=6), cut=st.integers(0, 50))
def test_a_hostile_client_hurts_nobody_else(run: Run, node: CoordinatorNode, pieces: list[bytes], cut: int) -> None:
    async def story() -> None:
        async with kafka(node) as client:
            joined = await lone_member(client)
            async with kafka(node) as hostile:
                data = b"".join(pieces)
                hostile.writer.write(data[: len(data) - cut] if cut else data)
                hostile.writer.write_eof()
                await asyncio.wait_for(drained(hostile.reader), 30)
            assert (await client.ask("Heartbeat", 4, **beat(joined))).error_code in (0, 25)
            assert not node.failed.done()
            await client.ask("LeaveGroup", 1, group_id="g", member_id=joined.member_id)

    run(story)


async def drained(reader: asyncio.StreamReader) -> None:
    """Read whatever the node answers until it closes the connection."""
    try:
        while await reader.read(1 << 16):
            pass
    except ConnectionResetError:
        return
