"""What the HTTP listener knows of the node: a small protocol, so that a test can stand in for the node.

`HttpRefusal` is the exception by which any part of the listener refuses a request.
"""

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from google.protobuf.message import Message

from muster.coordinator.observability.history.group_changes import GroupChanges
from muster.coordinator.observability.history.group_history import GroupHistory
from muster.coordinator.runtime.node_status import Condition
from muster.coordinator.security.access_model import UNAUTHENTICATED, Identity


class HttpRefusal(Exception):
    """The request gets this instead of an answer. `status` is HTTP's, `code` a word for programs.

    `text` says which value, what was expected, and what to do; `field` which one it was, where there is one.
    """

    def __init__(
        self, status: int, code: str, text: str, *, field: str = "", headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(text)
        self.status = status
        self.code = code
        self.text = text
        self.field = field
        self.headers = dict(headers or {})


class CallNotOffered(HttpRefusal):
    """No node of this kind answers such calls."""


@dataclass(frozen=True, slots=True)
class HttpCaller:
    """Who asks: the address, without its port, and the software it says it is; `reason`: why it acts, if it does."""

    host: str = ""
    software: str = ""
    reason: str = ""
    identity: Identity = UNAUTHENTICATED


NOBODY = HttpCaller()
"""What a page asks without naming a caller is asked as whoever the page is for (`CURRENT_IDENTITY`)."""

CURRENT_IDENTITY: ContextVar[Identity] = ContextVar("ASKING", default=UNAUTHENTICATED)
"""Who sent the request that is being answered. What is asked outside of any has the rights of nobody."""


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """How the node is at this moment."""

    started: bool
    """Whether every shard has been loaded, or has failed to, once since the start."""
    draining: bool
    loading: tuple[int, ...]
    """Numbers of the shards that are not loaded (yet, or again)."""
    conditions: Sequence[Condition]
    """What is wrong, in the words of `muster health`, oldest first."""


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What a node is."""

    node_id: int
    version: str
    address: str
    """HOST:PORT by which gRPC clients reach it."""
    kafka_address: str
    """Likewise for Kafka clients; empty without that door."""
    http_address: str
    """Where this listener is."""
    started_ms: int
    shards: int
    watched: str = ""
    """What coordinates the groups that this node only watches, such as `the Kafka at b1:9092`; empty: Muster does."""


@dataclass(frozen=True, slots=True)
class CoordinatingNode:
    """The node that coordinates a group."""

    node_id: int
    address: str
    """HOST:PORT by which gRPC clients reach it."""
    http_address: str
    """Likewise for HTTP; empty where it serves none, or nobody knows where."""


class Exposition(NamedTuple):
    """The answer to a scrape: its content type, and its bytes in pieces."""

    content_type: str
    pieces: Sequence[bytes]


class NodePort(Protocol):
    """The node, as the HTTP listener may ask it. Everything on the node's loop."""

    history: GroupHistory
    """What the node's sampler has seen of its groups."""
    changes: GroupChanges
    """Which groups change, as they do."""

    async def call(self, method: str, request: Message, by: HttpCaller = NOBODY) -> Message:
        """The answer of the node's own handler of an RPC of GroupCoordinator or Broker, such as "ListGroups".

        The same checks and refusals as at the gRPC door, and no transport. Raises `HttpRefusal`; a refusal that is an
        answer of the protocol (an `error_code`) is returned.
        """

    async def metrics(self, accept: str) -> Exposition:
        """All metrics, in the format that the Accept header asks for. Raises `HttpRefusal` for who may not see the
        node.
        """

    def sees_group(self, group: str) -> bool:
        """Whether whoever is asking (`CURRENT_IDENTITY`) may know of this group."""

    def sees_figures(self, group: str) -> bool:
        """Whether they may know what the sampler has seen of this group: all topics that its figures are about."""

    def owner(self, group: str) -> CoordinatingNode | None:
        """Which other node coordinates the group; None: this one, or nobody that is known."""

    def leads(self) -> frozenset[int] | None:
        """Of a cluster's node, the shards that it coordinates; None: it is on its own, and has all of them."""

    def sees_node(self) -> bool:
        """Whether they may know how the node is: its metrics, and what is wrong with it."""

    def log_bytes(self, places: Sequence[tuple[str, int]]) -> Sequence[int]:
        """Of each partition's log, 0 where there is none. Without waiting: some hundreds at a time."""

    def health(self) -> NodeHealth:
        """Without waiting, and without asking a shard."""

    def node(self) -> NodeFacts:
        """Likewise."""
