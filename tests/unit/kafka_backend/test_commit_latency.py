"""What a commit waits for besides Kafka: its turn, and nothing else. What a node writes leaves with the turn that
decided it, and who waits for it is answered in the call that reads Kafka's answer."""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Coroutine
from itertools import count
from typing import Any

import pytest

from muster.coordinator.config import Address
from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka_backend import state_log_io
from muster.coordinator.kafka_backend.shard_ownership import events_and_effects as ev
from muster.coordinator.kafka_backend.upstream.connection import ASK, WRITE, UpstreamConnection
from muster.coordinator.kafka_backend.upstream.protocol import Unreached, Unspoken, UpstreamAddress, UpstreamError
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from tests.fakes.state_topic import StateTopic
from tests.fakes.upstream_broker import HANG_UP, SILENCE, UpstreamBroker, metadata
from tests.support.kafka_backend.over_kafka import OverKafka

SHARDS = 20
BEAT = struct("HeartbeatRequest")(group_id="g", member_id="m", generation_id=1)
WELL = struct("HeartbeatResponse")()


def over(story: Callable[[OverKafka, StateTopic, UpstreamBroker], Coroutine[Any, Any, None]]) -> None:
    """Of a node that serves all its shards."""

    async def whole() -> None:
        async with UpstreamBroker() as broker:
            topic = StateTopic(broker, "muster.state", SHARDS)
            topic.configs["min.insync.replicas"] = "1"
            async with OverKafka(f"127.0.0.1:{broker.address.port}", "muster", SHARDS) as node:
                await node.all_served()
                await story(node, topic, broker)
                assert node.bugs == []

    asyncio.run(whole())


class Held:
    """In the place of what asks the upstream: keeps what would be asked."""

    def __init__(self, node: OverKafka) -> None:
        self.asked: list[tuple[Any, Callable[[Any], None]]] = []
        self._offsets = count(1_000)
        node.upstream.ask_then = self  # type: ignore[method-assign, assignment]

    def __call__(self, broker: int, api: str, request: Any, tell: Callable[[Any], None], **_: Any) -> None:
        assert api == "Produce"
        self.asked.append((request, tell))

    def tells(self) -> None:
        """The answer to the oldest one."""
        request, tell = self.asked.pop(0)
        made = struct("ProduceResponse.responses.partition_responses")
        parts = [
            made(index=each.index, base_offset=next(self._offsets)) for each in request.topic_data[0].partition_data
        ]
        topic = struct("ProduceResponse.responses")(name=request.topic_data[0].name, partition_responses=parts)
        tell(struct("ProduceResponse")(responses=[topic]))


async def decided(node: OverKafka, held: Held, *groups: str) -> "list[asyncio.Task[ErrorCode]]":
    """Commits that have had their turn."""
    answers = [asyncio.ensure_future(node.commit(group, 1)) for group in groups]
    await asyncio.sleep(0)  # they ask
    await asyncio.sleep(0)  # the turn
    return answers


def test_what_a_turn_decided_leaves_with_it_for_all_shards_together() -> None:
    async def story(node: OverKafka, topic: StateTopic, broker: UpstreamBroker) -> None:
        held = Held(node)
        answers = await decided(node, held, *(f"g{number}" for number in range(60)))
        [(request, _)] = held.asked
        assert len(request.topic_data[0].partition_data) == SHARDS
        held.tells()
        assert await asyncio.gather(*answers) == [ErrorCode.NONE] * 60

    over(story)


def test_who_waits_is_answered_in_the_call_that_brings_kafkas_answer() -> None:
    async def story(node: OverKafka, topic: StateTopic, broker: UpstreamBroker) -> None:
        held = Held(node)
        [answer] = await decided(node, held, "g")
        [waiting] = node._waiting.values()
        assert not waiting.done()
        held.tells()
        assert waiting.done(), "without another round of the loop"
        assert await answer is ErrorCode.NONE

    over(story)


def test_what_waited_behind_it_leaves_in_that_call() -> None:
    async def story(node: OverKafka, topic: StateTopic, broker: UpstreamBroker) -> None:
        held = Held(node)
        answers = [*await decided(node, held, "g"), *await decided(node, held, "g", "h")]
        assert len(held.asked) == 1, "one at a time (A1)"
        held.tells()
        assert len(held.asked) == 1
        held.tells()
        assert await asyncio.gather(*answers) == [ErrorCode.NONE] * 3

    over(story)


def test_what_a_turn_wrote_comes_before_all_that_happens_then() -> None:
    """A shard that goes, and one that was served before it, must not have their writes in another order."""

    async def story(node: OverKafka, topic: StateTopic, broker: UpstreamBroker) -> None:
        held = Held(node)
        answer = asyncio.ensure_future(node.commit("g", 1))
        await asyncio.sleep(0)
        node.engine.turn(node.clock.now_ms())
        assert held.asked == []
        node.owning.step(ev.ShardsTick())
        assert len(held.asked) == 1
        held.tells()
        assert await answer is ErrorCode.NONE

    over(story)


def test_what_is_acknowledged_costs_as_much_whatever_the_node_has() -> None:
    async def story(node: OverKafka, topic: StateTopic, broker: UpstreamBroker) -> None:
        held = Held(node)
        for _ in range(3):
            [answer] = await decided(node, held, "g")
            held.tells()
            await answer
        calls = 0

        def counted(frame: Any, event: str, argument: Any) -> None:
            nonlocal calls
            calls += event == "call" and "/shard_ownership/" in frame.f_code.co_filename

        [answer] = await decided(node, held, "g")
        sys.setprofile(counted)
        held.tells()
        sys.setprofile(None)
        await answer
        assert 0 < calls < 40, "not all shards of the node are looked at"

    over(story)


def test_after_the_end_nobody_is_told_and_nothing_is_asked_again() -> None:
    async def story(node: OverKafka, topic: StateTopic, broker: UpstreamBroker) -> None:
        held = Held(node)
        [answer] = await decided(node, held, "g")
        await node.owning.stop()
        _, tell = held.asked.pop()
        tell(Unreached("the connection was closed at this end"))
        await asyncio.sleep(0)
        assert held.asked == []
        assert not node.owning._tasks.busy
        assert not answer.done()
        answer.cancel()

    over(story)


def test_a_mistake_in_what_is_heard_is_told_and_the_line_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(node: OverKafka, topic: StateTopic, broker: UpstreamBroker) -> None:
        def mistaken(*_: Any) -> None:
            raise RuntimeError("a mistake")

        monkeypatch.setattr(state_log_io.ev, "BatchesProduced", mistaken)
        answer = asyncio.ensure_future(node.commit("g", 1))
        while not node.bugs:
            await node.changes(0.01)
        assert repr(node.bugs.pop()) == "RuntimeError('a mistake')"
        line = node.upstream.lines.standing(node.upstream.address_of(1), WRITE)
        assert line is not None
        assert line.open
        answer.cancel()

    over(story)


# -- one line -------------------------------------------------------------------------------------------------------


class Unplugged(asyncio.Transport):
    """Leads nowhere."""

    def writelines(self, pieces: Any) -> None:
        pass

    def abort(self) -> None:
        pass


def unplugged() -> UpstreamConnection:
    line = UpstreamConnection(Address("127.0.0.1", 9092), "muster")
    line.versions = {"Heartbeat": 4, "Produce": 9}
    line.connection_made(Unplugged())
    return line


def frame(number: int, body: bytes | None = None) -> bytes:
    said = b"".join([number.to_bytes(4, "big"), b"\0", *encode("HeartbeatResponse", 4, WELL)]) if body is None else body
    return len(said).to_bytes(4, "big") + said


def in_a_loop(story: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(story())  # type: ignore[arg-type]


def test_answers_are_told_in_order_in_the_breath_in_which_they_are_read() -> None:
    async def story() -> None:
        line, told = unplugged(), list[Any]()
        for _ in range(2):
            line.ask_then("Heartbeat", BEAT, 5, told.append)
        answer = asyncio.ensure_future(line.send_request("Heartbeat", BEAT, 5))
        await asyncio.sleep(0)
        line.data_received(frame(1) + frame(2))
        assert [each.error_code for each in told] == [0, 0]
        line.data_received(frame(3))
        assert (await answer).error_code == 0

    in_a_loop(story)


def test_why_there_is_no_answer_is_told_once_and_in_a_round_of_its_own() -> None:
    async def story() -> None:
        line, told = unplugged(), list[Any]()
        line.ask_then("Heartbeat", BEAT, 5, told.append)
        line.close()
        assert told == [], "it may end in the middle of anything"
        line.ask_then("Heartbeat", BEAT, 5, told.append)
        assert told == []
        await asyncio.sleep(0)
        assert [type(each) for each in told] == [Unreached, Unreached]
        line.data_received(frame(1))
        assert len(told) == 2

    in_a_loop(story)


def test_what_cannot_be_said_and_what_is_no_answer_is_told_as_such() -> None:
    async def story() -> None:
        line, told = unplugged(), list[Any]()
        line.ask_then("SyncGroup", BEAT, 5, told.append)
        line.ask_then("Heartbeat", struct("HeartbeatRequest")(group_id=None), 5, told.append)
        await asyncio.sleep(0)
        assert [type(each) for each in told] == [Unspoken, UpstreamError]
        assert line.open
        line.ask_then("Heartbeat", BEAT, 5, told.append)
        line.data_received(frame(2, b"\0\0\0\2\0\0"))
        assert "an invalid answer to Heartbeat" in str(told[-1])
        assert not line.open

    in_a_loop(story)


def test_an_answer_that_does_not_come_in_time_ends_the_line() -> None:
    async def story() -> None:
        line = unplugged()
        told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        line.ask_then("Heartbeat", BEAT, 0.01, told.set_result)
        assert "did not answer Heartbeat within 0.01 s" in str(await told)
        assert not line.open

    in_a_loop(story)


@pytest.mark.parametrize("said", [None, HANG_UP, SILENCE])
def test_where_no_connection_stands_one_is_made(said: Any) -> None:
    async def story() -> None:
        async with UpstreamBroker({"Heartbeat": lambda request: WELL if said is None else said}) as broker:
            broker.answers["Metadata"] = lambda request: metadata({1: broker.address}, {})
            upstream = Upstream(
                UpstreamAddress((broker.address,), connect_s=5, answer_s=5 if said is not SILENCE else 0.05)
            )
            await upstream.refresh([])
            told: list[asyncio.Future[Any]] = [asyncio.get_running_loop().create_future() for _ in range(3)]
            upstream.ask_then(1, "Heartbeat", BEAT, told[0].set_result, purpose=WRITE)
            first = await told[0]
            upstream.ask_then(1, "Heartbeat", BEAT, told[1].set_result, purpose=WRITE)
            second = await told[1]
            upstream.ask_then(9, "Heartbeat", BEAT, told[2].set_result, purpose=ASK)
            assert "broker 9 of the upstream is not there" in str(await told[2])
            if said is None:
                assert (first.error_code, second.error_code) == (0, 0)
                assert broker.connections == 2, "one for the question who there is"
            else:
                assert isinstance(first, Unreached)
                assert isinstance(second, Unreached)
            assert upstream.errors["Heartbeat", "UNREACHED"] == (1 if said is None else 3)
            upstream.close()

    in_a_loop(story)
