"""Who speaks on a session stream: said once, and meant by every heartbeat that leaves it out. Pure but for the wait."""

from collections.abc import AsyncIterator
from dataclasses import dataclass

from muster.coordinator.edge import shape
from muster.coordinator.edge.shape import MalformedGroupRequest
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb


@dataclass(frozen=True, slots=True)
class SessionIdentity:
    group_id: str
    member_id: str
    group_instance_id: str | None

    def sign(self, request: pb.HeartbeatRequest | pb.ConsumerGroupHeartbeatRequest) -> None:
        """Fill in what the heartbeat leaves out; MalformedRequest when it speaks for somebody else."""
        for field, own in (("group_id", self.group_id), ("member_id", self.member_id)):
            said = getattr(request, field)
            if said and said != own:
                raise MalformedGroupRequest(
                    f"{field} is {shape.quote_value(said)}; this session belongs to {shape.quote_value(own)}"
                )
        request.group_id, request.member_id = self.group_id, self.member_id
        if self.group_instance_id is not None:
            request.group_instance_id = self.group_instance_id


async def read_greeting(requests: AsyncIterator[pb.SessionRequest]) -> SessionIdentity | pb.RegisterConsumer:
    """The stream's first message: a hello, or the registration of a central group's member, who says all in it."""
    first = await anext(requests, None)
    kind = first.WhichOneof("request") if first is not None else None
    if first is not None and kind == "register_consumer":
        return first.register_consumer
    if first is None or kind != "hello":
        raise MalformedGroupRequest(
            "hello is missing; expected it, or register_consumer, as the first message of a session"
        )
    hello = first.hello
    return SessionIdentity(
        shape.check_filled_name("hello.group_id", hello.group_id),
        shape.check_filled_name("hello.member_id", hello.member_id),
        shape.check_instance_id(
            "hello.group_instance_id", hello.HasField("group_instance_id"), hello.group_instance_id
        ),
    )
