"""How handlers call the groups: the driver they are given, and the reply when a group cannot be reached.

Refusals of the node itself (overloaded, draining) become replies that make the client retry later.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

from muster.coordinator.core.model import effects, events
from muster.coordinator.core.model.rights import Rights
from muster.coordinator.edge.large_answers import MAX_GROUPS_PER_TURN
from muster.coordinator.edge.listener_base import UNRESTRICTED, TopicRightsSource
from muster.coordinator.errors import CoordinatorError, ErrorCode, NodeShuttingDown, Overloaded
from muster.coordinator.kafka.dispatch import ClientPeer, DeferredAnswer, KafkaCall
from muster.coordinator.kafka.handlers.departed_readers import DepartedReaders
from muster.coordinator.runtime.shards import partition_for
from muster.long_work import slice_queue

Wanted = TypeVar("Wanted")

MAX_GROUPS_PER_CONNECTION = 100
"""Groups that are told when a connection closes; further ones learn nothing by it."""


class GroupDriver(Protocol):
    """The engine's place on the event loop, as this edge sees it."""

    def next_id(self) -> int: ...

    async def ask_shard(self, shard: int, event: events.Request, wanted: type[Wanted]) -> Wanted: ...

    async def ask_all(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Wanted]) -> list[Wanted]: ...

    def begin_request(self, shard: int, event: events.Request, waiter: "PendingGroupReply[Any]") -> None: ...

    def forget(self, shard: int, event: events.Request) -> None: ...

    def submit_event(self, shard: int, event: events.ConnectionClosed) -> None: ...

    def beat(self, shard: int, group_id: str, member_id: str, generation: int, rights: Rights) -> bool: ...


class GroupRequests:
    """All groups of the node. Refusals of the node itself become replies that send the client back here later."""

    def __init__(
        self,
        driver: GroupDriver,
        shards: int,
        rights_of: TopicRightsSource = UNRESTRICTED,
        departed: DepartedReaders | None = None,
    ) -> None:
        self.driver = driver
        self._departed = departed
        self.rights_of = rights_of
        self.shards = shards
        self.next_id = driver.next_id
        self._many_asked = asyncio.Lock()

    def shard_of(self, group_id: str) -> int:
        return partition_for(group_id, self.shards)

    def watch_connection(self, group_id: str, call: KafkaCall) -> int:
        """The number of the connection; the group is told when it closes."""
        peer = call.peer
        if group_id in peer.groups or len(peer.groups) >= MAX_GROUPS_PER_CONNECTION:
            return peer.number
        if not peer.groups:
            peer.eof.add_done_callback(lambda _: self._tell_closed(peer))
        peer.groups.add(group_id)
        if self._departed is not None:
            self._departed.note_joined(group_id, call)
        return peer.number

    def _tell_closed(self, peer: ClientPeer) -> None:
        for group_id in peer.groups:
            self.driver.submit_event(self.shard_of(group_id), events.ConnectionClosed(group_id, peer.number))

    async def ask_group(self, group_id: str, make: Callable[[], events.Request], wanted: type[Wanted]) -> Wanted:
        """The reply to the event that `make` makes, or one that tells why none could be had."""
        try:
            return await self.driver.ask_shard(self.shard_of(group_id), make(), wanted)
        except (CoordinatorError, Overloaded, NodeShuttingDown) as refusal:
            return refusal_reply(refusal, wanted)

    def begin_request(
        self,
        group_id: str,
        make: Callable[[], events.Request],
        wanted: type[Wanted],
        answer: Callable[[Wanted], Any],
    ) -> Any:
        """What `answer` makes of the reply to the event that `make` makes: at once, or Later."""
        try:
            shard = partition_for(group_id, self.shards)
            asked = PendingGroupReply(self.driver, shard, make(), wanted, answer)
            self.driver.begin_request(asked.shard, asked.event, asked)
        except (CoordinatorError, Overloaded, NodeShuttingDown) as refusal:
            return answer(refusal_reply(refusal, wanted))
        return asked

    @asynccontextmanager
    async def take_turn(self, groups: int) -> AsyncIterator[None]:
        """For a question about so many groups, until its answer is in bytes: very many are asked about for one caller
        at a time. The replies of fifty who ask about thousands each would be more objects than a garbage collection,
        during which the node stands still, looks through in a tenth of a second."""
        if groups <= MAX_GROUPS_PER_TURN:
            yield
            return
        async with self._many_asked:
            yield

    async def ask_each(self, questions: Iterable[tuple[int, events.Request]], wanted: type[Wanted]) -> list[Wanted]:
        """The replies to several events, one caller's slice in each turn; questions are made as they are asked.

        Fifty who ask about one group of hundreds of members each would fill the queue of its shard for 0.1 s.
        """
        replies: list[Wanted] = []
        left = iter(questions)
        while True:
            await slice_queue().wait()
            if not (some := list(islice(left, MAX_GROUPS_PER_TURN))):
                break
            try:
                replies += await self.driver.ask_all(some, wanted)
            except (CoordinatorError, Overloaded, NodeShuttingDown) as refusal:
                replies += [refusal_reply(refusal, wanted)] * len(some)
        return replies


class PendingGroupReply(DeferredAnswer, Generic[Wanted]):
    """One request under way: the driver's waiter, and what a connection waits for."""

    __slots__ = ("_answer", "_came", "_done", "_driver", "_reply", "_wanted", "_why", "event", "shard")

    def __init__(
        self,
        driver: GroupDriver,
        shard: int,
        event: events.Request,
        wanted: type[Wanted],
        answer: Callable[[Wanted], Any],
    ) -> None:
        self.shard = shard
        self.event = event
        self._driver = driver
        self._wanted = wanted
        self._answer = answer
        self._done = False
        self._reply: object = None
        self._why: BaseException | None = None
        self._came: Callable[[], None] | None = None

    def done(self) -> bool:
        return self._done

    def set_result(self, reply: effects.Reply | None) -> None:
        self._reply = reply
        self._done = True
        # Let go of: whoever is called holds this, and the circle would live until the next garbage collection.
        came, self._came = self._came, None
        if came is not None:
            came()

    def set_exception(self, why: BaseException) -> None:
        self._why = why
        self.set_result(None)

    def then(self, came: Callable[[], None]) -> None:
        self._came = came
        if self._done:
            came()

    def respond(self) -> Any:
        if isinstance(self._why, NodeShuttingDown):
            return self._answer(refusal_reply(self._why, self._wanted))
        if self._why is not None:
            raise self._why
        assert isinstance(self._reply, self._wanted), (
            f"expected {self._wanted.__name__}, not {type(self._reply).__name__}"
        )
        return self._answer(self._reply)

    def cancel(self) -> None:
        """The client is gone: what its request did stands, and what it waits for is forgotten."""
        if not self._done:
            self._done = True
            self._driver.forget(self.shard, self.event)


def refusal_reply(why: CoordinatorError | Overloaded | NodeShuttingDown, wanted: type[Wanted]) -> Wanted:
    """A reply without content. Every client of Kafka comes again after either code."""
    if isinstance(why, CoordinatorError):
        return wanted(code=why.code, message=why.message)  # type: ignore[call-arg]
    code = ErrorCode.NOT_COORDINATOR if isinstance(why, NodeShuttingDown) else ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    return wanted(code=code, message=str(why))  # type: ignore[call-arg]
