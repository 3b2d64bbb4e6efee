"""Long documents as JSON, in pieces: no turn of the loop does more than a millisecond of it."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any, Final, TypeVar

from starlette.responses import Response, StreamingResponse

from muster.coordinator.web.http.refusals import JSON

T = TypeVar("T")
Row = TypeVar("Row")

TURN_S: Final = 0.001
"""What is done at a stretch; one element more, to be exact."""

Dump = Callable[[T], str]


def compact_json(value: Any) -> str:
    """JSON as programs like it: without spaces, any text as it is."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


async def iterate_in_turns(items: Iterable[T]) -> AsyncIterator[T]:
    """The same items; whoever else waits for the loop has his turn in between."""
    until = perf_counter() + TURN_S
    for item in items:
        yield item
        if perf_counter() >= until:
            await asyncio.sleep(0)
            until = perf_counter() + TURN_S


def rows_response(
    items: Sequence[T], row: Callable[[T], Any], headers: Mapping[str, str] | None = None
) -> StreamingResponse:
    """A list with a row for each item, made as it is sent."""
    return StreamingResponse(encode_rows(items, row), 200, {"cache-control": "no-store", **(headers or {})}, JSON)


async def encode_rows(items: Sequence[T], row: Callable[[T], Any]) -> AsyncIterator[bytes]:
    """The bytes of that list, a turn's work at a time."""
    written, between = ["["], ""
    until = perf_counter() + TURN_S
    for item in items:
        written.append(between + compact_json(row(item)))
        between = ","
        if perf_counter() >= until:
            yield "".join(written).encode()
            written = []
            await asyncio.sleep(0)
            until = perf_counter() + TURN_S
    yield ("".join(written) + "]").encode()


def document_response(document: Mapping[str, Any]) -> Response:
    """One document that is small."""
    return Response(compact_json(document).encode(), 200, {"cache-control": "no-store"}, JSON)
