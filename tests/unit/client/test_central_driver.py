"""The performer of a central group's member: what its stream brings is told in order, and nothing of it is lost."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import Any

import pytest

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig, load
from muster.client.members import events as ev
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.members.member_types import MembershipState
from muster.client.membership.central_membership import CentralDriver, CentralJoining, CentralStore
from muster.client.membership.member_driver import build_member_settings
from muster.client.membership.ports import Interest
from muster.client.types import OffsetAndMetadata, TopicPartition
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support.pace import pace

PATIENCE_S = 10


class OneBreath:
    """A coordinator whose responses are all there at once, so that nobody else gets a turn while they are read."""

    def __init__(self, responses: Sequence[pb.SessionResponse]) -> None:
        self._responses = responses
        self.said: asyncio.Queue[pb.SessionRequest] = asyncio.Queue()
        self._open = asyncio.Event()

    async def write(self, request: pb.SessionRequest) -> None:
        self.said.put_nowait(request)

    async def __aiter__(self) -> AsyncIterator[pb.SessionResponse]:
        for response in self._responses:
            yield response
        await self._open.wait()

    def done(self) -> bool:
        return False

    def cancel(self) -> None:
        self._open.set()


class ShortLine(Transport):
    """Every call finds the coordinator here, and every conversation is the one given."""

    def __init__(self, config: ConsumerConfig, conversation: OneBreath) -> None:
        super().__init__(config)
        self._conversation = conversation

    async def call(self, *args: Any, **more: Any) -> Any:
        return pb.FindCoordinatorResponse()

    def converse(self, *args: Any) -> Any:
        return self._conversation


REGISTERED = pb.SessionResponse(registered=pb.ConsumerRegistered())
START = pb.SessionResponse(
    order=pb.CentralOrder(
        number=1,
        start_fetcher=pb.StartFetcher(generation_id=7, partitions=[pb.StartPartition(topic="t", partition=0)]),
    )
)


def driven(conversation: OneBreath, woken: asyncio.Event) -> CentralDriver:
    config = load(
        ConsumerConfig, {"group.id": "g", "group.protocol": "central", "bootstrap.servers": "127.0.0.1:1"}, {}
    )
    transport = ShortLine(config, conversation)
    store = CentralStore(GroupCalls(transport, "g", "central"))
    wish = RequestedSubscription(frozenset({"t"}))
    return CentralDriver(transport, store, build_member_settings(config), wish, woken.set, lambda: None)


def test_an_order_that_comes_in_one_breath_with_the_registration_is_carried_out() -> None:
    async def story() -> tuple[list[str], int, int]:
        conversation, woken = OneBreath([REGISTERED, START]), asyncio.Event()
        driver = driven(conversation, woken)
        driver.send(ev.Start())
        async with asyncio.timeout(PATIENCE_S * pace()):
            await woken.wait()
            await conversation.said.get()  # the registration
            answer = await conversation.said.get()
        callbacks = [callback.kind for callback in driver.callbacks]
        generation = driver.machine.generation
        await driver.abort()
        return callbacks, generation, answer.fetcher_started.number

    assert asyncio.run(story()) == (["assigned"], 7, 1)


class Nowhere:
    """The positions of a consumer that has read nothing."""

    def to_commit(self, only: object = None) -> dict[TopicPartition, OffsetAndMetadata]:
        return {}


def test_where_the_member_runs_is_said_with_its_registration() -> None:
    async def story() -> str:
        properties = {
            "group.id": "g", "group.protocol": "central", "bootstrap.servers": "127.0.0.1:1", "client.rack": "r1",
        }  # fmt: skip
        config, conversation, woken = load(ConsumerConfig, properties, {}), OneBreath([REGISTERED]), asyncio.Event()
        joining = CentralJoining(config, ShortLine(config, conversation), Nowhere)
        driver = joining.membership(Interest(("t",)), woken.set)
        driver.send(ev.Start())
        async with asyncio.timeout(PATIENCE_S * pace()):
            registration = await conversation.said.get()
        await driver.abort()
        return str(registration.register_consumer.rack_id)

    assert asyncio.run(story()) == "r1"


@pytest.mark.parametrize("last", [pb.SessionResponse(drain=pb.SessionDrain(reason="r")), None])
def test_an_end_that_comes_in_one_breath_with_the_registration_is_noticed(last: pb.SessionResponse | None) -> None:
    """The member registers again at once, and not only when its lease is over."""

    async def story() -> list[str | None]:
        conversation = OneBreath([REGISTERED, *([last] if last is not None else [])])
        if last is None:
            conversation.cancel()
        driver = driven(conversation, asyncio.Event())
        driver.send(ev.Start())
        async with asyncio.timeout(PATIENCE_S * pace()):
            said = [await conversation.said.get(), await conversation.said.get()]
        assert driver.machine.state in {MembershipState.JOINING, MembershipState.STABLE}
        await driver.abort()
        return [request.WhichOneof("request") for request in said]

    assert asyncio.run(story()) == ["register_consumer", "register_consumer"]
