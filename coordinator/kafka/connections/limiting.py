"""What an API's handler is asked within quotas: changes of the node's topics (KIP-599), and how many members there are.

A version of an API that knows THROTTLING_QUOTA_EXCEEDED is answered with it for what is above the quota; for older ones
it is done all the same, and the client waits.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, Protocol

from muster.coordinator.errors import ErrorCode
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.dispatch import Handler, Immediate, KafkaCall
from muster.coordinator.security.counts import UserCounts
from muster.coordinator.security.quotas import NodeQuotas

THROTTLING_QUOTA_EXCEEDED: Final = 89
TOO_SOON: Final = "more partitions are made or deleted than the quota allows (controller_mutation_rate); wait {:.1f} s"
DEFAULT: Final = -1

CREATED_TOPIC_ROW: Final = "CreateTopicsResponse.topics"

Clock = Callable[[], float]


class TopicOwnership(Protocol):
    """Who made which topic."""

    @property
    def kept(self) -> bool: ...

    def room(self, user: str) -> int | None: ...

    def why(self, user: str) -> str: ...

    async def made(self, user: str, names: Iterable[str]) -> None: ...


@dataclass(frozen=True, slots=True)
class TopicMutation:
    """One API that makes or deletes partitions."""

    strict: int
    """The first version that knows THROTTLING_QUOTA_EXCEEDED."""
    rows: str
    answers: str


MUTATIONS: Final[Mapping[str, TopicMutation]] = {
    "CreateTopics": TopicMutation(6, "topics", "topics"),
    "CreatePartitions": TopicMutation(3, "topics", "results"),
    "DeleteTopics": TopicMutation(5, "topics", "responses"),
}
JOINING_APIS: Final = frozenset({"JoinGroup", "ConsumerGroupHeartbeat"})
MEMBER_APIS: Final = frozenset({"SyncGroup", "Heartbeat"})


class RequestQuotas:
    """Made once for a Dispatch. `partitions` tells how many a topic has, `default` how many it gets if nobody says."""

    def __init__(
        self,
        quotas: NodeQuotas,
        partitions: Callable[[], Mapping[str, int]],
        default: int,
        counts: UserCounts,
        clock: Clock = time.monotonic,
        owners: TopicOwnership | None = None,
    ) -> None:
        self._owners = owners
        self._quotas = quotas
        self._partitions = partitions
        self._default = default
        self._counts = counts
        self._clock = clock

    def limited(
        self, api: str, handler: Handler | None, immediate: Immediate | None
    ) -> tuple[Handler | None, Immediate | None]:
        """Both of an API's handlers, within quotas. While nobody is counted nothing stands before a heartbeat."""
        if api in MUTATIONS and handler is not None:
            changing = self._changing(api, MUTATIONS[api], handler)
            return (self._making(changing) if api == "CreateTopics" else changing), immediate
        if api == "Metadata" and handler is not None:
            return self._asking(handler), immediate
        if self._quotas.counts and (api in JOINING_APIS or api in MEMBER_APIS):
            return self._counting_slow(api, handler), self._counting(api, immediate)
        return handler, immediate

    def when_changed(self, tell: Callable[[], None]) -> None:
        """See `Limits`."""
        self._quotas.when_counted(tell)

    # -- partitions ---------------------------------------------------------------------------------------

    def _changing(self, api: str, kind: TopicMutation, handler: Handler) -> Handler:
        async def answered(request: Any, call: KafkaCall) -> Any:
            user, client, now_s = call.identity.principal.name, call.client_id, self._clock()
            owed_s = self._quotas.owed_s(user, client, now_s)
            if owed_s is None or getattr(request, "validate_only", False):
                return await handler(request, call)
            place = "topic_names" if api == "DeleteTopics" and call.api_version < 6 else kind.rows
            rows, refused = list(getattr(request, place)), []
            allowed: dict[object, int] = {}
            for row in rows:
                weight = self._weight(api, row)
                if call.api_version >= kind.strict and owed_s > 0:
                    refused.append(row)
                else:
                    owed_s = self._quotas.charge(self._quotas.mutations, user, client, weight, now_s)
                    allowed[topic_key(row)] = weight
            if refused:
                request = copy(request)
                setattr(request, place, [row for row in rows if topic_key(row) in allowed])
            answer = await handler(request, call)
            self._give_back(getattr(answer, kind.answers), allowed, user, client)
            if refused:
                path, why = f"{api}Response.{kind.answers}", TOO_SOON.format(owed_s)
                told = [quota_refusal_row(path, row, THROTTLING_QUOTA_EXCEEDED, why) for row in refused]
                setattr(answer, kind.answers, [*getattr(answer, kind.answers), *told])
            wait_s = self._quotas.owed_s(user, client, now_s) or 0.0
            if call.api_version < kind.strict or refused:
                answer.throttle_time_ms = int(wait_s * 1000)
            return answer

        return answered

    def _weight(self, api: str, row: Any) -> int:
        """How many partitions it is about; none, where it will be refused for what there is."""
        known = self._partitions()
        if api == "DeleteTopics":
            return int(known.get(row if isinstance(row, str) else row.name or "", 0))
        if api == "CreatePartitions":
            return max(0, int(row.count) - int(known.get(row.name, row.count)))
        if row.name in known:
            return 0
        if row.assignments:
            return len(row.assignments)
        return max(0, self._default if row.num_partitions == DEFAULT else int(row.num_partitions))

    def _give_back(self, answers: Any, allowed: Mapping[object, int], user: str, client: str) -> None:
        """What was refused for another reason was not done."""
        for answer in answers:
            weight = allowed.get(answer.name) or allowed.get(getattr(answer, "topic_id", None))
            if answer.error_code and weight:
                self._quotas.charge(self._quotas.mutations, user, client, -weight, self._clock())

    # -- topics -------------------------------------------------------------------------------------------

    def _making(self, handler: Handler) -> Handler:
        owners = self._owners

        async def answered(request: Any, call: KafkaCall) -> Any:
            if owners is None or not owners.kept or request.validate_only:
                return await handler(request, call)
            user, refused = call.identity.principal.name, []
            room, known = owners.room(user), self._partitions()
            if room is not None:
                refused = [row for row in request.topics if row.name not in known][room:]
            if refused:
                request = copy(request)
                gone = {row.name for row in refused}
                request.topics = [row for row in request.topics if row.name not in gone]
            answer = await handler(request, call)
            await owners.made(user, [row.name for row in answer.topics if not row.error_code])
            told = [
                quota_refusal_row(CREATED_TOPIC_ROW, row, ErrorCode.POLICY_VIOLATION, owners.why(user))
                for row in refused
            ]
            answer.topics = [*answer.topics, *told]
            return answer

        return answered

    def _asking(self, handler: Handler) -> Handler:
        """Metadata makes topics that are missing, where the node does: they are their asker's, too."""
        owners = self._owners

        async def answered(request: Any, call: KafkaCall) -> Any:
            if owners is None or not owners.kept or not (request.topics and request.allow_auto_topic_creation):
                return await handler(request, call)
            user, known = call.identity.principal.name, set(self._partitions())
            room, missing = owners.room(user), {row.name for row in request.topics if row.name} - known
            if room is not None and len(missing) > room:  # then none is made, and they are unknown topics
                request = copy(request)
                request.allow_auto_topic_creation = False
                return await handler(request, call)
            answer = await handler(request, call)
            if missing:  # a long answer has been written already: what there is now says which were made
                there = self._partitions()
                await owners.made(user, sorted(name for name in missing if name in there))
            return answer

        return answered

    # -- members ------------------------------------------------------------------------------------------

    def _counting(self, api: str, immediate: Immediate | None) -> Immediate | None:
        if immediate is None:
            return None

        def answered(request: Any, call: KafkaCall) -> Any:
            if (refused := self._refused(api, request, call)) is not None:
                return refused
            return immediate(request, call)

        return answered

    def _counting_slow(self, api: str, handler: Handler | None) -> Handler | None:
        if handler is None:
            return None

        async def answered(request: Any, call: KafkaCall) -> Any:
            if (refused := self._refused(api, request, call)) is not None:
                return refused
            return await handler(request, call)

        return answered

    def _refused(self, api: str, request: Any, call: KafkaCall) -> Any:
        """None: go on. The member is known as its user's from now on."""
        user, now_s = call.identity.principal.name, self._clock()
        if api in JOINING_APIS and (not hasattr(request, "member_epoch") or request.member_epoch == 0):
            why = self._counts.refusal(user, request.group_id, request.member_id, now_s)
            if why is not None:
                made = struct(f"{api}Response")
                told = {"error_message": why.sentence} if api == "ConsumerGroupHeartbeat" else {}
                return made(error_code=ErrorCode(why.code), **told)
        if request.member_id:
            self._counts.note(user, request.group_id, request.member_id, now_s)
        return None


def topic_key(row: Any) -> object:
    if isinstance(row, str):
        return row
    return row.name or getattr(row, "topic_id", None)


def quota_refusal_row(path: str, row: Any, code: int, why: str) -> Any:
    made = struct(path)(error_code=code)
    made.error_message = why
    made.name = row if isinstance(row, str) else row.name
    if hasattr(row, "topic_id"):
        made.topic_id = row.topic_id
    if hasattr(made, "configs"):
        made.configs = []
    return made
