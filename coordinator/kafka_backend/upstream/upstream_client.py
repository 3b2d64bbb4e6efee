"""Sends requests to the upstream: to any broker, a partition's leader, or the coordinator of a transaction or a group.

`UpstreamMetadata` is the pure view of brokers, topics and leaders that Metadata answers (v10+) have built up.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeVar

from muster.coordinator.config import Address
from muster.coordinator.edge.background_tasks import SupervisedTasks
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.connection import ASK, ConnectionPool, UpstreamConnection
from muster.coordinator.kafka_backend.upstream.protocol import (
    WAIT_FOR_COORDINATOR,
    Unreached,
    UpstreamAddress,
    UpstreamError,
    UpstreamRefused,
    code_name,
    describe_address,
    missing_apis,
)

# What is known of brokers, topics and leaders
# --------------------------------------------

NO_LEADER = -1


class PartitionMetadata(NamedTuple):
    """One partition. leader: NOBODY where there is none."""

    leader: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    topic_id: bytes
    parts: Mapping[int, PartitionMetadata]
    code: int = 0


@dataclass(frozen=True, slots=True)
class UpstreamMetadata:
    cluster_id: str = ""
    controller: int = NO_LEADER
    brokers: Mapping[int, Address] = field(default_factory=lambda: MappingProxyType({}))
    topics: Mapping[str, TopicMetadata] = field(default_factory=lambda: MappingProxyType({}))

    def leader(self, topic: str, partition: int) -> int:
        seen = self.topics.get(topic)
        part = None if seen is None else seen.parts.get(partition)
        return NO_LEADER if part is None or part.leader not in self.brokers else part.leader


def merge_metadata(known: UpstreamMetadata, answer: Any) -> UpstreamMetadata:
    """What is known after a Metadata answer (v10+). Topics it does not name stay as they are.

    A broker that is behind may tell an older leader: of a topic that is still the same one the higher leader epoch
    holds (KIP-320). A topic that cannot be told of is kept with the code that says so.
    """
    topics = dict(known.topics)
    for each in answer.topics:
        topic_id, before = bytes(each.topic_id), topics.get(each.name)
        if each.error_code:
            parts: Mapping[int, PartitionMetadata] = {} if before is None else before.parts
            topics[each.name] = TopicMetadata(topic_id if before is None else before.topic_id, parts, each.error_code)
            continue
        told = {one.partition_index: PartitionMetadata(one.leader_id, one.leader_epoch) for one in each.partitions}
        if before is not None and before.topic_id == topic_id:
            told = {index: newer_partition(before.parts.get(index), part) for index, part in told.items()}
        topics[each.name] = TopicMetadata(topic_id, told)
    brokers = {one.node_id: Address(one.host, one.port) for one in answer.brokers}
    return UpstreamMetadata(answer.cluster_id or "", answer.controller_id, brokers or known.brokers, topics)


def newer_partition(before: PartitionMetadata | None, told: PartitionMetadata) -> PartitionMetadata:
    return before if before is not None and before.epoch > told.epoch >= 0 else told


Found = TypeVar("Found")

GROUP: Final = 0
TRANSACTION: Final = 1
"""Types of keys that FindCoordinator takes."""

MOST_TOPICS: Final = 1_000
"""That one Metadata request may name."""

ANY: Final = "any"
UNREACHED: Final = -1_000
"""In the place of a code: no answer."""

MOST_COORDINATORS: Final = 10_000
"""That are kept in mind; whose was found first is looked for again."""

PAUSE_S: Final = 0.2
"""Before something is asked for again."""


class Upstream:
    """One upstream cluster. All in the thread of the loop."""

    def __init__(self, reach: UpstreamAddress) -> None:
        self.reach = reach
        self.view = UpstreamMetadata()
        self.lines = ConnectionPool(reach)
        self.errors: Counter[tuple[str, str]] = Counter()
        """By API (ANY: of any broker) and code's name, since the beginning."""
        self._coordinators: dict[tuple[int, str], int] = {}
        self._refreshing: dict[tuple[str, ...], asyncio.Future[UpstreamMetadata]] = {}
        self._asking = SupervisedTasks()

    def count(self, api: str, code: int) -> None:
        """An API was answered with this code, or not at all. 0 is none."""
        if code:
            self.errors[api, "UNREACHED" if code == UNREACHED else code_name(code)] += 1

    def close(self) -> None:
        self.lines.close()
        self._asking.stop()

    # -- who there is -----------------------------------------------------------------------------------------------

    async def refresh(self, topics: Sequence[str]) -> UpstreamMetadata:
        """Learn of brokers and these topics. Who wants the same while it is asked gets the same answer."""
        if len(topics) > MOST_TOPICS:
            raise UpstreamError(f"{len(topics)} topics are asked for at once; at most {MOST_TOPICS} may be")
        wanted = tuple(sorted(topics))
        asked = self._refreshing.get(wanted)
        if asked is None:
            asked = self._refreshing[wanted] = asyncio.ensure_future(self._refresh(wanted))
            asked.add_done_callback(
                lambda done: (self._refreshing.pop(wanted, None), done.cancelled() or done.exception())
            )
        return await asyncio.shield(asked)

    async def _refresh(self, topics: Sequence[str]) -> UpstreamMetadata:
        asked = [struct("MetadataRequest.topics")(name=topic) for topic in topics]
        request = struct("MetadataRequest")(topics=asked, allow_auto_topic_creation=False)
        answer = await self.any("Metadata", request)
        self.view = merge_metadata(self.view, answer)  # which others may have changed meanwhile
        self.lines.forget({*self.view.brokers.values(), *self.reach.servers})
        return self.view

    def met(self, view: UpstreamMetadata) -> None:
        """Brokers, as an answer about all topics tells them. The topics asked for by name stay as they are."""
        self.view = UpstreamMetadata(view.cluster_id, view.controller, view.brokers, self.view.topics)
        self.lines.forget({*self.view.brokers.values(), *self.reach.servers})

    def address_of(self, broker: int) -> Address:
        address = self.view.brokers.get(broker)
        if address is None:
            raise Unreached(f"broker {broker} of the upstream is not there, as far as is known")
        return address

    def leader(self, topic: str, partition: int) -> int:
        """Raises Unreached while nobody leads it."""
        leader = self.view.leader(topic, partition)
        if leader == NO_LEADER:
            raise Unreached(f"nobody leads {topic}-{partition} in the upstream, as far as is known")
        return leader

    async def lacks(self) -> list[str]:
        """What a broker does not offer of what the engine needs, such as `Metadata 10`."""

        async def look(line: UpstreamConnection) -> list[str]:
            return missing_apis(line.versions)

        return await self.by_any(look)

    # -- asking -----------------------------------------------------------------------------------------------------

    async def any(self, api: str, request: object, within_s: float | None = None) -> Any:
        """Ask whoever can be reached, each for so long at most. Raises UpstreamError when nobody can."""
        return await self.by_any(lambda line: line.send_request(api, request, within_s or self.reach.answer_s))

    async def by_any(self, work: Callable[[UpstreamConnection], Awaitable[Found]], purpose: str = ASK) -> Found:
        """The same for work with a connection."""
        why: UpstreamError | None = None
        for address in self._addresses():
            try:
                found = await work(await self.lines.to(address, purpose))
            except Unreached as error:
                self.count(ANY, UNREACHED)
                self.lines.failed(address, purpose)
                why = error
            else:
                self.lines.answered(address, purpose)
                return found
        servers = ", ".join(describe_address(each) for each in self.reach.servers)
        raise Unreached(f"no broker of the upstream at {servers} answers; the last one tried: {why}")

    async def ask_broker(
        self,
        broker: int,
        api: str,
        request: object,
        *,
        purpose: str = ASK,
        waits_s: float = 0.0,
        within_s: float | None = None,
    ) -> Any:
        """waits_s: how long the broker may take by the request's own words. within_s: for so long its answer is waited
        for beside, in place of what holds for all."""
        try:
            line = await self.lines.to(self.address_of(broker), purpose)
            return await line.send_request(api, request, (within_s or self.reach.answer_s) + waits_s)
        except Unreached:
            self.count(api, UNREACHED)
            raise

    def ask_then(
        self,
        broker: int,
        api: str,
        request: object,
        tell: Callable[[Any], None],
        *,
        purpose: str = ASK,
        waits_s: float = 0.0,
        within_s: float | None = None,
    ) -> None:
        """As `ask_broker`, by calls alone where a connection stands: for what is asked often. tell: gets once, later,
        the answer or the UpstreamError; not from within anything else (see `UpstreamConnection.ask_then`)."""
        address = self.view.brokers.get(broker)
        line = None if address is None else self.lines.standing(address, purpose)
        if line is not None:
            line.ask_then(api, request, (within_s or self.reach.answer_s) + waits_s, self._counting(api, tell))
            return

        async def asked() -> None:
            try:
                answer = await self.ask_broker(
                    broker, api, request, purpose=purpose, waits_s=waits_s, within_s=within_s
                )
            except UpstreamError as error:
                answer = error
            except Exception as error:
                tell(Unreached(f"{api} could not be asked: {error!r}"))
                raise
            tell(answer)

        self._asking.start(asked(), "requests to the upstream")

    def _counting(self, api: str, tell: Callable[[Any], None]) -> Callable[[Any], None]:
        def told(answer: Any) -> None:
            if isinstance(answer, Unreached):
                self.count(api, UNREACHED)
            tell(answer)

        return told

    async def ask_coordinator(
        self,
        kind: int,
        key: str,
        api: str,
        request: object,
        *,
        purpose: str = ASK,
        waits_s: float = 0.0,
        within_s: float | None = None,
    ) -> Any:
        """Ask the coordinator of a group, or of a transactional id. What it answers with 15 or 16, and a connection
        that is lost, make it unknown: the next call looks for it anew. Raises UpstreamError. waits_s, within_s: as for
        `ask_broker`; the search for it ends in the same time."""
        place = (kind, key)
        broker = self._coordinators.get(place)
        if broker is None:
            broker = self._coordinators[place] = await self._coordinator(kind, key, within_s)
            if len(self._coordinators) > MOST_COORDINATORS:
                del self._coordinators[next(iter(self._coordinators))]
        try:
            answer = await self.ask_broker(broker, api, request, purpose=purpose, waits_s=waits_s, within_s=within_s)
        except UpstreamError:
            self._coordinators.pop(place, None)
            raise
        self.count(api, getattr(answer, "error_code", 0))
        if getattr(answer, "error_code", 0) in WAIT_FOR_COORDINATOR:
            self._coordinators.pop(place, None)
        return answer

    def coordinator_moved(self, kind: int, key: str) -> None:
        """Somewhere in its answer it says that it is not the one: the next call looks for it anew."""
        self._coordinators.pop((kind, key), None)

    async def _coordinator(self, kind: int, key: str, within_s: float | None) -> int:
        """Without this question a new cluster never makes the topic that its coordinators keep (KB-F3)."""
        request = struct("FindCoordinatorRequest")(key=key, key_type=kind)
        answer = await self.any("FindCoordinator", request, within_s)
        if answer.error_code:
            self.count("FindCoordinator", answer.error_code)
            raise UpstreamRefused(f"looking for the coordinator of {key}", answer.error_code, answer.error_message)
        known = {**self.view.brokers, answer.node_id: Address(answer.host, answer.port)}
        self.view = UpstreamMetadata(self.view.cluster_id, self.view.controller, known, self.view.topics)
        return int(answer.node_id)

    def _addresses(self) -> Iterable[Address]:
        """Who may be asked, those without a failure behind them first."""
        known = dict.fromkeys((*self.view.brokers.values(), *self.reach.servers))
        return sorted(known, key=self.lines.failures)
