"""Members of one process on one stream, as the client keeps it: who shares, who comes and goes, and what breaks."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import grpc
import pytest

from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.methods import SHARED_SESSION, ClientMethod
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig, load
from muster.client.errors import Unreachable
from muster.client.membership.member_driver import build_member_settings
from muster.client.membership.session_stream import SessionStream, StreamPlace, build_rpc_error, shared_streams
from muster.client.twins import BackgroundTasks
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb

NODE, OTHER = "node:1", "other:1"
MANY = 256


class Call:
    """One stream to a node, spoken by hand."""

    def __init__(self, address: str, *, shared: bool) -> None:
        self.address, self.shared = address, shared
        self.frames: list[Any] = []
        self.cancelled = False
        self._heard: asyncio.Queue[Any] = asyncio.Queue()

    async def write(self, frame: Any) -> None:
        self.frames.append(frame)

    def end(self) -> None:
        self._heard.put_nowait(None)

    def cancel(self) -> bool:
        self.cancelled = True
        self._heard.put_nowait(asyncio.CancelledError())
        return True

    def done(self) -> bool:
        return self.cancelled

    async def __aiter__(self) -> AsyncIterator[Any]:
        while (heard := await self._heard.get()) is not None:
            if isinstance(heard, BaseException):
                raise heard
            yield heard

    def tell(self, *heard: pb.MemberResponse) -> None:
        self._heard.put_nowait(pb.SharedSessionResponse(responses=heard))

    def tell_own(self, heard: pb.SessionResponse) -> None:
        self._heard.put_nowait(heard)

    def fail(self, status: grpc.StatusCode, detail: str = "so it is") -> None:
        self._heard.put_nowait(build_rpc_error(status, detail))

    @property
    def said(self) -> list[tuple[int, str]]:
        words = [word for frame in self.frames for word in frame.requests]
        return [(word.member, word.request.WhichOneof("request") or left(word)) for word in words]


class Channel:
    closed = False

    async def close(self) -> None:
        self.closed = True


class Client(Transport):
    """A client whose conversations are calls of the test."""

    def __init__(self, calls: list[Call], **more: str) -> None:
        given = {"group.id": "g", "bootstrap.servers": "127.0.0.1:1"} | {
            k.replace("_", "."): v for k, v in more.items()
        }
        super().__init__(load(ConsumerConfig, given, {}))
        self.calls = calls
        self.shares = True

    def converse(self, method: ClientMethod[Any, Any], address: str) -> Any:
        self.calls.append(Call(address, shared=method is SHARED_SESSION))
        self._channel(address)
        return self.calls[-1]

    def _channel(self, address: str) -> Any:
        return self._channels.setdefault(address, Channel())  # type: ignore[arg-type]

    async def call(self, *args: Any, **more: Any) -> Any:
        return pb.FindCoordinatorResponse(host="node", port=1, members_per_stream=MANY if self.shares else 0)


class Member:
    """Keeps a session open; notes when it has one."""

    def __init__(self, client: Client, name: str) -> None:
        self.name = name
        self.states: list[str] = []
        self.heard: list[pb.SessionResponse] = []
        settings = build_member_settings(client.config)  # type: ignore[arg-type]
        self.session = SessionStream(
            client,
            GroupCalls(client, "g"),
            settings,
            opened=self.opened,
            lost=lambda: self.states.append("lost"),
            heard=self.heard.append,
            background=BackgroundTasks(),
        )
        self.session.follow(name)

    def opened(self, interval_ms: int, in_step_ms: int | None) -> None:
        self.states.append("opened")
        self.in_step_ms = in_step_ms


def left(word: pb.MemberRequest) -> str:
    return "broken" if word.leaves.broken else "leaves"


def welcome(number: int) -> pb.MemberResponse:
    return response(number, pb.SessionResponse(sequence_number=1, welcome=pb.SessionWelcome()))


def response(number: int, said: pb.SessionResponse) -> pb.MemberResponse:
    return pb.MemberResponse(member=number, response=said)


def ended(number: int, status: grpc.StatusCode = grpc.StatusCode.OK) -> pb.MemberResponse:
    return pb.MemberResponse(member=number, ended=pb.MemberEnded(status=status.value[0], message="so it is"))


async def until(true: Callable[[], bool]) -> None:
    while not true():
        await turn()


async def turn() -> None:
    await asyncio.sleep(0)


async def open_on(calls: list[Call], *members: Member) -> Call:
    """All on one stream, which has welcomed them."""
    await until(lambda: bool(calls) and len(calls[-1].said) == len(members))
    calls[-1].tell(*(welcome(number) for number in range(len(members))))
    await until(lambda: all(member.states == ["opened"] for member in members))
    return calls[-1]


def play(story: Callable[[list[Call]], Coroutine[Any, Any, None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(30):
            await story([])

    asyncio.run(bounded())


def test_members_of_a_stream_keep_step_and_one_on_its_own_does_not() -> None:
    async def story(calls: list[Call]) -> None:
        members = [Member(Client(calls), name) for name in "abc"]
        await open_on(calls, *members)
        assert members[0].in_step_ms is not None
        assert len({member.in_step_ms for member in members}) == 1
        client = Client(calls, bootstrap_servers=OTHER)
        client.shares = False
        alone = Member(client, "d")
        await until(lambda: len(calls) == 2)
        calls[1].tell_own(pb.SessionResponse(welcome=pb.SessionWelcome()))
        await until(lambda: alone.states == ["opened"])
        assert alone.in_step_ms is None

    play(story)


def test_members_of_one_process_share_a_stream_and_speak_in_one_frame() -> None:
    async def story(calls: list[Call]) -> None:
        members = [Member(Client(calls), name) for name in "abc"]
        call = await open_on(calls, *members)
        assert (len(calls), call.shared, len(call.frames)) == (1, True, 1)
        assert [word.request.hello.member_id for word in call.frames[0].requests] == ["a", "b", "c"]
        beat = pb.HeartbeatRequest(generation_id=7)
        asks = [
            asyncio.create_task(member.session.send_heartbeat(pb.SessionRequest(heartbeat=beat), 10_000))
            for member in members
        ]
        await until(lambda: len(call.frames) == 2)
        assert [(word.member, word.request.acknowledged) for word in call.frames[1].requests] == [
            (0, 1),
            (1, 1),
            (2, 1),
        ]
        call.tell(*(response(number, pb.SessionResponse(sequence_number=2, request_number=1)) for number in range(3)))
        assert [answer.request_number for answer in await asyncio.gather(*asks)] == [1, 1, 1]
        call.tell(response(1, pb.SessionResponse(sequence_number=3, fenced=pb.SessionFenced())))
        await until(lambda: bool(members[1].heard))
        assert [len(member.heard) for member in members] == [0, 1, 0]

    play(story)


def test_another_node_another_identity_and_a_node_that_offers_none_have_their_own() -> None:
    async def story(calls: list[Call]) -> None:
        client = Client(calls)
        shared_streams().line(client, NODE, MANY)
        shared_streams().line(client, OTHER, MANY)
        shared_streams().line(client, NODE, 0)
        shared_streams().line(Client(calls, token="one"), NODE, MANY)
        shared_streams().line(Client(calls, token="two"), NODE, MANY)
        shared_streams().line(Client(calls, token="two"), NODE, MANY)
        shared_streams().line(Client(calls), NODE, MANY)
        opened = [(call.address, call.shared) for call in calls]
        assert opened == [(NODE, True), (OTHER, True), (NODE, False), (NODE, True), (NODE, True)]

    play(story)


def test_a_stream_that_is_full_is_followed_by_another() -> None:
    async def story(calls: list[Call]) -> None:
        places = [shared_streams().line(Client(calls), NODE, 2) for _ in range(5)]
        assert len(calls) == 3
        places[4].cancel()
        assert calls[2].cancelled
        shared_streams().line(Client(calls), NODE, 2)
        assert len(calls) == 4, "nobody comes on one that was broken off"

    play(story)


def test_who_goes_says_so_and_the_connection_of_who_came_first_outlives_it() -> None:
    async def story(calls: list[Call]) -> None:
        first, second = Client(calls), Client(calls)
        members = [Member(first, "a"), Member(second, "b")]
        call = await open_on(calls, *members)
        closing = asyncio.create_task(members[0].session.close())
        await until(lambda: call.said[2:] == [(0, "leaves")])
        call.tell(ended(0))
        await closing
        channel: Any = first._channels[NODE]
        await first.close()
        assert (channel.closed, members[1].states) == (False, ["opened"])
        closing = asyncio.create_task(members[1].session.close())
        await until(lambda: call.said[3:] == [(1, "leaves")])
        call.tell(ended(1))
        call.end()
        await closing
        await until(lambda: channel.closed)
        await second.close()

    play(story)


def test_a_connection_that_nobody_uses_any_more_is_closed_with_its_client() -> None:
    async def story(calls: list[Call]) -> None:
        client = Client(calls)
        member = Member(client, "a")
        call = await open_on(calls, member)
        closing = asyncio.create_task(member.session.close())
        await until(lambda: call.said[1:] == [(0, "leaves")])
        call.tell(ended(0))
        call.end()
        await closing
        channel: Any = client._channels[NODE]
        await client.close()
        assert channel.closed

    play(story)


def test_the_end_of_the_stream_is_heard_by_all_and_they_come_again() -> None:
    async def story(calls: list[Call]) -> None:
        members = [Member(Client(calls), name) for name in "ab"]
        call = await open_on(calls, *members)
        asks = [asyncio.create_task(member.session.send_heartbeat(pb.SessionRequest(), 10_000)) for member in members]
        await until(lambda: len(call.said) == 4)
        call.fail(grpc.StatusCode.UNAVAILABLE)
        assert [type(each) for each in await asyncio.gather(*asks, return_exceptions=True)] == [Unreachable] * 2
        assert [member.states for member in members] == [["opened", "lost"]] * 2
        await until(lambda: len(calls) == 2 and len(calls[1].said) == 2)
        assert calls[1].shared

    play(story)


def test_the_end_of_one_members_session_is_its_own() -> None:
    async def story(calls: list[Call]) -> None:
        members = [Member(Client(calls), name) for name in "ab"]
        call = await open_on(calls, *members)
        call.tell(ended(0, grpc.StatusCode.RESOURCE_EXHAUSTED))
        await until(lambda: members[0].states == ["opened", "lost"])
        await until(lambda: call.said[2:] == [(2, "hello")])
        call.tell(ended(2, grpc.StatusCode.PERMISSION_DENIED))
        await until(lambda: not members[0].session._offered)
        assert (members[1].states, len(calls)) == (["opened"], 1)

    play(story)


def test_who_is_not_answered_breaks_its_session_off_and_comes_on_a_new_stream() -> None:
    async def story(calls: list[Call]) -> None:
        members = [Member(Client(calls), name) for name in "ab"]
        call = await open_on(calls, *members)
        with pytest.raises(Unreachable):
            await members[0].session.send_heartbeat(pb.SessionRequest(), 1)
        await until(lambda: (0, "broken") in call.said)
        assert [member.states for member in members] == [["opened", "lost"], ["opened"]]
        await until(lambda: len(calls) == 2 and calls[1].said == [(0, "hello")])
        assert not call.cancelled
        with pytest.raises(Unreachable):
            await members[1].session.send_heartbeat(pb.SessionRequest(), 1)
        assert call.cancelled, "it was the last one"

    play(story)


def test_a_stream_of_its_own_that_was_broken_off_is_opened_again() -> None:
    async def story(calls: list[Call]) -> None:
        client = Client(calls)
        client.shares = False
        member = Member(client, "a")
        await until(lambda: len(calls) == 1)
        calls[0].tell_own(welcome(0).response)
        await until(lambda: member.states == ["opened"])
        with pytest.raises(Unreachable):
            await member.session.send_heartbeat(pb.SessionRequest(), 1)
        assert calls[0].cancelled
        await until(lambda: len(calls) == 2)

    play(story)


def test_a_stream_of_its_own_that_broke_while_it_was_written_to_is_opened_again() -> None:
    """gRPC says INTERNAL then, for UNAVAILABLE: a member whose node was killed at that moment polled for good."""

    async def story(calls: list[Call]) -> None:
        client = Client(calls)
        client.shares = False
        member = Member(client, "a")
        await until(lambda: len(calls) == 1)
        calls[0].tell_own(welcome(0).response)
        await until(lambda: member.states == ["opened"])
        calls[0].fail(grpc.StatusCode.INTERNAL, "Internal error from Core")
        await until(lambda: len(calls) == 2)

    play(story)


def test_a_node_that_does_not_know_shared_streams_is_spoken_to_on_their_own() -> None:
    """A node of another version has told of them: the coordinator is older."""

    async def story(calls: list[Call]) -> None:
        members = [Member(Client(calls), name) for name in "ab"]
        await until(lambda: len(calls) == 1)
        calls[0].fail(grpc.StatusCode.UNIMPLEMENTED)
        await until(lambda: len(calls) == 3)
        assert [call.shared for call in calls] == [True, False, False]
        for call in calls[1:]:
            call.tell_own(welcome(0).response)
        await until(lambda: all(member.states[-1:] == ["opened"] for member in members))
        shared_streams().line(Client(calls), NODE, MANY)
        assert not calls[3].shared, "it is remembered for a while"

    play(story)


@pytest.mark.parametrize(
    ("status", "detail"),
    [
        (grpc.StatusCode.INVALID_ARGUMENT, "requests.topics has 100001 entries or more"),
        (grpc.StatusCode.RESOURCE_EXHAUSTED, "Received message larger than max (5 vs. 4)"),
        (grpc.StatusCode.INTERNAL, "its log has the details under reference 4711"),
    ],
    ids=lambda each: each.name if isinstance(each, grpc.StatusCode) else "",
)
def test_what_nobody_takes_from_one_member_costs_the_others_a_stream_of_their_own(
    status: grpc.StatusCode, detail: str
) -> None:
    """It was all members' refusal: none of the process had a stream again for as long as it lived."""

    async def story(calls: list[Call]) -> None:
        members = [Member(Client(calls), name) for name in "ab"]
        call = await open_on(calls, *members)
        call.fail(status, detail)
        await until(lambda: len(calls) == 3)
        assert [each.shared for each in calls] == [True, False, False]
        good, bad = calls[1:]
        bad.fail(status, detail)
        good.tell_own(welcome(0).response)
        await until(lambda: members[0].states == ["opened", "lost", "opened"])
        await until(lambda: not members[1].session._offered)
        assert len(calls) == 3

    play(story)


def test_a_stream_that_is_refused_to_an_identity_is_refused_to_each_of_its_members() -> None:
    async def story(calls: list[Call]) -> None:
        members = [Member(Client(calls), name) for name in "ab"]
        call = await open_on(calls, *members)
        call.fail(grpc.StatusCode.PERMISSION_DENIED, "so it is")
        await until(lambda: not any(member.session._offered for member in members))
        assert len(calls) == 1

    play(story)


def test_what_is_large_goes_in_frames_of_its_own() -> None:
    async def story(calls: list[Call]) -> None:
        places = [shared_streams().line(Client(calls), NODE, MANY) for _ in range(3)]
        large = pb.SessionRequest(hello=pb.SessionHello(member_id="x" * (700 << 10)))
        for place in places:
            assert isinstance(place, StreamPlace)
            await place.write(large)
        await until(lambda: len(calls[0].said) == 3)
        assert [len(frame.requests) for frame in calls[0].frames] == [1, 1, 1]

    play(story)
