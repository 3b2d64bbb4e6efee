"""How long a node over a Kafka has that Kafka's clients wait before it knows the other nodes."""

import asyncio

from muster.coordinator.config import Settings
from muster.coordinator.edge.cluster_view import ClientAddresses
from muster.coordinator.kafka_backend.state_topic import UnusableUpstream
from muster.coordinator.server.backend.node_backend import BackendContext
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.kafka_backend.backend import KafkaBackend
from tests.support.pace import pace

PATIENCE_S = 30.0


class Nodes:
    """Of whom nothing is heard until `known` is settled."""

    def __init__(self) -> None:
        self.known: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def entered(self) -> None:
        await asyncio.shield(self.known)


def side(nodes: Nodes, session_ms: int) -> KafkaBackend:
    settings = Settings.model_validate({"engine": "kafka://127.0.0.1:1"})
    settings = settings.model_copy(update={"engine_kafka_session_timeout_ms": session_ms})
    made = KafkaBackend(BackendContext(settings, NodeClock(), None, no_doors))
    made._nodes = nodes  # type: ignore[assignment]
    return made


def no_doors() -> ClientAddresses:
    raise AssertionError("nobody is told where they are")


def test_where_the_other_nodes_do_not_get_known_clients_are_let_in_all_the_same() -> None:
    async def story() -> None:
        async with asyncio.timeout(PATIENCE_S * pace()):
            await side(Nodes(), session_ms=1).met()

    asyncio.run(story())


def test_until_the_other_nodes_are_known_clients_wait() -> None:
    async def story() -> None:
        nodes = Nodes()
        waiting = asyncio.ensure_future(side(nodes, session_ms=3_600_000).met())
        for _ in range(5):
            await asyncio.sleep(0)
        assert not waiting.done()
        nodes.known.set_result(None)
        async with asyncio.timeout(PATIENCE_S * pace()):
            await waiting

    asyncio.run(story())


def test_a_node_that_the_group_refuses_for_good_waits_no_longer() -> None:
    """It ends by another way, which tells why."""

    async def story() -> None:
        nodes = Nodes()
        nodes.known.set_exception(UnusableUpstream("not one of these"))
        await side(nodes, session_ms=3_600_000).met()

    asyncio.run(story())
