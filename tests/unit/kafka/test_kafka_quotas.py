"""Quotas at Kafka's door: what is charged, what the answer says, how a connection is held, and who is silent in it."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from muster.coordinator.kafka.codec.codec import decode_frame, encode, struct
from muster.coordinator.kafka.connections import quota_enforcement
from muster.coordinator.kafka.connections.listener import ConnectionListener
from muster.coordinator.kafka.connections.quota_enforcement import (
    ConnectionCharges,
    RequestQuotas,
    set_throttle_time,
    throttle_time_position,
)
from muster.coordinator.kafka.dispatch import EncodedAnswer, ThreadedAnswer
from muster.coordinator.kafka.protocol import APIS
from muster.coordinator.security.quota_usage import NodeQuotas
from tests.support.kafka.asked import KEYS, Asked
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.listener import HeldHandlers, client, listening
from tests.support.kafka.memory_node import MemoryNode, until

ANONYMOUS = (("user", "ANONYMOUS"),)
BATCHES = bytes(3_000)
PRODUCE = {"acks": 1, "timeout_ms": 1, "topic_data": []}


class Hours:
    """A clock that a test moves, and what waits for it."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.due: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now_s

    def call_later(self, after_s: float, call: Callable[[], None]) -> None:
        self.due.append((self.now_s + after_s, call))

    def pass_by(self, seconds: float) -> None:
        self.now_s += seconds
        while ripe := [one for one in self.due if one[0] <= self.now_s]:
            self.due = [one for one in self.due if one not in ripe]
            for _, call in ripe:
                call()


class Scene:
    """A listener whose quotas, clock and members a test has in its hands."""

    def __init__(self, listener: ConnectionListener, **figures: float) -> None:
        self.quotas, self.hours = NodeQuotas(), Hours()
        self.held: list[tuple[str, str, int]] = []
        self._listener = listener
        listener.charged_by(ConnectionCharges(self.quotas, lambda *held: self.held.append(held), self.hours))
        self.set(**figures)

    def set(self, **figures: float) -> None:
        ip = {name: value for name, value in figures.items() if name == "connection_creation_rate"}
        user = {name: value for name, value in figures.items() if name not in ip}
        self.quotas.replace({entity: of for entity, of in ((ANONYMOUS, user), ((("ip", None),), ip)) if of})
        self._listener.charge()


def produce(connection: KafkaClient, version: int = 3, size: int = 3_000) -> None:
    data = struct("ProduceRequest.topic_data.partition_data")(index=0, records=bytes(size))
    topic = struct("ProduceRequest.topic_data")(name="t", partition_data=[data])
    connection.send("Produce", version, acks=1, timeout_ms=1, topic_data=[topic])


def heartbeat(connection: KafkaClient) -> None:
    connection.send("Heartbeat", 4, group_id="g", generation_id=1, member_id="a")


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


@pytest.mark.parametrize("version", [3, 9])
def test_who_is_over_its_quota_is_answered_at_once_and_not_read_for_as_long_as_it_is_told(version: int) -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port), client(port) as connection, client(port) as other:
            scene = Scene(listener, producer_byte_rate=100)
            heartbeat(connection)
            await handlers.until_begun(1)
            handlers.answer(0)
            assert (await connection.receive()).throttle_time_ms == 0
            produce(connection, version)
            await handlers.until_begun(2)
            handlers.answer(1, responses=[])
            told_ms = (await connection.receive()).throttle_time_ms
            assert 20_000 <= told_ms <= 22_000
            assert scene.held == [("g", "a", told_ms)]
            assert scene.quotas.throttled == {"producer_byte_rate": 1}
            heartbeat(connection)
            heartbeat(other)
            await handlers.until_begun(3)
            handlers.answer(2)
            assert (await other.receive()).throttle_time_ms == 0, "nobody else is held"
            scene.hours.pass_by(told_ms / 1000 - 1)
            heartbeat(other)
            await handlers.until_begun(4)
            handlers.answer(3)
            await other.receive()
            assert len(handlers.begun) == 4, "it is not read yet"
            scene.hours.pass_by(1.1)
            await handlers.until_begun(5)
            handlers.answer(4)
            assert (await connection.receive()).throttle_time_ms == 0

    run(story())


def test_requests_that_came_before_are_begun_after_the_wait_and_earlier_answers_leave() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port), client(port) as connection:
            scene = Scene(listener, producer_byte_rate=100)
            heartbeat(connection)
            produce(connection)
            heartbeat(connection)
            await handlers.until_begun(2)
            handlers.answer(0)
            await connection.receive()
            assert len(handlers.begun) == 2, "those behind it are not begun, whether or not it is answered"
            handlers.answer(1, responses=[])
            assert (await connection.receive()).throttle_time_ms > 0
            assert len(handlers.begun) == 2, "the third waits behind what is held"
            scene.hours.pass_by(60)
            await handlers.until_begun(3)
            handlers.answer(2)
            assert (await connection.receive()).throttle_time_ms == 0

    run(story())


def test_what_is_fetched_is_charged_by_the_answer() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port), client(port) as connection:
            scene = Scene(listener, consumer_byte_rate=100)
            connection.send("Fetch", 11, max_wait_ms=0, min_bytes=0, topics=[])
            await handlers.until_begun(1)
            partition = struct("FetchResponse.responses.partitions")(partition_index=0, records=BATCHES)
            handlers.answer(0, responses=[struct("FetchResponse.responses")(topic="t", partitions=[partition])])
            answer = await connection.receive()
            assert answer.throttle_time_ms > 20_000
            assert answer.responses[0].partitions[0].records == BATCHES
            assert list(scene.quotas.throttled_s) == ["ANONYMOUS"]

    run(story())


class Busy:
    """Handlers that take time: on the loop, and in a thread."""

    def __init__(self) -> None:
        self.spent = 0.0

    def heartbeat_now(self, request: Any, call: Any) -> Any:
        return ThreadedAnswer(lambda: work(struct("HeartbeatResponse")()))

    def __getattr__(self, name: str) -> Any:
        if name.endswith(("_now", "_reader")):
            raise AttributeError(name)

        async def handler(request: Any, call: Any) -> Any:
            await asyncio.sleep(0)
            return work(struct("ListGroupsResponse")())

        return handler


def work(answer: Any) -> Any:
    sum(range(200_000))
    return answer


@pytest.mark.parametrize("api", ["Heartbeat", "ListGroups"])
def test_time_on_the_loop_and_in_threads_is_charged(api: str) -> None:
    async def story() -> None:
        async with listening(Busy()) as (listener, port), client(port) as connection:
            scene = Scene(listener, request_percentage=0.001)
            connection.send(api, 2)
            answer = await connection.receive()
            assert answer.throttle_time_ms == 1_000, "a window's length, however much it was"
            assert scene.quotas.throttled == {"request_percentage": 1}

    run(story())


def test_quotas_count_for_connections_that_are_open_and_no_longer_when_they_are_gone() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port), client(port) as connection:
            scene = Scene(listener)
            for number, (figures, waits) in enumerate([({}, False), ({"producer_byte_rate": 10.0}, True), ({}, False)]):
                scene.set(**figures)
                produce(connection)
                await handlers.until_begun(number + 1)
                handlers.answer(number, responses=[])
                assert ((await connection.receive()).throttle_time_ms > 0) == waits
                scene.hours.pass_by(10_000)

    run(story())


def test_a_client_that_goes_while_it_is_held_is_noticed() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port):
            async with client(port) as connection:
                scene = Scene(listener, producer_byte_rate=1)
                produce(connection)
                await handlers.until_begun(1)
                handlers.answer(0, responses=[])
                await connection.receive()
            assert listener.connections == 1
            async with asyncio.timeout(20):
                while listener.connections:
                    scene.hours.pass_by(quota_enforcement.EOF_CHECK_S)
                    await asyncio.sleep(0)

    run(story())


def test_an_address_that_connects_too_often_is_kept_waiting_and_closed() -> None:
    async def story() -> None:
        handlers = HeldHandlers()
        async with listening(handlers) as (listener, port):
            scene = Scene(listener, connection_creation_rate=1)
            closed = []
            for _ in range(12):
                connection = client(port)
                await connection.__aenter__()
                heartbeat(connection)
                closed.append(connection)
            await handlers.until_begun(10)
            await until(lambda: len(scene.hours.due) == 2)
            assert (len(handlers.begun), listener.connections) == (10, 10)
            scene.hours.pass_by(2)
            for connection in closed[10:]:
                assert await connection.closed_by_node()
            for connection in closed[:10]:
                await connection.__aexit__()

    run(story())


@pytest.mark.parametrize("api", APIS, ids=lambda api: api.name)
def test_every_answer_that_has_a_place_for_it_says_how_long(api: Any) -> None:
    for version in range(api.first, api.last + 1):
        where = throttle_time_position(api.name, version)
        body = encode(f"{api.name}Response", version, struct(f"{api.name}Response")())
        if where is None:
            continue
        for given in (body, [bytes([byte]) for byte in b"".join(body)]):
            told = decode_frame(f"{api.name}Response", version, b"".join(set_throttle_time(given, where, 77)))
            assert told.throttle_time_ms == 77


# Partitions that are made and deleted


def created(name: str, partitions: int) -> Any:
    return struct("CreateTopicsRequest.topics")(name=name, num_partitions=partitions, replication_factor=1)


def node_with(**figures: float) -> MemoryNode:
    quotas = NodeQuotas()
    quotas.replace({(("user", "alice"),): figures})
    return MemoryNode({"t": 1}, quotas=quotas)


def test_partitions_above_the_quota_are_refused_to_versions_that_know_how() -> None:
    async def story() -> None:
        async with node_with(controller_mutation_rate=1) as node:
            alice, bob = Asked(node.dispatch, "User:alice"), Asked(node.dispatch, "User:bob")
            topics = [created("a", 6), created("t", 50), created("b", 8), created("c", 1)]
            answer = await alice("CreateTopics", 7, topics=topics)
            told = {topic.name: (topic.error_code, topic.error_message) for topic in answer.topics}
            assert [told[name][0] for name in "atbc"] == [0, 36, 0, 89]
            assert "(controller_mutation_rate); wait" in told["c"][1]
            assert 2_000 <= answer.throttle_time_ms <= 3_000
            assert "c" not in node.broker.topics()
            deleted = await alice("DeleteTopics", 5, topic_names=["a"])
            assert [each.error_code for each in deleted.responses] == [89]
            grown = struct("CreatePartitionsRequest.topics")(name="a", count=7, assignments=None)
            assert [each.error_code for each in (await alice("CreatePartitions", 3, topics=[grown])).results] == [89]
            assert [each.error_code for each in (await bob("CreateTopics", 7, topics=[created("d", 99)])).topics] == [0]
            assert (await alice("CreateTopics", 7, topics=[created("x", 9)], validate_only=True)).topics[
                0
            ].error_code == 0

    run(story())


def test_older_versions_do_it_and_wait() -> None:
    async def story() -> None:
        async with node_with(controller_mutation_rate=1) as node:
            alice = Asked(node.dispatch, "User:alice")
            answer = await alice("CreateTopics", 5, topics=[created("a", 20), created("b", 5)])
            assert [topic.error_code for topic in answer.topics] == [0, 0]
            assert 13_000 <= answer.throttle_time_ms <= 14_000
            answer = await alice("DeleteTopics", 4, topic_names=["a", "nothing"])
            assert answer.throttle_time_ms >= 32_000

    run(story())


# How many groups and members


def joined(**more: Any) -> dict[str, Any]:
    protocols = [struct("JoinGroupRequest.protocols")(name="range", metadata=b"")]
    return {
        "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "protocol_type": "consumer",
        "protocols": protocols, **more,
    }  # fmt: skip


async def join(who: Asked, group: str) -> tuple[int, str]:
    """The code, and the member's id, of whoever joins by two requests as clients do (KIP-394)."""
    first = await who("JoinGroup", 7, **joined(group_id=group))
    if first.error_code != 79:
        return first.error_code, ""
    second = await who("JoinGroup", 7, **joined(group_id=group, member_id=first.member_id))
    return second.error_code, first.member_id


def test_a_user_has_as_many_groups_and_members_as_its_quota_allows() -> None:
    async def story() -> None:
        async with node_with(group_count=2, member_count=2) as node:
            alice, bob = Asked(node.dispatch, "User:alice"), Asked(node.dispatch, "User:bob")
            (_, a), (_, b) = await join(alice, "one"), await join(alice, "two")
            assert (await join(alice, "three"))[0] == 81
            assert (await join(bob, "three"))[0] == 0
            again = await alice("JoinGroup", 7, **joined(group_id="one", member_id=a))
            assert again.error_code == 0, "who is in it stays in it"
            left = struct("LeaveGroupRequest.members")(member_id=b)
            await alice("LeaveGroup", 4, group_id="two", members=[left])
            node.limiting_clock.now_s += 10
            assert (await join(alice, "four"))[0] == 0
            asked = {"group_id": "new", "member_id": "m", "member_epoch": 0, "rebalance_timeout_ms": 1_000,
                     "subscribed_topic_names": ["t"], "topic_partitions": []}  # fmt: skip
            answer = await alice("ConsumerGroupHeartbeat", 1, **asked)
            assert answer.error_code == 81
            assert "user alice has 2 members" in answer.error_message

    run(story())


def test_groups_alone_are_counted_once_each() -> None:
    async def story() -> None:
        async with node_with(group_count=0) as node:
            alice = Asked(node.dispatch, "User:alice")
            assert (await join(alice, "one"))[0] == 44

    run(story())


async def commit(who: Asked, group: str, version: int = 7) -> int:
    row = struct("OffsetCommitRequest.topics.partitions")(partition_index=0, committed_offset=1, committed_metadata="")
    topics = [struct("OffsetCommitRequest.topics")(name="t", partitions=[row])]
    answer = await who("OffsetCommit", version, group_id=group, topics=topics, retention_time_ms=-1)
    code: int = answer.topics[0].partitions[0].error_code
    return code


def test_groups_made_by_commits_alone_are_counted_too() -> None:
    async def story() -> None:
        async with node_with(group_count=2, controller_mutation_rate=100) as node:
            alice, bob = Asked(node.dispatch, "User:alice"), Asked(node.dispatch, "User:bob")
            await bob("CreateTopics", 7, topics=[created("t", 1)])
            assert [await commit(alice, group) for group in ("a", "a", "b", "c", "a")] == [0, 0, 0, 44, 0]
            assert (await join(alice, "c"))[0] == 44
            assert (await join(alice, "a"))[0] == 0
            assert await commit(bob, "c") == 0
            assert await commit(alice, "c") == 0, "a group that is there is not made by a commit"
            for group in ("a", "b", "c"):
                await bob("DeleteGroups", 1, groups_names=[group])
            node.limiting_clock.now_s += 10
            assert await commit(alice, "d") == 0

    run(story())


def test_what_is_counted_later_counts_for_forms_that_were_asked_before() -> None:
    """Nothing stands before a heartbeat while nobody is counted, and its form is one object for all connections."""

    async def story() -> None:
        async with node_with() as node:
            alice = Asked(node.dispatch, "User:alice")
            (_, member), form = await join(alice, "one"), node.dispatch.form(KEYS["Heartbeat"], 4)
            assert form is not None
            bare = form.immediate
            for _ in range(2):
                node.quotas.replace({(("user", "alice"),): {"group_count": 1.0}})
                assert form.immediate != bare
                beat = await alice("Heartbeat", 4, group_id="one", member_id=member, generation_id=1)
                assert beat.error_code == 0
                assert (await join(alice, "two"))[0] == 44
                node.quotas.replace({})
                assert form.immediate == bare
                assert (await alice("JoinGroup", 7, **joined(group_id="two"))).error_code == 79
            assert node.dispatch.form(KEYS["Heartbeat"], 4) is form

    run(story())


def test_topics_that_a_long_answer_has_made_are_their_asker_s() -> None:
    """It comes as bytes: it was written beside the loop."""
    there, given = {"old": 1}, list[tuple[str, list[str]]]()

    class Owners:
        kept = True

        def room(self, user: str) -> None: ...

        def explain_refusal(self, user: str) -> str:
            return ""

        async def made(self, user: str, names: Iterable[str]) -> None:
            given.append((user, list(names)))

    async def handler(request: Any, call: Any) -> EncodedAnswer:
        there["new"] = 1_000
        return EncodedAnswer([b"long"])

    limiting = RequestQuotas(NodeQuotas(1, 1), lambda: there, 1, cast(Any, None), owners=Owners())
    asking, _ = limiting.limited("Metadata", handler, None)
    assert asking is not None
    rows = [struct("MetadataRequest.topics")(name=name) for name in ("new", "old", "refused")]
    call = SimpleNamespace(identity=SimpleNamespace(principal=SimpleNamespace(name="alice")))
    answer = asyncio.run(asking(struct("MetadataRequest")(topics=rows), cast(Any, call)))
    assert (answer.body, given) == ([b"long"], [("alice", ["new"])])
