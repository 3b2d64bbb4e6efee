"""Server-sent events that notify open pages which groups have changed; pages fetch again what they show of them.

What the node reports of its groups is kept once for all streams: a stream is a mark and the names it follows, so a
stream that is not read costs nothing but its place. Many changes in a short time become one event.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from typing import Final

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from muster.coordinator.observability.history.group_changes import ChangeNews, GroupChanges
from muster.coordinator.web.http.node_port import HttpRefusal, NodePort

GATHER_S: Final = 0.2
"""Between two tellings at least."""

ALIVE_S: Final = 5.0
"""After so long without news an event `alive` says so: an open connection says nothing of a process that stands still,
and a comment is nothing that a page could hear."""

LOOK_AGAIN_S: Final = 1.0
"""Groups in the middle of a rebalance are looked at again after so long, while anybody follows."""

ALIVE: Final = b"event: alive\ndata: -\n\n"

RETRY_MS: Final = 1_000
"""A browser that lost the stream comes again after so long."""

MOST_FOLLOWED: Final = 50
MOST_NAME_CHARS: Final = 4_096
MOST_MARK_CHARS: Final = 100


def event_routes(asks: NodePort, most_streams: int) -> list[Route]:
    return [Route("/events", EventStreams(asks.changes, most_streams, asks.sees_group).answer)]


class EventStreams:
    """All streams of one node."""

    def __init__(self, changes: GroupChanges, most: int, sees: Callable[[str], bool] = lambda group: True) -> None:
        """`sees`: whether whoever asks may know of a group, asked anew each time."""
        self._sees = sees
        self._changes = changes
        self._most = most
        self._open = 0
        self._news: asyncio.Event | None = None
        self._looking: asyncio.TimerHandle | None = None
        self._waiting = False
        self._told_s = 0.0
        changes.on_change(self._changed)

    async def answer(self, request: Request) -> Response:
        """`group` (several, or none for all), and `since`: the mark up to which the page has seen everything.

        An event `changed` has the new mark as its id, which a browser sends when it comes again, and as its data
        {"mark", "groups", "all_known"}. While nothing changes, an event `alive` comes every ALIVE_S.
        """
        groups = frozenset(request.query_params.getlist("group"))
        since = request.headers.get("last-event-id") or request.query_params.get("since") or self._changes.mark()
        if len(groups) > MOST_FOLLOWED or any(len(name) > MOST_NAME_CHARS for name in groups):
            text = f"{len(groups)} groups are to be followed; expected at most {MOST_FOLLOWED}, or none for all"
            raise HttpRefusal(400, "MALFORMED_REQUEST", text, field="group")
        if len(since) > MOST_MARK_CHARS:
            raise HttpRefusal(
                400, "MALFORMED_REQUEST", "since is not an id of this node's events; leave it out", field="since"
            )
        if self._changes.closed:
            raise HttpRefusal(503, "DRAINING", "the node is being stopped; come again", headers={"retry-after": "1"})
        if self._open >= self._most:
            text = f"{self._open} pages are open, as many as this node tells of changes (http.max.event.streams)"
            raise HttpRefusal(503, "LIMIT_REACHED", text, headers={"retry-after": "10"})
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        if request.method == "HEAD":  # Its answer has no body: nothing to wait for, and no place taken.
            return Response(headers=headers, media_type="text/event-stream")
        return StreamingResponse(self._stream_changes(groups, since), headers=headers, media_type="text/event-stream")

    async def _stream_changes(self, groups: frozenset[str], since: str) -> AsyncIterator[bytes]:
        self._open += 1
        if self._open == 1:
            self._look_again()
        try:
            yield f"retry: {RETRY_MS}\n\n".encode()
            while not self._changes.closed:
                if news := self._seen(self._changes.since(since, groups)):
                    yield encode_event(news)
                since = news.mark
                # Nothing is awaited between the look and this: no change is missed.
                if not await self._heard():
                    yield ALIVE
        finally:
            self._open -= 1

    def _seen(self, news: ChangeNews) -> ChangeNews:
        return replace(news, groups=tuple(name for name in news.groups if not name or self._sees(name)))

    async def _heard(self) -> bool:
        """Whether something changed within ALIVE_S."""
        if self._news is None:
            self._news = asyncio.Event()
        try:
            async with asyncio.timeout(ALIVE_S):
                await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _look_again(self) -> None:
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None
        if self._open and not self._changes.closed:
            self._changes.note_restless()
            self._looking = asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look_again)

    def _changed(self) -> None:
        """Wake all streams, but not before GATHER_S have passed since the last time."""
        if self._news is None or (self._waiting and not self._changes.closed):
            return
        loop = asyncio.get_running_loop()
        self._waiting = True
        wait_s = 0.0 if self._changes.closed else self._told_s + GATHER_S - loop.time()
        loop.call_later(max(wait_s, 0.0), self._publish_news, loop)

    def _publish_news(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waiting = False
        self._told_s = loop.time()
        news, self._news = self._news, None
        if news is not None:
            news.set()


def encode_event(news: ChangeNews) -> bytes:
    data = {"mark": news.mark, "groups": list(news.groups), "all_known": news.all_known}
    return f"event: changed\nid: {news.mark}\ndata: {json.dumps(data)}\n\n".encode()
