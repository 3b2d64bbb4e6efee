"""Many members on one stream: each hears its own, each fails alone, and the end of the stream is the end of all."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from typing import Any

import grpc
import pytest

from muster.coordinator.edge.request_limits import MalformedGroupRequest
from muster.coordinator.errors import (
    CallDenied,
    NodeShuttingDown,
    NotAuthenticated,
    Overloaded,
    SubjectNotFound,
    TemporarilyUnknown,
)
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.services import shared_session
from muster.coordinator.server.services.shared_session import (
    MEMBERS_PER_STREAM,
    MOST_AT_ONCE,
    MOST_UNHEARD,
    SharedSessionHandler,
)

Heard = tuple[int, str]


class Caller:
    """A client on loopback."""

    peer_host = "127.0.0.1"
    client_software = "muster-test 1"
    metadata: Mapping[str, str] = {"traceparent": "t"}
    identity: Any = None
    gone = False

    def cancelled(self) -> bool:
        return self.gone


class Node:
    """Serves members: it echoes heartbeats by their number, and notes how each member's stream ended."""

    def __init__(self) -> None:
        self.calls: dict[str, Any] = {}
        self.ends: dict[str, str] = {}
        self.failures: dict[str, Exception] = {}
        self.stuck: set[str] = set()
        self.hold = asyncio.Event()

    async def serve(self, requests: AsyncIterator[pb.SessionRequest], call: Any) -> AsyncIterator[pb.SessionResponse]:
        first = await anext(requests)
        name = first.hello.member_id
        self.calls[name] = call
        self.ends[name] = "broken"
        yield pb.SessionResponse(welcome=pb.SessionWelcome())
        async for request in requests:
            if name in self.failures:
                raise self.failures[name]
            if name in self.stuck:
                await self.hold.wait()
            yield pb.SessionResponse(request_number=request.request_number)
        self.ends[name] = "broken" if call.cancelled() else "in order"


class Stream:
    """The client's end of one stream."""

    def __init__(self, node: Node, **more: int) -> None:
        self.call = Caller()
        self._said: asyncio.Queue[pb.SharedSessionRequest | None] = asyncio.Queue()
        self.responses = aiter(SharedSessionHandler(node.serve, **more)(self._requests(), self.call))

    async def _requests(self) -> AsyncIterator[pb.SharedSessionRequest]:
        while (frame := await self._said.get()) is not None:
            yield frame
            for _ in range(3):  # A read takes a few turns of the loop, as gRPC's do.
                await asyncio.sleep(0)

    def say(self, *words: pb.MemberRequest) -> None:
        self._said.put_nowait(pb.SharedSessionRequest(requests=words))

    def end(self) -> None:
        self._said.put_nowait(None)

    @property
    def unheard(self) -> int:
        return self._said.qsize()

    async def frame(self) -> list[Heard]:
        return [shown(response) for response in (await anext(self.responses)).responses]

    async def rest(self) -> list[Heard]:
        return [shown(response) async for frame in self.responses for response in frame.responses]


def shown(response: pb.MemberResponse) -> Heard:
    if response.HasField("ended"):
        return response.member, f"ended {response.ended.status} {response.ended.message}".strip()
    said = response.response
    return response.member, f"answer {said.request_number}" if said.request_number else str(said.WhichOneof("event"))


def hello(number: int) -> pb.MemberRequest:
    request = pb.SessionRequest(hello=pb.SessionHello(group_id="g", member_id=f"m{number}"))
    return pb.MemberRequest(member=number, request=request)


def beat(number: int, request_number: int = 1) -> pb.MemberRequest:
    request = pb.SessionRequest(request_number=request_number, heartbeat=pb.HeartbeatRequest(generation_id=1))
    return pb.MemberRequest(member=number, request=request)


def leaves(number: int, *, broken: bool = False) -> pb.MemberRequest:
    return pb.MemberRequest(member=number, leaves=pb.MemberLeaves(broken=broken))


def play(story: Callable[[Node], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story(Node())

    asyncio.run(bounded())


def test_what_all_have_to_hear_at_one_moment_goes_as_one_frame() -> None:
    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.say(*(hello(number) for number in range(5)))
        assert await stream.frame() == [(number, "welcome") for number in range(5)]
        stream.say(*(beat(number, 10 + number) for number in range(5)))
        assert await stream.frame() == [(number, f"answer {10 + number}") for number in range(5)]
        assert {call.client_software for call in node.calls.values()} == {"muster-test 1"}
        assert {call.metadata["traceparent"] for call in node.calls.values()} == {"t"}

    play(story)


def test_who_leaves_is_gone_at_once_and_the_others_go_on() -> None:
    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.say(hello(0), hello(1))
        await stream.frame()
        stream.say(leaves(0))
        assert await stream.frame() == [(0, "ended 0")]
        assert node.ends == {"m0": "in order", "m1": "broken"}
        stream.say(beat(0), beat(1))  # What crossed the end is left aside.
        assert await stream.frame() == [(1, "answer 1")]
        stream.say(leaves(1, broken=True))
        assert await stream.rest() == [(1, "ended 0")]
        assert node.ends == {"m0": "in order", "m1": "broken"}

    play(story)


@pytest.mark.parametrize(
    "failure",
    [
        MalformedGroupRequest("request is empty"),
        Overloaded("as many as this node keeps"),
        NodeShuttingDown(),
        TemporarilyUnknown("later"),
        SubjectNotFound("gone"),
        CallDenied("no right"),
        NotAuthenticated("who?"),
        ZeroDivisionError(),
    ],
    ids=lambda failure: type(failure).__name__,
)
def test_the_failure_of_one_is_told_as_its_own_streams_status_and_is_nobody_elses(failure: Exception) -> None:
    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.say(hello(0), hello(1))
        await stream.frame()
        node.failures["m0"] = failure
        stream.say(beat(0), beat(1))
        heard = dict(await stream.frame())
        assert heard[1] == "answer 1"
        status = int(heard[0].split()[1])
        expected = {
            MalformedGroupRequest: "INVALID_ARGUMENT",
            Overloaded: "RESOURCE_EXHAUSTED",
            NodeShuttingDown: "UNAVAILABLE",
        }
        expected |= {TemporarilyUnknown: "UNAVAILABLE", SubjectNotFound: "NOT_FOUND", CallDenied: "PERMISSION_DENIED"}
        expected |= {NotAuthenticated: "UNAUTHENTICATED", ZeroDivisionError: "INTERNAL"}  # type: ignore[dict-item]
        assert status == grpc.StatusCode[expected[type(failure)]].value[0]
        assert (str(failure) or "its log has the details under reference") in heard[0]

    play(story)


def test_the_end_of_the_stream_is_broken_for_all_who_have_not_left() -> None:
    """Of a call that broke off the requests end first, and only then it is known that it was cancelled."""

    async def story(node: Node) -> None:
        for gone in (False, True):
            stream = Stream(node)
            stream.say(hello(0), hello(1), hello(2))
            await stream.frame()
            stream.say(leaves(2))
            stream.call.gone = gone
            stream.end()
            assert sorted(await stream.rest()) == [(0, "ended 0"), (1, "ended 0"), (2, "ended 0")]
            assert node.ends == {"m0": "broken", "m1": "broken", "m2": "broken" if gone else "in order"}
        node.ends.clear()
        stream = Stream(node)
        stream.say(hello(0), hello(1))
        await stream.frame()
        await stream.responses.aclose()  # type: ignore[attr-defined]
        assert node.ends == {"m0": "broken", "m1": "broken"}

    play(story)


def test_a_member_whose_shard_is_silent_keeps_nobody_waiting_and_may_say_so_much() -> None:
    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.say(hello(0), hello(1))
        await stream.frame()
        node.stuck.add("m0")
        stream.say(beat(0), beat(1))
        assert await stream.frame() == [(1, "answer 1")]
        stream.say(*(beat(0) for _ in range(MOST_UNHEARD)))
        stream.say(beat(1, 2))
        assert await stream.frame() == [(1, "answer 2")]
        stream.say(beat(0))
        ((number, how),) = await stream.frame()
        assert (number, how[:7]) == (0, "ended 8")
        assert "16 messages of this member wait" in how
        assert node.ends["m0"] == "broken"
        stream.say(beat(1, 3))
        assert await stream.frame() == [(1, "answer 3")]

    play(story)


def test_a_stream_carries_so_many_members() -> None:
    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.say(*(hello(number) for number in range(MEMBERS_PER_STREAM + 1)))
        heard = await stream.frame()
        assert heard[0][1].startswith(f"ended 8 {MEMBERS_PER_STREAM} members are on this stream")
        assert heard[1:] == [(number, "welcome") for number in range(MEMBERS_PER_STREAM)]
        stream.say(leaves(0))
        assert await stream.frame() == [(0, "ended 0")]
        stream.say(hello(MEMBERS_PER_STREAM + 1))
        assert await stream.frame() == [(MEMBERS_PER_STREAM + 1, "welcome")]

    play(story)


def test_who_does_not_read_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_session, "MOST_UNWRITTEN", 2)

    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.say(hello(0), hello(1))
        await stream.frame()
        for number in range(10):
            stream.say(beat(0, number + 1), beat(1, number + 1))
        for _ in range(50):
            await asyncio.sleep(0)
        assert stream.unheard > 5, "two wait to be written, and what they answer was read; the rest was not"
        heard: list[Heard] = []
        while len(heard) < 20:
            heard += await stream.frame()
        assert sorted(heard) == [(member, f"answer {number}") for member in (0, 1) for number in (1, 10, *range(2, 10))]

    play(story)


def test_a_frame_is_cut_where_it_would_be_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_session, "MOST_UNWRITTEN_BYTES", 1)

    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.say(hello(0), hello(1))
        assert [await stream.frame(), await stream.frame()] == [[(0, "welcome")], [(1, "welcome")]]

    play(story)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ([hello(0)] * (MOST_AT_ONCE + 1), "requests has 1001 entries; at most 1000 are accepted at once"),
        ([], "no member came within 1 ms; send a member's hello first on a shared session"),
    ],
)
def test_a_stream_that_breaks_its_own_shape_is_refused(words: list[pb.MemberRequest], says: str) -> None:
    async def story(node: Node) -> None:
        stream = Stream(node, hello_ms=1 if not words else 10_000)
        if words:
            stream.say(*words)
        with pytest.raises(MalformedGroupRequest, match=says):
            await stream.frame()

    play(story)


def test_a_member_that_says_nothing_ends_itself_alone_even_at_once() -> None:
    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.say(hello(0), pb.MemberRequest(member=1))
        heard = [*await stream.frame(), *await stream.frame()]
        assert sorted(heard) == [(0, "welcome"), (1, "ended 3 the member says nothing; expected request or leaves")]

    play(story)


def test_frames_without_a_word_are_nobodys_greeting() -> None:
    """Such a stream had no end: it was open for good, and counted as no member's and as nobody's."""

    async def story(node: Node) -> None:
        stream = Stream(node, hello_ms=20)
        stream.say()
        stream.say()
        with pytest.raises(MalformedGroupRequest, match="no member came within 20 ms"):
            await stream.frame()

    play(story)


@pytest.mark.parametrize("number", [3, 2, -1])
def test_a_first_word_under_a_number_that_is_not_a_new_one_is_refused(number: int) -> None:
    """It was passed over, and whoever had said it waited for good."""

    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.say(hello(3), hello(4))
        await stream.frame()
        stream.say(leaves(3))
        assert await stream.frame() == [(3, "ended 0")]
        stream.say(hello(number), beat(3), beat(4))
        heard: dict[int, str] = {}
        while len(heard) < 2:
            heard |= dict(await stream.frame())
        assert heard[4] == "answer 1"
        assert heard[number].startswith(f"ended 3 member is {number}; expected a number above 4, the highest")

    play(story)


def test_a_stream_of_which_nobody_is_taken_ends() -> None:
    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.say(hello(-1))
        ((number, how),) = await stream.rest()
        assert (number, how[:7]) == (-1, "ended 3")

    play(story)


def test_streams_without_a_member_are_few() -> None:
    async def story(node: Node) -> None:
        handler = SharedSessionHandler(node.serve, most_silent=1)

        async def silence() -> AsyncIterator[pb.SharedSessionRequest]:
            await asyncio.Event().wait()
            yield pb.SharedSessionRequest()

        first = asyncio.ensure_future(anext(handler(silence(), Caller())))
        for _ in range(3):
            await asyncio.sleep(0)
        with pytest.raises(Overloaded, match="1 shared sessions are open on which nobody spoke"):
            await anext(handler(silence(), Caller()))
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        third = asyncio.ensure_future(anext(handler(silence(), Caller())))
        await asyncio.sleep(0)
        assert not third.done()
        third.cancel()

    play(story)


def test_a_stream_that_ends_before_anybody_came_ends() -> None:
    async def story(node: Node) -> None:
        stream = Stream(node)
        stream.end()
        assert await stream.rest() == []

    play(story)
