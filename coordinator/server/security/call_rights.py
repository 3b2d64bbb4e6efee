"""What a caller of gRPC or HTTP may do and know: the lists are asked, and refusals are audited.

The table of rights is `coordinator/security`'s; `answer_judges` leaves out of answers what a caller may not know.
"""

import asyncio
from collections.abc import Callable, Collection, Container
from functools import partial
from typing import Final, Protocol

from muster.coordinator.errors import ErrorCode
from muster.coordinator.security.access_model import CLUSTER_NAME, Identity, Operation, ResourceType
from muster.coordinator.security.authorizer import Authorizer, describe_missing_right, remember_allowed
from muster.coordinator.security.redaction import redact_text
from muster.coordinator.security.rights import REFUSALS, RequiredRight
from muster.coordinator.server.security.audit_log import AuditLog

DOOR: Final = "grpc"


class IdentifiedCall(Protocol):
    """What is known of a call."""

    @property
    def identity(self) -> Identity: ...


class RightsChanged:
    """Wakes whoever goes on for long, so that it looks at its rights again."""

    def __init__(self) -> None:
        self._waiting: asyncio.Event | None = None

    def notify_waiters(self) -> None:
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set()

    def event(self) -> asyncio.Event:
        """Set with the next change."""
        if self._waiting is None:
            self._waiting = asyncio.Event()
        return self._waiting


class CallRights:
    """Asks the lists, and tells the audit who was refused. `topics` are the catalog's names."""

    def __init__(
        self, authorizer: Authorizer, audit: AuditLog, topics: Callable[[], Container[str]] = lambda: frozenset()
    ) -> None:
        self.authorizer = authorizer
        self._audit = audit
        self.topics = topics
        self.topics_of_group: Callable[[str], Collection[str]] = lambda group: ()
        """The topics that the sampler's figures of a group are about."""
        self.changed = RightsChanged()
        self.believed: Callable[[Identity], bool] = lambda who: True
        """Whether what somebody has shown still counts: it may have been revoked since."""

    @property
    def moment(self) -> object:
        """See `Authorizer.moment`."""
        return self.authorizer.moment

    def may(self, who: Identity, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self.authorizer.allows(who, operation, kind, name)

    def has_right(self, who: Identity, right: RequiredRight, name: str = CLUSTER_NAME) -> bool:
        """This right, or the one that does instead."""
        if self.authorizer.allows(who, right.operation, right.resource_type, name):
            return True
        other = right.instead
        if other is None:
            return False
        return self.has_right(who, other, CLUSTER_NAME if other.resource_type is ResourceType.CLUSTER else name)

    def clears(self, who: Identity, right: RequiredRight, name: str) -> bool:
        """`holds`, which is noted."""
        moment = self.authorizer.moment
        if not self.has_right(who, right, name):
            return False
        remember_allowed(who, right, name, moment)
        return True

    def may_somewhere(self, who: Identity, operation: Operation, kind: ResourceType) -> bool:
        """Whether there is a resource of the kind with which this is allowed."""
        return self.authorizer.allows_any(who, operation, kind)

    def may_see(self, who: Identity, topic: str) -> bool:
        return self.authorizer.allows(who, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def plain(self, who: Identity, text: str) -> str:
        """A sentence of the node's without the names of topics that somebody may not see."""
        return text if self.sees_every_topic(who) else redact_text(text, (), partial(self.may_see, who), self.topics())

    def sees_every_topic(self, who: Identity) -> bool:
        """Whether nothing about topics is to be looked for in an answer."""
        return self.authorizer.allows_every(who, Operation.DESCRIBE, ResourceType.TOPIC)

    def may_see_figures(self, who: Identity, group: str) -> bool:
        """Whether all topics are to be seen that the sampler's figures of a group are about: part of a sum is none."""
        return all(self.may_see(who, topic) for topic in self.topics_of_group(group))

    def may_see_group(self, who: Identity, group: str) -> bool:
        return self.may(who, Operation.DESCRIBE, ResourceType.GROUP, group) or self.may_see_node(who)

    def may_see_node(self, who: Identity) -> bool:
        return self.may(who, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME)

    def refuse(self, call: IdentifiedCall, right: RequiredRight, name: str, api: str) -> tuple[ErrorCode, str]:
        """The code, and a sentence: what is missing and how it is granted, to who may know of the resource."""
        who, door = call.identity, getattr(call, "door", DOOR)
        self._audit.refused(who, door, right.operation, right.resource_type, name, api)
        code = ErrorCode(REFUSALS[right.resource_type])
        knows = self.may(who, Operation.DESCRIBE, right.resource_type, name) or self.may(
            who, Operation.DESCRIBE, ResourceType.CLUSTER, CLUSTER_NAME
        )
        return code, describe_missing_right(who, right.operation, right.resource_type, name) if knows else ""
