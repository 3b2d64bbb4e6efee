"""What a judge is: it checks the names in a request against the caller's rights before the handler sees the request.

A verdict is None (all allowed), a `RefusalAnswer` (the handler is not called), or a `PartialRequest` (the handler gets
the allowed part, and its answer is completed with the refusals). `AccessCheck` decides in the words of the table of
rights and reports refusals to the audit. Authorized operations (KIP-430) are those that the caller really has.

The package `authorization` is imported only with an authorizer. Which right an API needs is in
`coordinator.security.rights`; here is where each API has its names, and where its answer has room for a refusal.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any, Final, NamedTuple, Protocol, TypeAlias, TypeVar

from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.protocol import operation_bits
from muster.coordinator.security.access_model import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Identity,
    Operation,
    ResourceType,
)
from muster.coordinator.security.authorizer import Authorizer, describe_missing_right, remember_allowed
from muster.coordinator.security.rights import ANY_TOPIC, REFUSALS, RequiredRight
from muster.storage.types import Topic

Item = TypeVar("Item")

DOOR: Final = "kafka"

REFUSAL_SENTENCES: Final = {
    ResourceType.TOPIC: "Topic authorization failed.",
    ResourceType.GROUP: "Group authorization failed.",
    ResourceType.CLUSTER: "Cluster authorization failed.",
    ResourceType.TRANSACTIONAL_ID: "Transactional Id authorization failed.",
}
"""Kafka's sentences. Every message about a refusal begins with one."""


MAX_SINGLE_CHECKS: Final = 256
"""Up to so many names of a request are checked one by one, and each decision is cached."""

MAX_AUDITED_REFUSALS: Final = 5
"""At most so many refusals of one request and right are audited."""


class RefusalAnswer(NamedTuple):
    """The handler is not called: this is the answer."""

    answer: Any


class PartialRequest(NamedTuple):
    """The handler gets this request, and `amend` completes its answer."""

    request: Any
    amend: Callable[[Any], Any]
    """Takes an answer with fields, never an EncodedAnswer, and may change it. It may be called in a thread."""


Verdict: TypeAlias = RefusalAnswer | PartialRequest | None
"""None: everything is allowed, and the answer has nothing to hide."""


class RefusalAudit(Protocol):
    """Receives refusals."""

    def __call__(self, who: Identity, door: str, operation: Operation, kind: ResourceType, name: str, api: str) -> None:
        """Called on the event loop."""


class TopicLookup(Protocol):
    """What a judge has to know of the node's topics, to keep answers from revealing it."""

    @property
    def auto_create(self) -> bool:
        """Whether a missing topic is created on request."""

    def __contains__(self, name: object) -> bool: ...

    def by_id(self) -> Mapping[bytes, str]:
        """All names."""


class AccessCheck:
    """Checks a caller's rights, in the terms of the table of rights."""

    def __init__(self, authorizer: Authorizer, catalog: TopicLookup, tell: RefusalAudit | None = None) -> None:
        self.authorizer = authorizer
        self.catalog = catalog
        self._allows = authorizer.allows
        self._tell = tell

    def is_allowed(self, call: KafkaCall, right: RequiredRight, name: str = CLUSTER_NAME) -> bool:
        """Whether the caller has the right. Not audited: leaving something out is no refusal."""
        who = call.peer.identity
        if self._allows(who, right.operation, right.resource_type, name):
            return True
        other = right.instead
        if other is None:
            return False
        if other.of == ANY_TOPIC:
            return self.authorizer.allows_any(who, other.operation, other.resource_type)
        return self.is_allowed(call, other, name if other.of else CLUSTER_NAME)

    def __call__(self, call: KafkaCall, right: RequiredRight, name: str = CLUSTER_NAME, *, api: str) -> bool:
        """The same, and audits a refusal."""
        who, moment = call.peer.identity, self.authorizer.moment
        if who.cleared.get((id(right), name)) is moment:
            return True
        if self._allows(who, right.operation, right.resource_type, name):
            remember_allowed(who, right, name, moment)
            return True
        if right.instead is not None and self.is_allowed(call, right, name):
            return True
        if self._tell is not None:
            self._tell(who, DOOR, right.operation, right.resource_type, name, api)
        return False

    def allows_every(self, call: KafkaCall, right: RequiredRight) -> bool:
        """Whether nothing of the kind is hidden from the caller."""
        return self.authorizer.allows_every(call.peer.identity, right.operation, right.resource_type)

    def name_filter(self, call: KafkaCall, right: RequiredRight, count: int) -> Callable[[str], bool]:
        """`is_allowed`, for `count` names. For very many, decisions are not cached, and each takes little time."""
        if count <= MAX_SINGLE_CHECKS:
            return partial(self.is_allowed, call, right)
        who, other = call.peer.identity, right.instead
        allowed = self.authorizer.allowed_names(who, right.operation, right.resource_type)
        if other is None:
            return allowed
        if not other.of:
            return (lambda name: True) if self.is_allowed(call, other) else allowed
        too = self.authorizer.allowed_names(who, other.operation, other.resource_type)
        return lambda name: allowed(name) or too(name)

    def split_allowed(
        self, call: KafkaCall, right: RequiredRight, rows: Collection[Item], name_of: Callable[[Item], str], *, api: str
    ) -> tuple[list[Item], list[Item]]:
        """Allowed rows and refused rows. The first few refusals are audited."""
        may = self.name_filter(call, right, len(rows))
        allowed: list[Item] = []
        refused: list[Item] = []
        for row in rows:
            (allowed if may(name_of(row)) else refused).append(row)
        self.audit_refusals(call, right, map(name_of, refused), api=api)
        return allowed, refused

    def audit_refusals(self, call: KafkaCall, right: RequiredRight, refused: Iterable[str], *, api: str) -> None:
        """Audit these, or the first few of them."""
        if self._tell is not None:
            for name in islice(refused, MAX_AUDITED_REFUSALS):
                self._tell(call.peer.identity, DOOR, right.operation, right.resource_type, name, api)

    def explain_refusal(self, call: KafkaCall, right: RequiredRight, name: str = CLUSTER_NAME, among: int = 1) -> str:
        """Kafka's sentence; for a caller that may describe the resource, also the missing right and how to grant it.

        Only the sentence where very many rows (`among`) are refused.
        """
        if among > MAX_SINGLE_CHECKS:
            return REFUSAL_SENTENCES[right.resource_type]
        who, kind = call.peer.identity, right.resource_type
        knows = self._allows(who, Operation.DESCRIBE, kind, name) or self._allows(
            who, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        )
        return (
            f"{REFUSAL_SENTENCES[kind]} {describe_missing_right(who, right.operation, kind, name)}"
            if knows
            else REFUSAL_SENTENCES[kind]
        )

    def allows_all(self, call: KafkaCall, right: RequiredRight, names: Collection[str]) -> bool:
        return all(map(self.name_filter(call, right, len(names)), names))


Judge: TypeAlias = Callable[[AccessCheck, Any, KafkaCall], Verdict]


def refusal_code(right: RequiredRight) -> int:
    """
    >>> from muster.coordinator.security.rights import API_RIGHTS
    >>> refusal_code(API_RIGHTS["Heartbeat"][0])
    30
    """
    return REFUSALS[right.resource_type]


# Authorized operations (KIP-430)
# -------------------------------


def allowed_operations(may: AccessCheck, call: KafkaCall, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
    allows, who = may.authorizer.allows, call.peer.identity
    return operation_bits(*(each for each in SUPPORTED_OPERATIONS[kind] if allows(who, each, kind, name)))


# The node's topics
# -----------------


@dataclass(frozen=True, slots=True)
class NodeTopics:
    """`topics` are all that clients may see; `auto_create`: a missing topic is created on request."""

    topics: Callable[[], Mapping[str, Topic]]
    auto_create: bool

    def __contains__(self, name: object) -> bool:
        return name in self.topics()

    def by_id(self) -> dict[bytes, str]:
        return {topic.id: topic.name for topic in self.topics().values()}
