"""On a shared stream each member's requests are noted as its own, in the trace in which the stream was opened."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.monitoring.rebalance_tracing import RebalanceTracing
from muster.coordinator.server.rpc_dispatch import MethodKind, ServiceMethod
from muster.coordinator.server.services.shared_session import SharedSessionHandler
from tests.support.grpc_node import settings


class Caller:
    """A client that is part of a trace."""

    peer_host = client_software = ""
    metadata: Mapping[str, str] = {"traceparent": "00-trace"}
    identity: Any = None

    def cancelled(self) -> bool:
        return False


async def served(requests: AsyncIterator[pb.SessionRequest], call: Any) -> AsyncIterator[pb.SessionResponse]:
    async for request in requests:
        yield pb.SessionResponse(request_number=request.request_number)


async def said() -> AsyncIterator[pb.SharedSessionRequest]:
    names = pb.SubscribedTopicNames(names=["t"])
    asks = pb.SessionRequest(
        consumer_group_heartbeat=pb.ConsumerGroupHeartbeatRequest(subscribed_topic_names=names, member_epoch=3)
    )
    hellos = [pb.SessionRequest(hello=pb.SessionHello(group_id=name, member_id=f"m-{name}")) for name in "ab"]
    words = [(0, hellos[0]), (1, hellos[1]), (1, asks)]
    yield pb.SharedSessionRequest(requests=[pb.MemberRequest(member=who, request=what) for who, what in words])


def test_each_member_is_a_culprit_of_its_own(tmp_path: Any, monkeypatch: Any) -> None:
    async def story() -> list[tuple[str, str, str]]:
        tracing = RebalanceTracing(settings(tmp_path))
        noted: list[tuple[str, str, str]] = []
        monkeypatch.setattr(tracing._causes, "note", lambda *what: noted.append(what))
        handler = SharedSessionHandler(served)
        method = ServiceMethod(
            "/x/SharedSession", MethodKind.BOTH_STREAM, pb.SharedSessionRequest, pb.SharedSessionResponse, handler
        )
        async for _ in tracing._noting(method, "SharedSession").handler(said(), Caller()):
            pass
        return noted

    assert asyncio.run(story()) == [("b", "m-b", "00-trace")]
