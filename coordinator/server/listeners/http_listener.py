"""The HTTP listener of a node: what the `web` package sees of the node, and when the listener starts and stops.

`web` is imported unless `http.listeners` is empty, and in a thread: it takes a fifth of a second.
"""

import asyncio
import socket
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

import structlog
from google.protobuf.message import Message

from muster.coordinator.config import Address, Settings
from muster.coordinator.edge.cluster_view import GRPC, HTTP, coordinates_shard, format_node_address
from muster.coordinator.edge.listener_base import Authenticator, ListenerTls, open_listening_socket
from muster.coordinator.errors import CallDenied, NodeShuttingDown, Overloaded
from muster.coordinator.observability.history.group_changes import GroupChanges
from muster.coordinator.observability.history.group_history import GroupHistory
from muster.coordinator.observability.metrics.instruments import RequestMeter
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.node_status import Condition, Conditions
from muster.coordinator.runtime.shards import ShardStatus, partition_for
from muster.coordinator.security.access_model import Identity
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.grpc.listener import AddressTaken, describe_remedy
from muster.coordinator.server.monitoring.metrics_scrape import NodeMetrics
from muster.coordinator.server.node_events import format_optional_address
from muster.coordinator.server.rpc_dispatch import MethodKind, ServiceMethod
from muster.coordinator.web.http.node_port import (
    CURRENT_IDENTITY,
    NOBODY,
    CallNotOffered,
    CoordinatingNode,
    Exposition,
    HttpCaller,
    HttpRefusal,
    NodeFacts,
    NodeHealth,
)

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster_view import ClusterView
    from muster.coordinator.web.listener import HttpListener

BACKLOG = 512

CALL_S = 30.0
"""The longest that an answer of the node is waited for."""

log = structlog.get_logger("muster.http")


class NodeHttpListener:
    """Bound before the log is opened, served as soon as the other doors are, closed when the node stops."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bound = settings.http_address or Address("", 0)
        self._socket: socket.socket | None = None
        self._loading: asyncio.Future[tuple[ModuleType, ModuleType]] | None = None
        self._listener: HttpListener | None = None
        self._inside: NodeAccess | None = None

    @property
    def bound(self) -> Address | None:
        """Where it listens, once it is bound; None where it gave way."""
        return self._bound if self._socket is not None else None

    @property
    def connections(self) -> int:
        return 0 if self._listener is None else self._listener.connections

    def bind(self) -> bool:
        """Take the port, and begin to import what serves it.

        Raises AddressTaken. The default gives way instead (False): a second node on a machine starts.
        """
        host, port = self._bound
        try:
            self._socket = open_listening_socket(host, port, BACKLOG)
        except OSError as error:
            if self._settings.http_by_default:
                log.warning("no HTTP listener", host=host, port=port, why=describe_remedy(error, "http.listeners"))
                return False
            raise AddressTaken(f"cannot listen on {host}:{port}: {describe_remedy(error, 'http.listeners')}") from error
        self._bound = Address(host, self._socket.getsockname()[1])
        self._loading = asyncio.get_running_loop().run_in_executor(None, import_web)
        return True

    def give_back(self) -> None:
        """Free a port that was bound but never served."""
        if self._loading is not None:
            self._loading.cancel()
        if self._socket is not None:
            self._socket.close()

    async def start(
        self, inside: "NodeAccess", gate: Authenticator | None = None, tls: ListenerTls | None = None
    ) -> None:
        """Answer requests, probes among them, whether or not the groups are loaded."""
        assert self._loading is not None, "bind() comes before start()"
        assert self._socket is not None, "it gave way: there is nothing to start"
        app, listener = await self._loading
        self._inside = inside
        self._listener = listener.HttpListener(self._socket, self._settings.http_max_connections)
        await self._listener.start(app.make_app(inside, self._settings, inside.meter, gate), tls)
        log.info("listening", host=self._bound.host, port=self._bound.port)

    def drain(self) -> None:
        """From now on the node is not ready, and nothing but probes is answered."""
        if self._inside is not None:
            self._inside.draining = True
            self._inside.changes.close()

    async def close(self, grace_s: float) -> None:
        if self._listener is not None:
            await self._listener.close(grace_s)


def import_web() -> tuple[ModuleType, ModuleType]:
    import_module(
        "muster.coordinator.observability.metrics.node_metrics"
    )  # Prometheus' library: the first scrape is not to wait for it
    return import_module("muster.coordinator.web.app"), import_module("muster.coordinator.web.listener")


class LogSizes(Protocol):
    """What is asked of the node's logs."""

    def sizes(self, places: Iterable[tuple[str, int]], /) -> list[int]: ...


class RunningNode(Protocol):
    """What a node has once its log is open."""

    engine: Engine
    measuring: NodeMetrics | None

    @property
    def broker(self) -> LogSizes: ...

    @property
    def changes(self) -> GroupChanges | None: ...

    @property
    def history(self) -> GroupHistory | None: ...

    @property
    def advertised(self) -> Address: ...

    @property
    def kafka_bound(self) -> Address | None: ...

    @property
    def http_bound(self) -> Address | None: ...


class VisibilityRights(Protocol):
    """What somebody may know of, where anybody is asked."""

    def may_see_group(self, who: Identity, group: str, /) -> bool: ...

    def may_see_node(self, who: Identity, /) -> bool: ...

    def may_see_figures(self, who: Identity, group: str, /) -> bool: ...

    def plain(self, who: Identity, text: str, /) -> str: ...


class InternalCall:
    """A handler's view of a call that came by no transport."""

    metadata: Mapping[str, str] = {}
    door = "http"

    def __init__(self, caller: HttpCaller) -> None:
        self.reason = caller.reason
        self.peer_host = caller.host
        self.client_software = caller.software
        self.identity = CURRENT_IDENTITY.get() if caller is NOBODY else caller.identity

    def cancelled(self) -> bool:
        return False


class NodeAccess:
    """The node, as `muster.coordinator.web.http.node_port.NodePort` has it."""

    def __init__(
        self,
        node: RunningNode,
        settings: Settings,
        table: Mapping[str, ServiceMethod],
        malformed: tuple[type[Exception], ...],
        conditions: Conditions,
        clock: NodeClock,
        sees: VisibilityRights | None = None,
        cluster: "ClusterView | None" = None,
    ) -> None:
        """`cluster` knows the other nodes where this one is one of many."""
        self._sees = sees
        self._cluster = cluster
        assert node.history is not None, "a node with a listener observes its groups"
        assert node.changes is not None, "a node with a listener observes its groups"
        self.history = node.history
        self.changes = node.changes
        self.draining = False
        self._malformed = malformed
        self._node = node
        self._settings = settings
        self._conditions = conditions
        self._started_ms = clock.now_ms()
        self._loaded_once = False
        self._methods = unary_methods_by_name(table)

    async def call(self, method: str, request: Message, by: HttpCaller = NOBODY) -> Message:
        """See `Asks.call`."""
        if self.draining:
            raise HttpRefusal(503, "DRAINING", "the node is being stopped; ask again once it is back")
        if method not in self._methods:
            raise CallNotOffered(501, "NOT_OFFERED", f"this node does not offer {method}")
        handler = self._methods[method].handler
        try:
            async with asyncio.timeout(CALL_S):
                answer = await handler(request, InternalCall(by))
        except TimeoutError:
            text = f"no answer within {CALL_S:g} s; the node may still do what was asked: look before asking again"
            raise HttpRefusal(504, "TIMED_OUT", text) from None
        except NodeShuttingDown as error:
            raise HttpRefusal(503, "DRAINING", str(error)) from None
        except CallDenied as error:
            raise HttpRefusal(403, "DENIED", str(error)) from None
        except Overloaded as error:
            wait_s = str(-(-error.retry_after_ms // 1000))
            raise HttpRefusal(503, "LIMIT_REACHED", str(error), headers={"retry-after": wait_s}) from None
        except self._malformed as error:
            raise HttpRefusal(400, "MALFORMED_REQUEST", str(error), field=getattr(error, "field", "")) from None
        if isinstance(answer, bytes):
            return self._methods[method].response_type.FromString(answer)
        return cast(Message, answer)

    async def metrics(self, accept: str) -> Exposition:
        """See `Asks.metrics`."""
        assert self._node.measuring is not None, "a node with a listener counts"
        if not self.sees_node():
            raise HttpRefusal(403, "CLUSTER_AUTHORIZATION_FAILED", "metrics need DESCRIBE on the cluster")
        return await self._node.measuring.scrape(accept)

    def sees_group(self, group: str) -> bool:
        """See `Asks.sees_group`."""
        return self._sees is None or self._sees.may_see_group(CURRENT_IDENTITY.get(), group)

    def sees_figures(self, group: str) -> bool:
        """See `Asks.sees_figures`."""
        return self._sees is None or self._sees.may_see_figures(CURRENT_IDENTITY.get(), group)

    def owner(self, group: str) -> CoordinatingNode | None:
        """See `Asks.owner`."""
        cluster = self._cluster
        if cluster is None:
            return None
        shard = partition_for(group, self._node.engine.shards)
        node, door = (cluster.coordinator(shard, listener) for listener in (GRPC, HTTP))
        if node is None or node.node_id == cluster.me:
            return None
        return CoordinatingNode(
            node.node_id, format_node_address(node), "" if door is None else format_node_address(door)
        )

    def leads(self) -> frozenset[int] | None:
        """See `Asks.leads`."""
        cluster = self._cluster
        return (
            None
            if cluster is None
            else frozenset(filter(partial(coordinates_shard, cluster), range(self._node.engine.shards)))
        )

    def sees_node(self) -> bool:
        """See `Asks.sees_node`."""
        return self._sees is None or self._sees.may_see_node(CURRENT_IDENTITY.get())

    def meter(self, endpoint: str) -> RequestMeter:
        """Where requests to this endpoint are counted."""
        assert self._node.measuring is not None, "a node with a listener counts"
        return self._node.measuring.instruments.meter("http", endpoint)

    def log_bytes(self, places: Sequence[tuple[str, int]]) -> Sequence[int]:
        """See `Asks.log_bytes`."""
        return self._node.broker.sizes(places)

    def health(self) -> NodeHealth:
        engine = self._node.engine
        status = [engine.status(shard) for shard in range(engine.shards)]
        self._loaded_once = self._loaded_once or ShardStatus.LOADING not in status
        return NodeHealth(
            started=self._loaded_once,
            draining=self.draining,
            loading=tuple(shard for shard in range(engine.shards) if not engine.settled(shard)),
            conditions=self._plain_conditions(),
        )

    def _plain_conditions(self) -> tuple[Condition, ...]:
        """Without the names of topics that whoever is asking may not see."""
        found, sees = self._conditions.current(), self._sees
        if sees is None:
            return found
        plain = partial(sees.plain, CURRENT_IDENTITY.get())
        return tuple(replace(each, name=plain(each.name), sentence=plain(each.sentence)) for each in found)

    def node(self) -> NodeFacts:
        return NodeFacts(
            node_id=self._settings.node_id,
            version=version("muster-groups"),
            address=format_optional_address(self._node.advertised),
            kafka_address=format_optional_address(self._node.kafka_bound),
            http_address=format_optional_address(self._node.http_bound),
            started_ms=self._started_ms,
            shards=self._node.engine.shards,
            watched=self._settings.watched,
        )


def unary_methods_by_name(table: Mapping[str, ServiceMethod]) -> dict[str, ServiceMethod]:
    """The rows that have one answer, by the method's name alone. A name that two services share is left out: nothing
    calls InitProducerId by HTTP."""
    unary = [(name.rpartition("/")[2], method) for name, method in table.items() if method.kind is MethodKind.UNARY]
    shared = {name for name, count in Counter(name for name, _ in unary).items() if count > 1}
    return {name: method for name, method in unary if name not in shared}
