"""The third door of a node, HTTP: what the room `web` knows of the node, and when its listener comes and goes.

That room is imported unless `http.listeners` is empty, and in a thread: it takes a fifth of a second.
"""

import asyncio
import socket
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast

import structlog
from google.protobuf.message import Message

from muster.coordinator.config import Address, Settings
from muster.coordinator.edge.cluster import GRPC, HTTP, at, leads
from muster.coordinator.edge.gate import AsksWho
from muster.coordinator.edge.transport.sockets import listening_socket
from muster.coordinator.edge.transport.tls import Tls
from muster.coordinator.errors import Denied, Draining, Overloaded
from muster.coordinator.metrics.instruments import Meter
from muster.coordinator.observe.changes import Changes
from muster.coordinator.observe.history import History
from muster.coordinator.runtime.conditions import Conditions
from muster.coordinator.runtime.engine import Engine
from muster.coordinator.runtime.router import partition_for
from muster.coordinator.runtime.slot import ShardStatus
from muster.coordinator.security.identity import Identity
from muster.coordinator.server.dispatch import Kind, Method
from muster.coordinator.server.driver.clock import Clock
from muster.coordinator.server.grpc.listener import AddressTaken, cure_of
from muster.coordinator.server.journal.lines import str_of
from muster.coordinator.server.sight.measuring import Measuring
from muster.coordinator.web.asks import (
    ASKING,
    NOBODY,
    Caller,
    Exposition,
    NodeFacts,
    NodeHealth,
    NotOffered,
    Owner,
    Refused,
)

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster import Cluster
    from muster.coordinator.web.listener import HttpListener

BACKLOG = 512

CALL_S = 30.0
"""The longest that an answer of the node is waited for."""

log = structlog.get_logger("muster.http")


class HttpDoor:
    """Bound before the log is opened, served as soon as the other doors are, closed when the node stops."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._bound = settings.http_address or Address("", 0)
        self._socket: socket.socket | None = None
        self._loading: asyncio.Future[tuple[ModuleType, ModuleType]] | None = None
        self._listener: HttpListener | None = None
        self._inside: Inside | None = None

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
            self._socket = listening_socket(host, port, BACKLOG)
        except OSError as error:
            if self._settings.http_by_default:
                log.warning("no HTTP listener", host=host, port=port, why=cure_of(error, "http.listeners"))
                return False
            raise AddressTaken(f"cannot listen on {host}:{port}: {cure_of(error, 'http.listeners')}") from error
        self._bound = Address(host, self._socket.getsockname()[1])
        self._loading = asyncio.get_running_loop().run_in_executor(None, web_room)
        return True

    def give_back(self) -> None:
        """Free a port that was bound but never served."""
        if self._loading is not None:
            self._loading.cancel()
        if self._socket is not None:
            self._socket.close()

    async def start(self, inside: "Inside", gate: AsksWho | None = None, tls: Tls | None = None) -> None:
        """Answer requests, probes among them, whether or not the groups are loaded."""
        assert self._loading is not None, "bind() comes before start()"
        assert self._socket is not None, "it gave way: there is nothing to start"
        app, listener = await self._loading
        self._inside = inside
        self._listener = listener.HttpListener(self._socket, self._settings.http_max_connections)
        await self._listener.start(app.app_of(inside, self._settings, inside.meter, gate), tls)
        log.info("listening", host=self._bound.host, port=self._bound.port)

    def drain(self) -> None:
        """From now on the node is not ready, and nothing but probes is answered."""
        if self._inside is not None:
            self._inside.draining = True
            self._inside.changes.close()

    async def close(self, grace_s: float) -> None:
        if self._listener is not None:
            await self._listener.close(grace_s)


def web_room() -> tuple[ModuleType, ModuleType]:
    import_module("muster.coordinator.metrics.node")  # Prometheus' library: the first scrape is not to wait for it
    return import_module("muster.coordinator.web.app"), import_module("muster.coordinator.web.listener")


class Logs(Protocol):
    """What is asked of the node's logs."""

    def sizes(self, places: Iterable[tuple[str, int]], /) -> list[int]: ...


class Whole(Protocol):
    """What a node has once its log is open."""

    engine: Engine
    measuring: Measuring | None

    @property
    def broker(self) -> Logs: ...

    @property
    def changes(self) -> Changes | None: ...

    @property
    def history(self) -> History | None: ...

    @property
    def advertised(self) -> Address: ...

    @property
    def kafka_bound(self) -> Address | None: ...

    @property
    def http_bound(self) -> Address | None: ...


class Sees(Protocol):
    """What somebody may know of, where anybody is asked."""

    def may_see_group(self, who: Identity, group: str, /) -> bool: ...

    def may_see_node(self, who: Identity, /) -> bool: ...


class InsideCall:
    """A handler's view of a call that came by no transport."""

    metadata: Mapping[str, str] = {}
    door = "http"

    def __init__(self, caller: Caller) -> None:
        self.reason = caller.reason
        self.peer_host = caller.host
        self.client_software = caller.software
        self.identity = ASKING.get() if caller is NOBODY else caller.identity

    def cancelled(self) -> bool:
        return False


class Inside:
    """The node, as `muster.coordinator.web.asks.Asks` has it."""

    def __init__(
        self,
        node: Whole,
        settings: Settings,
        table: Mapping[str, Method],
        malformed: tuple[type[Exception], ...],
        conditions: Conditions,
        clock: Clock,
        sees: Sees | None = None,
        cluster: "Cluster | None" = None,
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
        self._methods = by_short_name(table)

    async def call(self, method: str, request: Message, by: Caller = NOBODY) -> Message:
        """See `Asks.call`."""
        if self.draining:
            raise Refused(503, "DRAINING", "the node is being stopped; ask again once it is back")
        if method not in self._methods:
            raise NotOffered(501, "NOT_OFFERED", f"this node does not offer {method}")
        handler = self._methods[method].handler
        try:
            async with asyncio.timeout(CALL_S):
                answer = await handler(request, InsideCall(by))
        except TimeoutError:
            text = f"no answer within {CALL_S:g} s; the node may still do what was asked: look before asking again"
            raise Refused(504, "TIMED_OUT", text) from None
        except Draining as error:
            raise Refused(503, "DRAINING", str(error)) from None
        except Denied as error:
            raise Refused(403, "DENIED", str(error)) from None
        except Overloaded as error:
            wait_s = str(-(-error.retry_after_ms // 1000))
            raise Refused(503, "LIMIT_REACHED", str(error), headers={"retry-after": wait_s}) from None
        except self._malformed as error:
            raise Refused(400, "MALFORMED_REQUEST", str(error), field=getattr(error, "field", "")) from None
        if isinstance(answer, bytes):
            return self._methods[method].response_type.FromString(answer)
        return cast(Message, answer)

    async def metrics(self, accept: str) -> Exposition:
        """See `Asks.metrics`."""
        assert self._node.measuring is not None, "a node with a listener counts"
        if not self.sees_node():
            raise Refused(403, "CLUSTER_AUTHORIZATION_FAILED", "metrics need DESCRIBE on the cluster")
        return await self._node.measuring.scrape(accept)

    def sees_group(self, group: str) -> bool:
        """See `Asks.sees_group`."""
        return self._sees is None or self._sees.may_see_group(ASKING.get(), group)

    def owner(self, group: str) -> Owner | None:
        """See `Asks.owner`."""
        cluster = self._cluster
        if cluster is None:
            return None
        shard = partition_for(group, self._node.engine.shards)
        node, door = (cluster.coordinator(shard, listener) for listener in (GRPC, HTTP))
        if node is None or node.node_id == cluster.me:
            return None
        return Owner(node.node_id, at(node), "" if door is None else at(door))

    def leads(self) -> frozenset[int] | None:
        """See `Asks.leads`."""
        cluster = self._cluster
        return None if cluster is None else frozenset(filter(partial(leads, cluster), range(self._node.engine.shards)))

    def sees_node(self) -> bool:
        """See `Asks.sees_node`."""
        return self._sees is None or self._sees.may_see_node(ASKING.get())

    def meter(self, endpoint: str) -> Meter:
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
            conditions=self._conditions.current(),
        )

    def node(self) -> NodeFacts:
        return NodeFacts(
            node_id=self._settings.node_id,
            version=version("muster-groups"),
            address=str_of(self._node.advertised),
            kafka_address=str_of(self._node.kafka_bound),
            http_address=str_of(self._node.http_bound),
            started_ms=self._started_ms,
            shards=self._node.engine.shards,
        )


def by_short_name(table: Mapping[str, Method]) -> dict[str, Method]:
    """The rows that have one answer, by the method's name alone; no two services share one."""
    short = {name.rpartition("/")[2]: method for name, method in table.items() if method.kind is Kind.UNARY}
    assert len(short) == sum(method.kind is Kind.UNARY for method in table.values()), "two methods of one name"
    return short
