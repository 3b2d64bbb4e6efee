"""Calls about partitions, each made where they are led, and made again where somebody else leads by now."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import TypeAlias

from muster.client.calls.leaders import MOVED, NOT_YET, ONE_NODE
from muster.client.calls.transport import CallRetry, Transport
from muster.client.errors import Refused, Unreachable
from muster.client.types import TopicPartition

Refusals: TypeAlias = dict[TopicPartition, Refused]
Attempt: TypeAlias = Callable[[str, Collection[TopicPartition], int | None], Awaitable[Refusals]]
"""Asks one node (HOST:PORT, or ONE_NODE) about some partitions, within so many ms; what it refused of them."""


async def call_leaders(
    transport: Transport, places: Iterable[TopicPartition], attempt: Attempt, timeout_ms: int | None = None
) -> None:
    """Until every partition is answered by its leader. Raises the first refusal that trying again does not change, or,
    when `timeout_ms` (default.api.timeout.ms) is over, the last one, or Unreachable."""
    leaders = transport.leaders
    patience = CallRetry(transport, timeout_ms)
    left = list(places)
    leaders.doubt_missing(tp[0] for tp in left)
    while left:
        by_leader, unknown = leaders.routed(left)
        for tp in unknown:
            if leaders.is_missing(tp[0]):
                raise leaders.why_not(tp)
        leaders.look(unknown)
        left = list(unknown)
        last: Refused | Unreachable | None = leaders.why_not(unknown[0]) if unknown else None
        given_ms = timeout_ms if ONE_NODE in by_leader else patience.attempt_ms
        asked = [(address, lot, attempt(address, lot, given_ms)) for address, lot in by_leader.items()]
        answers = await asyncio.gather(*(each[2] for each in asked), return_exceptions=True)
        for (address, lot, _), answer in zip(asked, answers, strict=True):
            if isinstance(answer, Unreachable) and address != ONE_NODE:
                again: Collection[TopicPartition] = lot
                last = answer
            elif isinstance(answer, BaseException):
                raise answer
            else:
                again = [tp for tp, refusal in answer.items() if refusal.code in (NOT_YET if leaders.shared else MOVED)]
                for tp, refusal in answer.items():
                    if tp not in again:
                        raise refusal
                    last = refusal
            leaders.doubt(again)
            left += again
        if left:
            assert last is not None, "what is left was refused, or has no leader"
            if not await patience.another_try(last):
                raise last.after(patience.waited_ms) if isinstance(last, Unreachable) else last
            await leaders.settled(left)
