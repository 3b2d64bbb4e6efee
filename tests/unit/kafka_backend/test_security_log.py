"""Who may do what, in one partition of the upstream: what two nodes write and read, and what stops them."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.coordinator.kafka_backend import security_topic
from muster.coordinator.kafka_backend import security_topic as security_log
from muster.coordinator.kafka_backend.state_topic import UnusableUpstream
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.records import encode_security_record
from muster.coordinator.security.state import AclKey, SecurityRecord
from muster.coordinator.server.kafka_backend import security_store
from muster.coordinator.server.kafka_backend.security_store import BEGUN, UpstreamSecurityStore
from muster.coordinator.server.security.security_store import (
    ConcurrentSecurityChange,
    SecurityDamaged,
    SecurityUnavailable,
    SecurityWriteTimedOut,
)
from muster.storage.errors import StorageError
from muster.storage.records.batch import encode_written
from tests.fakes.state_topic import StateTopic
from tests.fakes.upstream_broker import UpstreamBroker
from tests.support.kafka.memory_node import until

TOPIC = "muster.security"


def may(user: str) -> SecurityRecord:
    acl = Acl(ResourceType.GROUP, PatternType.LITERAL, "g", f"User:{user}", "*", Operation.READ, Permission.ALLOW)
    return SecurityRecord(AclKey(acl), acl)


class Nodes:
    """Two, over one fake broker."""

    def __init__(self, broker: UpstreamBroker) -> None:
        self.topic = StateTopic(broker, TOPIC, 1, exists=False)
        self.ups = [Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=5)) for _ in range(2)]
        self.failed: list[BaseException] = []
        self.stores = [self.store(number) for number in range(2)]

    def store(self, number: int) -> UpstreamSecurityStore:
        return UpstreamSecurityStore(self.ups[number], TOPIC, node=number, instance=f"i{number}", wall_ms=lambda: 1)

    async def prepare(self, *, new: bool) -> None:
        await security_topic.prepare_security_topic(
            self.ups[0],
            TOPIC,
            replication=3,
            id_base=1_000,
            new=new,
            mark=[(*encode_security_record(BEGUN), None)],
            now_ms=1,
        )

    async def know(self) -> None:
        await self.prepare(new=True)
        for store in self.stores:
            await store.know(self.failed.append)

    def close(self) -> None:
        for store in self.stores:
            store.stop()
        for upstream in self.ups:
            upstream.close()


def run(story: Callable[[Nodes], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            nodes = Nodes(broker)
            try:
                await story(nodes)
            finally:
                nodes.close()

    asyncio.run(whole())


async def change(store: UpstreamSecurityStore, *changes: SecurityRecord) -> None:
    await store.settled(lambda: store.write(changes))


def users(store: UpstreamSecurityStore) -> set[str]:
    return {acl.principal.removeprefix("User:") for acl in store.state.acls}


def test_a_change_is_in_force_on_return_and_soon_elsewhere() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.know()
        one, two = nodes.stores
        await change(one, may("alice"))
        assert users(one) == {"alice"}
        await until(lambda: users(two) == {"alice"})
        await change(two, may("bob"))
        await change(one, SecurityRecord(may("alice").key, None))
        assert users(one) == {"bob"}, "it knew what the other had written"
        await until(lambda: users(two) == {"bob"})
        assert nodes.failed == []

    run(story)


def test_who_writes_again_needs_no_new_producer() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.know()
        for name in "abc":
            await change(nodes.stores[0], may(name))
        inits = [request for api, request in nodes.topic._broker.asked if api == "InitProducerId"]
        assert len(inits) == 2, "one began the topic, one owns it since"

    run(story)


def test_of_two_at_once_the_second_decides_anew() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.know()
        one, two = nodes.stores

        async def add(store: UpstreamSecurityStore, name: str) -> None:
            for number in range(5):
                await change(store, may(f"{name}{number}"))

        await asyncio.gather(add(one, "a"), add(two, "b"))
        wanted = {f"{name}{number}" for name in "ab" for number in range(5)}
        await until(lambda: users(one) == users(two) == wanted)

    run(story)


def test_what_was_decided_by_less_than_all_is_not_written() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.know()
        one, two = nodes.stores
        await change(one, may("alice"))
        await until(lambda: users(two) == {"alice"})
        gone = [SecurityRecord(may("alice").key, None)]
        seen = two._seen(gone)
        await change(one, *gone)
        with pytest.raises(ConcurrentSecurityChange):
            await two._write([(*encode_security_record(gone[0]), None)], gone, seen)

    run(story)


def test_a_lost_acknowledgement_is_no_second_record() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.know()
        await change(nodes.stores[0], may("alice"))
        nodes.topic.acks_to_lose = 1
        before = nodes.topic.parts[0].end
        await change(nodes.stores[0], may("bob"))
        assert nodes.topic.parts[0].end == before + 1
        assert users(nodes.stores[0]) == {"alice", "bob"}

    run(story)


def test_what_a_stranger_writes_does_not_count_and_is_taken_back() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.know()
        one, two = nodes.stores
        await change(one, may("alice"))
        await until(lambda: users(two) == {"alice"})
        key, value = encode_security_record(may("mallory"))
        hides = encode_security_record(SecurityRecord(may("alice").key, None))[0]
        nodes.topic.parts[0].append(encode_written([(key, value, None), (hides, None, None)], 1, producer=(9, 0, 0)))
        await change(two, may("bob"))
        assert users(two) == {"alice", "bob"}
        await until(lambda: users(one) == {"alice", "bob"})
        late = nodes.store(0)
        await late.know(nodes.failed.append)
        assert users(late) == {"alice", "bob"}
        late.stop()
        written = [
            (record.key, record.value)
            for batch in nodes.topic.parts[0].read
            for record in batch.records()
            if record.key in (key, hides)
        ]
        assert (key, None) in written[-2:], "what it hid, and what it claimed, is written again"
        assert dict(written[-2:])[hides] is not None

    run(story)


def test_what_a_stranger_writes_that_nobody_can_read_is_taken_back_too() -> None:
    """Nobody could change anything any more: whoever owns the log first mends it."""

    async def story(nodes: Nodes) -> None:
        await nodes.know()
        one, two = nodes.stores
        await change(one, may("alice"))
        nodes.topic.parts[0].append(encode_written([(b"[1]", b"{}", None)], 1, producer=(9, 0, 0)))
        await change(two, may("bob"))
        await until(lambda: users(one) == users(two) == {"alice", "bob"})
        late = nodes.store(0)
        await late.know(nodes.failed.append)
        late.stop()
        assert nodes.failed == []

    run(story)


@pytest.mark.parametrize(("code", "sure"), [(29, True), (10, True), (-1, False), (134, False)])
def test_of_a_code_that_nobody_knows_nor_is_it_known_whether_it_was_changed(code: int, sure: bool) -> None:
    """The broker may have appended it: "was not changed" was not true then."""

    async def story(nodes: Nodes) -> None:
        await nodes.know()
        one = nodes.stores[0]
        await change(one, may("alice"))
        nodes.topic.codes.append(code)
        with pytest.raises(StorageError) as told:
            await change(one, may("bob"))
        assert isinstance(told.value, SecurityWriteTimedOut) is not sure
        assert ("was not changed" in str(told.value)) is sure
        await change(one, may("carol"))
        assert users(one) == {"alice", "carol"}

    run(story)


# -- what stops a node ------------------------------------------------------------------------------------------------


def test_a_topic_that_is_missing_is_made_where_all_is_new_and_else_refused() -> None:
    async def story(nodes: Nodes) -> None:
        with pytest.raises(UnusableUpstream, match=r"has no topic muster\.security.*init --security"):
            await nodes.prepare(new=False)
        await nodes.prepare(new=True)
        await nodes.prepare(new=False)
        assert nodes.topic.made

    run(story)


def test_a_broker_that_is_behind_is_not_believed_at_once() -> None:
    """One that has just begun knows no topic. The node ended, and told to make the lists anew, empty."""

    async def story(nodes: Nodes) -> None:
        await nodes.prepare(new=True)
        answers = nodes.topic._broker.answers
        real, behind = answers["Metadata"], 2

        def told(request: Any) -> Any:
            nonlocal behind
            answer = real(request)
            if behind:
                behind -= 1
                answer.topics[0].error_code, answer.topics[0].partitions = 3, []
            return answer

        answers["Metadata"] = told
        await nodes.prepare(new=False)
        assert not behind

    run(story)


def test_an_empty_topic_is_refused() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.topic.exists = True
        with pytest.raises(UnusableUpstream, match="has nothing in it"):
            await nodes.prepare(new=False)

    run(story)


def test_a_topic_without_its_beginning_is_refused() -> None:
    async def story(nodes: Nodes) -> None:
        nodes.topic.exists = True
        nodes.topic.parts[0].append(
            encode_written([(*encode_security_record(may("mallory")), None)], 1, producer=(9, 0, 0))
        )
        await nodes.prepare(new=False)
        with pytest.raises(SecurityDamaged, match="no beginning"):
            await nodes.stores[0].know(nodes.failed.append)

    run(story)


def test_what_nobody_can_read_stops_a_node_at_once() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.know()
        one = nodes.stores[0]
        await change(one, may("alice"))
        held = one._log_there._held
        assert held is not None
        nodes.topic.parts[0].append(
            encode_written([(b"[1]", b"{}", None)], 1, producer=(*held, one._log_there._sequence))
        )
        await until(lambda: len(nodes.failed) == 2)
        assert all(isinstance(why, SecurityDamaged) for why in nodes.failed)

    run(story)


def test_records_that_are_gone_stop_a_node() -> None:
    async def story(nodes: Nodes) -> None:
        await nodes.know()
        await change(nodes.stores[0], may("alice"))
        answers = nodes.topic._broker.answers
        real = answers["Fetch"]

        def cut(request: Any) -> Any:
            told = real(request)
            told.responses[0].partitions[0].error_code = 1
            return told

        answers["Fetch"] = cut
        await until(lambda: len(nodes.failed) == 2)
        assert "has no such offset any more" in str(nodes.failed[0])

    run(story)


def test_another_topic_of_the_name_stops_a_node(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_log, "LOOK_S", 0.0)

    async def story(nodes: Nodes) -> None:
        await nodes.know()
        answers = nodes.topic._broker.answers
        real = answers["Metadata"]

        def anew(request: Any) -> Any:
            told = real(request)
            for topic in told.topics:
                topic.topic_id = b"made anew       "
            return told

        answers["Metadata"] = anew
        await until(lambda: len(nodes.failed) == 2)
        assert "another topic than it was" in str(nodes.failed[0])

    run(story)


def test_who_cannot_read_any_more_says_so_and_then_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_store, "TOLD_S", 0.2)
    monkeypatch.setattr(security_store, "STALE_S", 0.4)
    monkeypatch.setattr(security_store, "DEADLINE_S", 0.5)

    async def story(nodes: Nodes) -> None:
        await nodes.know()
        one = nodes.stores[0]
        await change(one, may("alice"))
        answers = nodes.topic._broker.answers
        real = answers["Fetch"], answers["Produce"]

        def refused(request: Any) -> Any:
            told = real[0](request)
            told.responses[0].partitions[0].error_code = 29
            told.responses[0].partitions[0].records = b""
            return told

        answers["Fetch"] = refused
        await until(lambda: bool(one.stale()))
        assert "TOPIC_AUTHORIZATION_FAILED (29)" in one.stale()
        assert users(one) == {"alice"}, "it is not forgotten"
        with pytest.raises(SecurityUnavailable):
            await change(one, may("bob"))
        answers["Fetch"] = real[0]
        await until(lambda: not one.behind())
        await change(one, may("bob"))
        assert users(one) == {"alice", "bob"}
        assert nodes.failed == []

    run(story)


def test_how_old_an_answer_is_counts_from_the_question() -> None:
    """A node that stood still reads what was answered before: it knows nothing yet of what others wrote since."""

    async def story(nodes: Nodes) -> None:
        await nodes.know()
        one = nodes.stores[0]
        nodes.stores[1].stop()
        loop = asyncio.get_running_loop()
        answers = nodes.topic._broker.answers
        real, gates = answers["Fetch"], [asyncio.Event(), asyncio.Event()]
        asked: list[asyncio.Event] = []

        async def held(request: Any) -> Any:
            if gates:
                asked.append(gates.pop(0))
                await asked[-1].wait()
            return real(request)

        answers["Fetch"] = held
        await until(lambda: len(asked) == 1)
        asked_s = loop.time()
        await until(lambda: loop.time() - asked_s > 0.3)
        asked[0].set()
        await until(lambda: len(asked) == 2)
        assert one._log_there.behind_s > 0.3
        asked[1].set()
        await until(lambda: one._log_there.behind_s < 0.3)

    run(story)
