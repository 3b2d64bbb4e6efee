"""Calls that go on: their rights are looked at again with every change, and what was lost ends them."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final

from muster.coordinator.errors import CallDenied
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.model import Operation, ResourceType
from muster.coordinator.security.rights import RequiredRight
from muster.coordinator.server.security.answers import filter_member_push, filter_watch_notice
from muster.coordinator.server.security.asking import CallRights, IdentifiedCall
from muster.coordinator.server.security.paths import names_at

StreamCheck = Callable[[], None]
"""Raises what ends the call."""
Stream = Callable[[Any, Any], AsyncIterator[Any]]

READ_GROUP: Final = RequiredRight(Operation.READ, ResourceType.GROUP, "group_id")
SEE_TOPIC: Final = RequiredRight(Operation.DESCRIBE, ResourceType.TOPIC, "subscribed topics")
END: Final = object()


class RightLost(Exception):
    """A member may not do that, or no longer."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


async def stream_while_allowed(
    stream: AsyncIterator[Any], rights: CallRights, check: StreamCheck
) -> AsyncIterator[Any]:
    """The same answers, until `check` raises: it is called with every change of rights."""
    try:
        while True:
            following = asyncio.ensure_future(anext(stream, END))
            try:
                while not following.done():
                    changed = rights.changed.event()  # from here on no change is missed
                    check()
                    changing = asyncio.ensure_future(changed.wait())
                    try:
                        await asyncio.wait((following, changing), return_when=asyncio.FIRST_COMPLETED)
                    finally:
                        changing.cancel()
                check()
            finally:
                if not following.done():
                    following.cancel()
                    with suppress(asyncio.CancelledError, Exception):
                        await following
            answer = following.result()
            if answer is END:
                return
            yield answer
    finally:
        close = getattr(stream, "aclose", None)
        if close is not None:
            await close()


def guard_watch_stream(handler: Stream, api: str, needed: Sequence[RequiredRight], rights: CallRights) -> Stream:
    """A stream of answers to one request that names what it is about."""

    def check(request: Any, call: IdentifiedCall) -> None:
        for right in needed:
            for name in names_at(request, right.of):
                if not rights.holds(call.identity, right, name):
                    code, text = rights.refuse(call, right, name, api)
                    raise CallDenied(text or code.name)

    async def answered(request: Any, call: Any) -> AsyncIterator[Any]:
        check(request, call)
        async for answer in stream_while_allowed(handler(request, call), rights, lambda: check(request, call)):
            if api == "WatchGroup":
                filter_watch_notice(answer, call, rights)
            yield answer

    return answered


class MemberStreamRights:
    """What one session stream may: its member's group, and the topics that it names."""

    def __init__(self, call: IdentifiedCall, rights: CallRights) -> None:
        self._call = call
        self._rights = rights
        self._group = ""
        self.lost: RightLost | None = None

    async def requests(self, stream: AsyncIterator[Any]) -> AsyncIterator[Any]:
        """The member's words, up to one that it has no right to."""
        async for request in stream:
            self.lost = self.judge(request)
            if self.lost is not None:
                return
            yield request

    def judge(self, request: Any) -> RightLost | None:
        said = getattr(request, str(request.WhichOneof("request")), None)
        if said is None:
            return None
        group = getattr(said, "group_id", "")
        self._group = self._group or group
        for each in {group, self._group} - {""}:
            if (lost := self._ask(READ_GROUP, each)) is not None:
                return lost
        named: Iterable[str] = ()
        if isinstance(said, pb.RegisterConsumer):
            named = said.topics
        elif isinstance(said, pb.ConsumerGroupHeartbeatRequest):
            named = said.subscribed_topic_names.names
        return next((lost for topic in named if topic and (lost := self._ask(SEE_TOPIC, topic)) is not None), None)

    def again(self) -> None:
        """Raises Lost when the member may not be in its group any more."""
        if self.lost is None and self._group:
            self.lost = self._ask(READ_GROUP, self._group)
        if self.lost is not None:
            raise self.lost

    def _ask(self, right: RequiredRight, name: str) -> RightLost | None:
        if self._rights.holds(self._call.identity, right, name):
            return None
        return RightLost(*self._rights.refuse(self._call, right, name, "Session"))


def guard_session(handler: Stream, rights: CallRights) -> Stream:
    """Session: who lost the right to the group, or names a topic without one, is fenced off with the code."""

    async def answered(requests: Any, call: Any) -> AsyncIterator[Any]:
        member, sequence = MemberStreamRights(call, rights), 0
        try:
            async for answer in stream_while_allowed(handler(member.requests(requests), call), rights, member.again):
                if member.lost is not None:
                    break
                sequence = answer.sequence_number
                filter_member_push(answer, call.identity, rights)
                yield answer
        except Exception:
            if member.lost is None:
                raise
        if member.lost is not None:
            fenced = pb.SessionFenced(error_message=member.lost.text)
            fenced.error_code = member.lost.code  # type: ignore[assignment]
            yield pb.SessionResponse(sequence_number=sequence + 1, fenced=fenced)

    return answered
