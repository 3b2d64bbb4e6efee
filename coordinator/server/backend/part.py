"""A node's part in something that has more nodes, or keeps its state: what the composition root asks of either kind."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from muster.coordinator.runtime.engine import Engine
from muster.coordinator.server.rpc_dispatch import ServiceMethod
from muster.coordinator.server.services.groups import GroupCoordinator
from muster.storage.broker.broker import Broker
from muster.storage.broker.requests import LogRequests
from muster.storage.rpc.v1 import staging_service_pb2 as pb
from muster.storage.service.broker import BrokerService

if TYPE_CHECKING:
    from muster.coordinator.server.driver.drive import EngineDriver
    from muster.coordinator.server.services.session import ServerSessions


class SharedBackend(Protocol):
    """`Joined`, or a node's side over somebody's Kafka."""

    shards: int

    @property
    def broker(self) -> Broker:
        """What there is of topics and records, for this node's doors."""

    @property
    def requests(self) -> LogRequests: ...

    @property
    def group_log(self) -> Any:
        """A `GroupLog`."""

    @property
    def engine(self) -> Callable[..., Engine]:
        """Makes the engine of a node whose shards are not its own for good."""

    @property
    def admin(self) -> Any:
        """Who says who is to lead; None where nobody does."""

    def coordinate(
        self,
        engine: Engine,
        driver: "EngineDriver",
        clock_ms: Callable[[], int],
        fail: Callable[[BaseException], None],
        sessions: "ServerSessions",
    ) -> None:
        """From now on have the groups of the shards that are this node's in the engine."""

    def group_service(self, *args: Any, **given: Any) -> GroupCoordinator:
        """Takes what `GroupCoordinator` takes."""

    def record_service(
        self, advertised: Callable[[], tuple[str, int]], room: Callable[[Any], int]
    ) -> BrokerService: ...

    def table(self) -> dict[str, ServiceMethod]:
        """The calls that a node on its own has not."""

    async def let_go(self) -> None:
        """Give up what is this node's, in good order, as far as that can be."""


class StagingHandlers(Protocol):
    """The Staging service, or its refusal."""

    async def topics_of(self, request: pb.CommitStagedRequest | pb.AbortStagedRequest) -> set[str]: ...

    async def close(self) -> None: ...


class Stoppable(Protocol):
    """What is done by the clock."""

    def stop(self) -> None: ...
