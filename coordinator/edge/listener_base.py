"""What the gRPC, Kafka and HTTP listeners share: port, TLS, the caller's identity and rights, operators' actions.

`Authenticator` and `TopicRightsSource` are ports to the node's security; a node without security passes None or
`everything`. The client's software is named in one form (`librdkafka 2.16.0`): Kafka's clients send it with
ApiVersions (KIP-511), gRPC's clients in their user agent. Handlers of requests that change what others rely on are
wrapped as the listeners' tables are made: one line for each action of an operator, none for what consumers do.
Nothing of `ssl` is imported for a listener without TLS.
"""

import re
import socket
from collections.abc import Awaitable, Callable, Container, Iterable
from contextlib import AbstractAsyncContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from muster.coordinator.core.model.rights import Rights
from muster.coordinator.security.access_model import ANONYMOUS, Identity, Principal

if TYPE_CHECKING:
    from ssl import SSLContext, SSLObject


# Authentication
# --------------


class Authenticator(Protocol):
    """Everything on the node's loop."""

    @property
    def seen(self) -> Container[str]:
        """What somebody has shown before, from any address, and was known by; a guess, to prepare by."""

    def known(self, host: str, authorization: str) -> Identity | None:
        """Who has shown that before, and still is; without waiting."""

    async def identify(self, *, host: str, authorization: str, certificate: bytes | None, door: str) -> Identity:
        """`authorization`: such as `Bearer ...`, may be empty; `certificate`: the client's, as PEM.

        Raises NotAuthenticated.
        """

    def lasting(self, identity: Identity) -> AbstractAsyncContextManager[None]:
        """What runs in it is cancelled once the identity ends, which raises NotAuthenticated."""


# Rights to topics
# ----------------


class TopicRightsSource(Protocol):
    """Everything on the node's loop. A heartbeat feels each call: it looks at `moment` itself, and at `Identity.told`.

    Who was told in this moment has the same rights still, and need not be asked for.
    """

    @property
    def moment(self) -> object:
        """Another object as soon as anybody may have other rights; None where nobody ever has."""

    def of(self, who: Identity) -> Rights:
        """Notes it in `who.told`."""


class UnrestrictedRights:
    """Where nobody is asked."""

    moment: Final = None

    def of(self, who: Identity) -> Rights:
        return None


UNRESTRICTED: Final = UnrestrictedRights()


# The client's software
# ---------------------

WORD: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]{0,253}[a-zA-Z0-9])?")
"""What may be a name or a version (KIP-511), in so many characters as the ledger has room for."""

AGENTS_KEPT: Final = 64


def is_software_word(text: str) -> bool:
    """Whether KIP-511 takes this as a name or a version."""
    return WORD.fullmatch(text) is not None


def format_software(name: str, version: str) -> str:
    """Both in one; empty when the client said neither."""
    return f"{name} {version}".strip()


@lru_cache(AGENTS_KEPT)
def parse_user_agent(agent: str) -> str:
    """The software that a user agent begins with; empty for what no client calls itself.

    >>> parse_user_agent("muster-python/0.1.0 grpc-python-asyncio/1.76.0 grpc-c/51.0.0 (linux; chttp2)")
    'muster-python 0.1.0'
    >>> parse_user_agent("grpc-go/1.60.0"), parse_user_agent("muster-python grpc-c/51.0.0"), parse_user_agent("(none)")
    ('grpc-go 1.60.0', 'muster-python', '')
    """
    name, _, version = agent.partition(" ")[0].partition("/")
    if not is_software_word(name):
        return ""
    return format_software(name, version if is_software_word(version) else "")


# TLS
# ---

CERTIFICATE: Final = "muster.certificate"
"""Among the extensions of an HTTP request: the certificate that its connection was begun with, as DER."""


OnName: TypeAlias = "Callable[[SSLObject, str | None], int | None]"
"""Given a handshake and the name that its client asks for, None where it asks for none; a number is an alert of TLS, by
which it is refused."""


@dataclass(frozen=True, slots=True)
class ListenerTls:
    """One listener's."""

    door: str
    context: "SSLContext"
    identity_of: "Callable[[SSLObject | None, str], Identity | None]"
    """Who speaks from an address, after the handshake; None: nobody, and the connection ends."""
    handshake_s: float
    """A handshake is over within so long, or the connection is."""
    on_name: "Callable[[OnName], None]"
    """From now on, and with each certificate, this is told the name that a client asks for."""
    covers: Callable[[str], bool]
    """Whether the certificate that is shown right now is for a host of this name."""


# The port
# --------


def open_listening_socket(host: str, port: int, backlog: int) -> socket.socket:
    """Take the port (0: any free one). Raises OSError."""
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        # Two processes can bind one port with SO_REUSEADDR; only one of them can listen.
        listening.listen(backlog)
        listening.setblocking(False)
    except OSError:
        listening.close()
        raise
    return listening


# Actions of operators
# --------------------

MOST_NAMES: Final = 5

ACTIONS: Final = frozenset(
    {
        "CreateTopics", "DeleteTopics", "CreatePartitions", "AlterConfigs", "IncrementalAlterConfigs", "DeleteRecords",
        "DeleteGroups", "RemoveMembers", "AlterGroupSettings", "HoldGroup", "ResumeGroup", "StartCanary", "EndCanary",
        "OffsetDelete", "OffsetCommit", "CreateAcls", "DeleteAcls",
        "AlterClientQuotas", "AlterQuotas",
        "ElectLeaders", "AlterPartitionReassignments", "DrainNode",
        "TerminateTransaction", "WriteTxnMarkers",
    }
)  # fmt: skip
"""Requests that change what others rely on, by Kafka's names and ours. Of OffsetCommit only what tools send
(`include_zookeeper`): a consumer without a group commits like a tool, all the time."""


class AuditedCall(Protocol):
    """What both doors know of a caller."""

    @property
    def peer_host(self) -> str: ...

    @property
    def client_software(self) -> str: ...

    @property
    def identity(self) -> Identity: ...


@dataclass(frozen=True, slots=True)
class OperatorAction:
    """`of` names topics, groups or a transactional id; `refused` counts those of them that were refused, or is 1 for
    the whole."""

    what: str
    of: str
    host: str
    software: str
    door: str
    refused: int
    reason: str
    principal: Principal = ANONYMOUS


AuditedHandler: TypeAlias = Callable[[Any, Any], Awaitable[Any]]
ReportAction: TypeAlias = Callable[[OperatorAction], None]


ACTING: Final[ContextVar[str]] = ContextVar("acting", default="")
"""Who changes something in this task, for the explanations of what follows from it; empty: the node itself."""


def describe_actor(call: AuditedCall) -> str:
    """A caller by its principal, or where nobody logs in by its client id or software, and its address."""
    principal = call.identity.principal
    name = principal.name if principal != ANONYMOUS else getattr(call, "client_id", "") or call.client_software
    return f"{name or 'a client'} at {call.peer_host or 'an unknown address'}"


def report_actions(handler: AuditedHandler, what: str, door: str, tell: ReportAction) -> AuditedHandler:
    """The same handler; what it did is told once it has answered. Requests that only check are none of it.

    A call that came in through another door than the table's says so (`door`), and why, where its request cannot.
    """

    async def told(request: Any, call: AuditedCall) -> Any:
        ACTING.set(describe_actor(call))
        response = await handler(request, call)
        reason = str(getattr(request, "reason", "") or getattr(call, "reason", ""))
        by = getattr(call, "door", door)
        who = call.identity.principal
        tell(
            OperatorAction(
                what,
                format_subjects(request),
                call.peer_host,
                call.client_software,
                by,
                count_refusals(response),
                reason,
                who,
            )
        )
        return response

    def chosen(request: Any, call: AuditedCall) -> Awaitable[Any]:
        return told(request, call) if changes_something(what, request) else handler(request, call)

    return chosen


def changes_something(what: str, request: Any) -> bool:
    if what == "OffsetCommit":
        return bool(getattr(request, "include_zookeeper", False)) and not request.member_id
    return not getattr(request, "validate_only", False)


def format_subjects(request: Any) -> str:
    """The topics, groups or transactional id that a request is about: a few of them, and how many more."""
    names = list(list_subjects(request))
    more = len(names) - MOST_NAMES
    return ",".join(names[:MOST_NAMES]) + (f" and {more} more" if more > 0 else "")


def list_subjects(request: Any) -> Iterable[str]:
    if getattr(request, "group_id", ""):
        return [str(request.group_id)]
    if getattr(request, "transactional_id", ""):
        return [str(request.transactional_id)]
    if markers := getattr(request, "markers", None):
        return dict.fromkeys(str(topic.name) for marker in markers for topic in marker.topics)
    if hasattr(request, "node_id"):
        return [f"node {request.node_id}"]
    for field in ("topic_names", "groups_names"):
        if getattr(request, field, None):
            return map(str, getattr(request, field))
    fields = ("topics", "resources", "creations", "filters", "entries", "partitions", "topic_partitions")
    return (str(name_of_row(row)) for row in first_nonempty(request, *fields))


def name_of_row(row: Any) -> object:
    if parts := getattr(row, "entity", None):
        return " ".join(map(format_quota_entity, parts))
    fields = ("name", "topic", "resource_name", "resource_name_filter", "principal_filter")
    places = (getattr(row, field, None) for field in fields)
    return next((name for name in places if name), "?")


def format_quota_entity(part: Any) -> str:
    """Of whose quota it is: `user alice`."""
    kind, name = (getattr(part, f"entity_{field}", None) or getattr(part, field, "") for field in ("type", "name"))
    return f"{kind} {name or '<default>'}"


def count_refusals(response: Any) -> int:
    if getattr(response, "error_code", 0):
        return 1
    fields = ("topics", "results", "responses", "members", "groups", "filter_results", "entries")
    rows = first_nonempty(response, *fields, "replica_election_results")
    if markers := getattr(response, "markers", None):
        rows = [topic for marker in markers for topic in marker.topics]
    return sum(bool(getattr(each, "error_code", 0)) for row in rows for each in rows_with_codes(row))


def rows_with_codes(row: Any) -> Iterable[Any]:
    """The partitions of a topic, where each has a code of its own."""
    return (row,) if hasattr(row, "error_code") else first_nonempty(row, "partitions", "partition_result")


def first_nonempty(of: Any, *fields: str) -> Iterable[Any]:
    found: Iterable[Any] = next((rows for rows in (getattr(of, field, None) for field in fields) if rows), ())
    return found
