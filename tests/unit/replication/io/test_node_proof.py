"""CL-N4: who speaks in the clear at the door between nodes proves that it is one."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from structlog.testing import capture_logs

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.wire.node_api import client_id_of
from muster.coordinator.replication.io.wire.node_links import LinkBroken, LinkCaller, LinkSettings, NodeLinks
from muster.coordinator.replication.io.wire.node_listener import NodeListener
from muster.coordinator.replication.io.wire.node_proof import CALLER, LISTENER, NodeProofs, ProofExchange
from muster.coordinator.replication.protocol.cluster_metadata import ClusterImage, ClusterNodeStatus, NodeView
from muster.coordinator.replication.protocol.controller.events_and_effects import ShutdownResult
from tests.support.kafka.client import KafkaClient
from tests.support.replication import CLUSTER, PATIENCE_S, HeldDesk, linked, serving

SECRET, OTHER_SECRET = b"s" * 32, b"o" * 32
ABLE = (NodeView(1, 10, proves=True), NodeView(2, 20, proves=True))
UPGRADING = (NodeView(1, 10, proves=True), NodeView(2, 20))


def image(nodes: tuple[NodeView, ...]) -> ClusterImage:
    return ClusterImage(nodes={node.id: node for node in nodes})


def proofs(secret: bytes = SECRET, nodes: tuple[NodeView, ...] = ABLE) -> NodeProofs:
    known = image(nodes)
    return NodeProofs(CLUSTER, secret, lambda: known, lambda: 5.0)


def play(story: Callable[[HeldDesk, NodeListener], Awaitable[None]], door_s: NodeProofs | None) -> list[Any]:
    """What the door's log says of connections that it closed."""

    async def run() -> list[Any]:
        desk = HeldDesk()
        desk.answers["controlled_shutdown"] = ShutdownResult(ErrorCode.NONE)
        with capture_logs() as logged:
            async with serving(desk, proofs=door_s) as door, asyncio.timeout(PATIENCE_S):
                await story(desk, door)
        return [line["why"] for line in logged if line["event"] == "connection closed"]

    return asyncio.run(run())


async def ask(client: KafkaClient, name: str, version: int = 0, **fields: Any) -> Any:
    return await client.ask(name, version, **fields)


def stranger(door: NodeListener) -> KafkaClient:
    """It knows the cluster's id, as every client does, and calls itself a node."""
    return KafkaClient(*door.bound, client_id=client_id_of(CLUSTER, 2))


async def greet(client: KafkaClient) -> set[int]:
    served = await ask(client, "ApiVersions", 3, client_software_name="a", client_software_version="1")
    return {each.api_key for each in served.api_keys}


def test_a_client_that_knows_the_cluster_s_id_is_not_answered() -> None:
    own = proofs()

    async def story(desk: HeldDesk, door: NodeListener) -> None:
        async with stranger(door) as client:
            await greet(client)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await ask(client, "ControlledShutdown", 3, broker_id=2, broker_epoch=20)
        assert desk.asked == []

    (why,) = play(story, own)
    assert why == (
        "API 7 was asked for without a proof that a node of this cluster asks; clients are answered at listeners and "
        "kafka.listeners"
    )
    assert own.refused == 1


def test_nodes_that_share_the_secret_hear_each_other() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        link = await linked(door, proofs=proofs(), called=1)
        assert (await link.controlled_shutdown(20, deadline_s=PATIENCE_S)).error is ErrorCode.NONE

    own = proofs()
    assert (play(story, own), own.refused) == ([], 0)


def test_another_secret_is_told_at_both_ends_and_in_the_door_s_doubts() -> None:
    """The caller sees it first: the door proves itself before."""
    door_s, caller_s = proofs(), proofs(OTHER_SECRET)

    async def story(desk: HeldDesk, door: NodeListener) -> None:
        with pytest.raises(LinkBroken, match="does not prove that it is a node of this cluster: it has another secret"):
            await linked(door, proofs=caller_s, called=1)
        assert desk.asked == []
        assert list(caller_s.doubts(60)) == [1]
        assert caller_s.doubts(60)[1].times == 1

    assert play(story, door_s) == []


def test_a_wrong_proof_is_told_to_its_caller_and_named_by_the_node_that_it_calls_itself() -> None:
    door_s = proofs()

    async def story(desk: HeldDesk, door: NodeListener) -> None:
        async with stranger(door) as client:
            await greet(client)
            first = await ask(client, "ProveNode", node_id=2, nonce=bytes(32), proof=b"")
            exchange = ProofExchange(CLUSTER, 2, bytes(32) + bytes(first.nonce))
            assert exchange.is_proof(SECRET, LISTENER, bytes(first.proof))
            mirrored = await ask(client, "ProveNode", node_id=2, nonce=b"", proof=bytes(first.proof))
            assert mirrored.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await ask(client, "ControlledShutdown", 3, broker_id=2, broker_epoch=20)
        assert desk.asked == []
        assert list(door_s.doubts(60)) == [2]

    (why,) = play(story, door_s)
    assert why.startswith("it calls itself node 2, and does not prove that it is a node of this cluster: ")


def test_a_recorded_proof_is_worth_nothing_on_another_connection() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        recorded = b""
        for expected in (ErrorCode.NONE, ErrorCode.CLUSTER_AUTHORIZATION_FAILED):
            async with stranger(door) as client:
                await greet(client)
                first = await ask(client, "ProveNode", node_id=2, nonce=bytes(32), proof=b"")
                exchange = ProofExchange(CLUSTER, 2, bytes(32) + bytes(first.nonce))
                recorded = recorded or exchange.proof(SECRET, CALLER)
                answer = await ask(client, "ProveNode", node_id=2, nonce=b"", proof=recorded)
                assert answer.error_code == expected

    play(story, proofs())


def test_a_nonce_of_another_size_and_a_proof_of_another_node_are_refused() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        async with stranger(door) as client:
            await greet(client)
            answer = await ask(client, "ProveNode", node_id=2, nonce=b"short", proof=b"")
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        async with stranger(door) as client:
            await greet(client)
            first = await ask(client, "ProveNode", node_id=2, nonce=bytes(32), proof=b"")
            proof = ProofExchange(CLUSTER, 2, bytes(32) + bytes(first.nonce)).proof(SECRET, CALLER)
            answer = await ask(client, "ProveNode", node_id=1, nonce=b"", proof=proof)
            assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED

    play(story, proofs())


def test_while_a_node_of_an_earlier_version_is_there_who_proves_nothing_is_answered_until_it_is_upgraded() -> None:
    known = image(UPGRADING)
    own = NodeProofs(CLUSTER, SECRET, lambda: known, lambda: 5.0)

    async def story(desk: HeldDesk, door: NodeListener) -> None:
        old = await linked(door)
        assert (await old.controlled_shutdown(20, deadline_s=PATIENCE_S)).error is ErrorCode.NONE
        upgraded = await linked(door, proofs=own, called=1)
        known.nodes[2] = NodeView(2, 21, proves=True)
        with pytest.raises(LinkBroken):
            await old.controlled_shutdown(20, deadline_s=PATIENCE_S)
        assert (await upgraded.controlled_shutdown(21, deadline_s=PATIENCE_S)).error is ErrorCode.NONE
        assert len(desk.asked) == 2

    (why,) = play(story, own)
    assert why.startswith("API 7 was asked for without a proof")


@pytest.mark.parametrize(
    ("nodes", "required"),
    [
        ((), True),
        (ABLE, True),
        (UPGRADING, False),
        ((ABLE[0], NodeView(2, 20, ClusterNodeStatus.GONE)), True),
        ((ABLE[0], NodeView(2, 20, ClusterNodeStatus.SHUTTING_DOWN)), False),
    ],
    ids=["nobody is known", "all can", "one cannot", "who cannot is gone", "who cannot is leaving"],
)
def test_a_proof_is_required_once_every_node_can_give_one(nodes: tuple[NodeView, ...], *, required: bool) -> None:
    assert proofs(nodes=nodes).required is required


def test_a_node_that_has_registered_as_one_that_proves_itself_has_to() -> None:
    """Something else listens at its address; a node of an earlier version is taken as it is."""

    async def story(desk: HeldDesk, door: NodeListener) -> None:
        for called in (2, 3, None):
            link = await linked(door, proofs=proofs(nodes=UPGRADING), called=called)
            assert (await link.controlled_shutdown(20, deadline_s=PATIENCE_S)).error is ErrorCode.NONE
        links = NodeLinks(LinkSettings(LinkCaller(CLUSTER, 2, proofs())), lambda node: door.bound)
        with pytest.raises(LinkBroken, match="asks for no proof, and gives none"):
            await links.to(1)
        links.close()

    assert play(story, None) == []


def test_where_certificates_say_who_speaks_no_proof_is_asked_for() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        async with stranger(door) as client:
            assert 1006 not in await greet(client)

    play(story, None)


def test_doubts_are_about_nodes_that_are_there_and_pass() -> None:
    moments = iter([1.0, 2.0, 50.0, 62.5])
    own = NodeProofs(CLUSTER, SECRET, lambda: image(ABLE), lambda: next(moments))
    own.doubt(2, "h", "why")
    own.doubt(2, "h", "why")
    own.doubt(9, "h", "nobody registered so")
    assert (own.refused, own.doubts(60)[2].times) == (3, 2)
    assert own.doubts(60) == {}


def test_before_a_proof_nothing_large_is_read() -> None:
    async def story(desk: HeldDesk, door: NodeListener) -> None:
        async with stranger(door) as client:
            await greet(client)
            with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                await ask(client, "ProveNode", node_id=2, nonce=bytes(5_000), proof=b"")

    (why,) = play(story, proofs())
    assert why.endswith("expected 8 to 4096")
