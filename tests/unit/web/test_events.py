"""Streams of events: who follows what hears of it, many changes are one, and a stream costs its place and no more."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import StreamingResponse

from muster.coordinator.observability.history.group_changes import GroupChanges
from muster.coordinator.web import event_streams
from muster.coordinator.web.event_streams import GATHER_S, EventStreams
from muster.coordinator.web.http.node_port import HttpRefusal


def asked(query: str = "", last: str = "") -> Request:
    headers = [(b"last-event-id", last.encode())] if last else []
    return Request({"type": "http", "method": "GET", "query_string": query.encode(), "headers": headers})


@asynccontextmanager
async def following(streams: EventStreams, query: str = "", last: str = "") -> AsyncIterator[AsyncIterator[Any]]:
    response = await streams.answer(asked(query, last))
    assert isinstance(response, StreamingResponse)
    chunks = response.body_iterator
    assert await anext(chunks) == b"retry: 1000\n\n"
    try:
        yield chunks
    finally:
        await chunks.aclose()  # type: ignore[attr-defined]


def data_of(chunk: Any) -> dict[str, Any]:
    event, name, data, *_ = bytes(chunk).decode().split("\n")
    assert (event, name[:4]) == ("event: changed", "id: ")
    found: dict[str, Any] = json.loads(data.removeprefix("data: "))
    assert name == f"id: {found['mark']}"
    return found


async def story_of_two() -> None:
    changes = GroupChanges("a")
    streams = EventStreams(changes, 2)
    async with following(streams) as everything, following(streams, "group=x") as one:
        told = asyncio.ensure_future(anext(everything))
        waiting = asyncio.ensure_future(anext(one))
        await asyncio.sleep(0)
        for number in range(1_000):
            changes.note(f"g{number % 3}")
        assert sorted(data_of(await told)["groups"]) == ["g0", "g1", "g2"]
        changes.note("x")
        assert data_of(await waiting)["groups"] == ["x"]
        with pytest.raises(HttpRefusal, match=r"http\.max\.event\.streams"):
            await streams.answer(asked())
    async with following(streams):
        pass


def test_who_follows_what_hears_of_it_and_places_come_free_again() -> None:
    asyncio.run(story_of_two())


def test_a_stream_says_that_the_node_lives_in_a_way_that_a_page_can_hear(monkeypatch: pytest.MonkeyPatch) -> None:
    """An EventSource keeps comments, and events without data, to itself."""
    monkeypatch.setattr(event_streams, "ALIVE_S", 0.0)

    async def run() -> None:
        async with following(EventStreams(GroupChanges("a"), 1)) as chunks:
            assert await anext(chunks) == b"event: alive\ndata: -\n\n"

    asyncio.run(run())


def test_who_comes_again_hears_what_he_missed_at_once() -> None:
    async def run() -> None:
        changes = GroupChanges("a")
        streams = EventStreams(changes, 2)
        before = changes.mark()
        changes.note("x")
        async with following(streams, last=before) as again:
            assert data_of(await anext(again))["groups"] == ["x"]
        async with following(streams, query="since=b-7&group=x") as other_life:
            assert data_of(await anext(other_life))["all_known"] is False

    asyncio.run(run())


def test_one_who_does_not_read_hears_of_all_at_once_later() -> None:
    async def run() -> None:
        changes = GroupChanges("a")
        streams = EventStreams(changes, 1)
        async with following(streams) as slow:
            for number in range(50):
                changes.note(f"g{number}")
                await asyncio.sleep(GATHER_S / 100)
            assert len(data_of(await anext(slow))["groups"]) == 50

    asyncio.run(run())


def test_streams_end_with_the_node() -> None:
    async def run() -> None:
        changes = GroupChanges("a")
        streams = EventStreams(changes, 1)
        async with following(streams) as open_one:
            waiting = asyncio.ensure_future(anext(open_one))
            await asyncio.sleep(0)
            changes.close()
            with pytest.raises(StopAsyncIteration):
                await waiting
        with pytest.raises(HttpRefusal) as refused:
            await streams.answer(asked())
        assert refused.value.status == 503

    asyncio.run(run())


def test_a_head_request_takes_no_place_and_ends() -> None:
    async def run() -> None:
        streams = EventStreams(GroupChanges("a"), 1)
        head = Request({"type": "http", "method": "HEAD", "query_string": b"", "headers": []})
        response = await streams.answer(head)
        assert not isinstance(response, StreamingResponse)
        assert response.media_type == "text/event-stream"
        async with following(streams):
            pass

    asyncio.run(run())


@pytest.mark.parametrize("query", ["&".join(["group=x"] + [f"group=g{n}" for n in range(50)]), "since=" + "x" * 101])
def test_what_would_cost_memory_is_refused(query: str) -> None:
    with pytest.raises(HttpRefusal) as refused:
        asyncio.run(EventStreams(GroupChanges("a"), 1).answer(asked(query)))
    assert refused.value.status == 400


def test_a_rebalance_under_way_is_looked_at_again_while_anybody_follows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_streams, "LOOK_AGAIN_S", 0.0)

    async def run() -> None:
        changes = GroupChanges("a")
        streams = EventStreams(changes, 1)
        changes.note("x", restless=True)
        async with following(streams) as chunks:
            for _ in range(3):
                assert data_of(await anext(chunks))["groups"] == ["x"]
        seen = changes.mark()
        for _ in range(10):
            await asyncio.sleep(0)
        assert not changes.since(seen), "nobody follows any more"

    asyncio.run(run())
