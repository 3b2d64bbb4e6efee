"""`group.protocol=consumer` against a real node: sharing, handing over, fencing, commits; pushed and polled."""

import asyncio
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import grpc
import pytest

from muster.client import Admin, Consumer, Producer, TopicPartition, aio
from muster.client.errors import ClientError
from muster.coordinator.core.model.types import Cause
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from tests.support.client_stories import Told, poll_until, read
from tests.support.node import NodeProcess, running_node
from tests.support.stubs import GroupCoordinatorStub

pytestmark = pytest.mark.integration
names = count()
QUICK = {
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.session.timeout.ms": "2000",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.assignment.interval.ms": "0",
}


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    with running_node(Path(tmp_path_factory.mktemp("kip848") / "data"), QUICK) as running:
        yield running


@pytest.fixture
def topic(node: NodeProcess) -> str:
    """A topic of four partitions that no other test uses; its name serves as group id too."""
    name = f"topic-{next(names)}"
    with Admin(bootstrap_servers=node.address) as admin:
        admin.create_topic(name, 4)
    return name


def member(node: NodeProcess, group: str, **more: object) -> Consumer:
    properties = {"auto_offset_reset": "earliest", "group_protocol": "consumer"}
    return Consumer(bootstrap_servers=node.address, group_id=group, **(properties | more))


def everything(topic: str) -> set[TopicPartition]:
    return {TopicPartition(topic, number) for number in range(4)}


def shared(*consumers: Consumer) -> bool:
    shares = [consumer.assignment() for consumer in consumers]
    return all(len(share) == 4 // len(consumers) for share in shares) and len(set().union(*shares)) == 4


@pytest.mark.parametrize("how", ["push", "poll"])
def test_members_share_hand_over_and_take_over(node: NodeProcess, topic: str, how: str) -> None:
    first_told = Told()
    with member(node, topic, group_membership=how) as first:
        first.subscribe(topic, **first_told.callbacks())
        poll_until(lambda: shared(first), first, what="the first owns everything")
        with member(node, topic, group_membership=how) as second:
            second.subscribe(topic)
            poll_until(lambda: shared(first, second), first, second, what="both own two")
            gone, event = first_told.revoked[-1]
            assert len(gone) == 2
            assert (event.protocol, first_told.lost) == ("cooperative", [])
            assert second.memberid() != first.memberid()
        poll_until(lambda: shared(first), first, what="the first owns everything again")
        assert first_told.assigned[-1][1].generation == first.consumer_group_metadata().generation


def test_pushed_and_polled_members_mix(node: NodeProcess, topic: str) -> None:
    with member(node, topic) as pushed, member(node, topic, group_membership="poll") as polled:
        pushed.subscribe(topic)
        polled.subscribe(topic)
        poll_until(lambda: shared(pushed, polled), pushed, polled, what="both own two")


def test_what_was_read_is_committed_and_read_on_by_the_next(node: NodeProcess, topic: str) -> None:
    with Producer(bootstrap_servers=node.address, linger_ms=0) as producer:
        for number in range(100):
            producer.produce(topic, b"%d" % number, b"%d" % number)
        producer.flush()
    with member(node, topic, enable_auto_commit=False) as first:
        first.subscribe(topic)
        seen = [message.value for message in read(first, 60)]
        first.commit()
    with member(node, topic) as second:
        second.subscribe(topic)
        seen += [message.value for message in read(second, 40)]
    assert sorted(seen) == sorted(b"%d" % number for number in range(100))


@pytest.mark.parametrize("how", ["push", "poll"])
def test_who_is_fenced_loses_everything_and_rejoins_under_the_same_id(node: NodeProcess, topic: str, how: str) -> None:
    told = Told()
    with member(node, topic, group_membership=how) as consumer, grpc.insecure_channel(node.address) as channel:
        consumer.subscribe(topic, **told.callbacks())
        poll_until(lambda: shared(consumer), consumer, what="it owns everything")
        before = consumer.memberid()
        # Somebody says good-bye in its name.
        leave = pb.ConsumerGroupHeartbeatRequest(group_id=topic, member_id=before, member_epoch=-1)
        assert GroupCoordinatorStub(channel).ConsumerGroupHeartbeat(leave).error_code == 0
        poll_until(lambda: bool(told.lost), consumer, what="it hears that it is out")
        poll_until(lambda: shared(consumer), consumer, what="it owns everything again")
        assert consumer.memberid() == before
        assert told.lost[-1][1].cause is Cause.SESSION_EXPIRED


def test_a_static_member_that_comes_back_gets_its_share_at_once(node: NodeProcess, topic: str) -> None:
    told = Told()
    with member(node, topic, group_instance_id="other") as other:
        other.subscribe(topic, **told.callbacks())
        with member(node, topic, group_instance_id="one") as one:
            one.subscribe(topic)
            poll_until(lambda: shared(one, other), one, other, what="both own two")
            mine = one.assignment()
        with member(node, topic, group_instance_id="one") as again:
            again.subscribe(topic)
            poll_until(lambda: again.assignment() == mine, again, other, what="it has its share back")
        assert len(told.assigned) <= 2


def test_a_pattern_is_resolved_by_the_coordinator(node: NodeProcess, topic: str) -> None:
    with member(node, topic) as consumer:
        consumer.subscribe(f"^{topic[:-1]}[{topic[-1]}]$")
        poll_until(lambda: consumer.assignment() == everything(topic), consumer, what="the matching topic is assigned")


def test_an_assignor_that_the_coordinator_does_not_know_is_an_error(node: NodeProcess, topic: str) -> None:
    with member(node, topic, group_remote_assignor="nonsense") as consumer:
        consumer.subscribe(topic)
        with pytest.raises(ClientError, match=r"UNSUPPORTED_ASSIGNOR.*nonsense"):
            poll_until(lambda: False, consumer, what="the refusal")


def test_the_asyncio_consumer_speaks_it_too(node: NodeProcess, topic: str) -> None:
    async def story() -> None:
        properties = {"bootstrap.servers": node.address, "group.id": topic, "group.protocol": "consumer"}
        async with aio.AsyncConsumer(properties) as one, aio.AsyncConsumer(properties) as two:
            await one.subscribe(topic)
            await two.subscribe(topic)
            async with asyncio.timeout(30):
                while (len(one.assignment()), len(two.assignment())) != (2, 2):
                    await one.poll(0.02)
                    await two.poll(0.02)

    asyncio.run(story())


def test_members_survive_a_restart_of_the_node(tmp_path: Path) -> None:
    with running_node(tmp_path / "data", QUICK | {"group.consumer.session.timeout.ms": "30000"}) as node:
        with Admin(bootstrap_servers=node.address) as admin:
            admin.create_topic("t", 4)
        told = Told()
        with member(node, "g") as one, member(node, "g") as two:
            one.subscribe("t", **told.callbacks())
            two.subscribe("t")
            poll_until(lambda: shared(one, two), one, two, what="both own two")
            before, epoch = one.assignment(), one.consumer_group_metadata().generation
            node.stop()
            node.start()
            with member(node, "g") as three:
                three.subscribe("t")
                poll_until(lambda: bool(three.assignment()), one, two, three, what="the newcomer gets something")

                def is_later() -> bool:
                    return one.consumer_group_metadata().generation > epoch

                poll_until(is_later, one, two, three, what="the first one hears of the new epoch")
            assert told.lost == []
            assert before
