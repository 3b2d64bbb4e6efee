"""A client whose machine vanishes: its packets are lost from one moment on, and no FIN or RST ever comes.

Run as root in a network of its own, `unshare --net python -m tests.support.kafka.vanishing DATA`: the client's address
is taken away there. Fails, or says what was seen.
"""

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

from muster.coordinator.kafka.connections import received_requests
from muster.coordinator.server.node.node import CoordinatorNode
from tests.support.grpc_node import settings
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.node import beat, join, kafka, lone_member, send_join

NODE, CLIENT = "10.99.0.1", "10.99.0.2"


class FarClient(KafkaClient):
    """Comes from the other machine."""

    async def __aenter__(self) -> "FarClient":
        self.reader, self.writer = await asyncio.open_connection(*self._address, local_addr=(CLIENT, 0))
        return self


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


async def story(data: Path) -> None:
    node = CoordinatorNode(
        settings(data, listeners=f"{NODE}:0", kafka_listeners=f"{NODE}:0", allow_insecure_listeners="true")
    )
    await node.start()
    assert node.kafka_bound is not None
    async with kafka(node) as here, FarClient(*node.kafka_bound) as far, FarClient(*node.kafka_bound) as idle:
        first = await lone_member(here)
        await idle.ask("ApiVersions", 0)
        newcomer = (await join_later(far)).member_id
        while (await here.ask("Heartbeat", 4, **beat(first))).error_code == 0:
            pass
        assert (node.driver.parked, connections(node)) == (1, 3)
        ip("address", "del", f"{CLIENT}/32", "dev", "lo")
        # Nothing is sent to these clients and nothing comes from them: only the kernel's questions can find out.
        while connections(node) > 1:
            await here.ask("ApiVersions", 0)
        while node.driver.parked:
            await here.ask("ApiVersions", 0)
        again = await join(here, first.member_id)
        assert [one.member_id for one in again.members] == [first.member_id, newcomer], "it is a member all the same"
    await node.stop()
    print("both connections are gone, what was parked is forgotten, the member is still in its group")


async def join_later(client: KafkaClient) -> Any:
    """Join, and wait for no answer; the answer before that, which has the member's id."""
    send_join(client)
    answer = await client.receive()
    send_join(client, answer.member_id)
    return answer


def connections(node: CoordinatorNode) -> int:
    assert node._kafka is not None
    return node._kafka._listener.connections


if __name__ == "__main__":
    ip("link", "set", "lo", "up")
    for address in (NODE, CLIENT):
        ip("address", "add", f"{address}/32", "dev", "lo")
    # As in earnest, but asked every second.
    received_requests.KEEPALIVE.update(TCP_KEEPIDLE=1, TCP_KEEPINTVL=1, TCP_KEEPCNT=2)
    asyncio.run(story(Path(sys.argv[1])))
