"""Members by gRPC say what their client runs, as Kafka's clients do: in the ledger's sentences and in descriptions."""

import grpc
import pytest

from muster.client import Admin, Consumer
from muster.client.calls.transport import NAME, user_agent
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support.client_stories import poll_until
from tests.support.node import NodeProcess
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration

OURS = user_agent().replace("/", " ")


@pytest.mark.parametrize(
    "ways",
    [
        {"group_membership": "poll"},
        {"group_membership": "push"},
        {"group_protocol": "consumer", "group_membership": "poll"},
        {"group_protocol": "consumer", "group_membership": "push"},
        {"group_protocol": "central"},
    ],
    ids=["polled", "pushed", "kip848-polled", "kip848-pushed", "central"],
)
def test_a_member_s_software_is_told(
    node: NodeProcess, admin: Admin, topic: str, ways: dict[str, object], request: pytest.FixtureRequest
) -> None:
    group = request.node.callspec.id
    with Consumer(bootstrap_servers=node.address, group_id=group, client_id="me", **ways) as consumer:
        consumer.subscribe(topic)
        poll_until(lambda: len(consumer.assignment()) == 4, consumer, what="it owns all")
        (described,) = admin.describe_group(group).members
        assert described.client_software == OURS
        joined = admin.explain(group)[-1].detail
    assert OURS.startswith(NAME)
    assert f"(me, {OURS} at 127.0.0.1)" in joined


def test_another_client_is_known_by_its_own_user_agent(node: NodeProcess, admin: Admin) -> None:
    options = [("grpc.primary_user_agent", "somebody/7.1-rc2")]
    with grpc.insecure_channel(node.address, options=options) as channel:
        request = pb.JoinGroupRequest(
            group_id="foreign",
            session_timeout_ms=30_000,
            protocol_type="consumer",
            protocols=[pb.JoinGroupProtocol(name="range", metadata=b"")],
        )
        stub = GroupCoordinatorStub(channel)
        request.member_id = stub.JoinGroup(request).member_id
        stub.JoinGroup(request)
        assert [one.client_software for one in admin.describe_group("foreign").members] == ["somebody 7.1-rc2"]
