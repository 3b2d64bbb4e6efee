"""Fetches from the nodes that lead what this one copies: one at a time to each (CL-F1, CL-F3)."""

from collections.abc import Callable
from functools import partial
from typing import Final

from muster.coordinator.replication.io.background_tasks import SupervisedTasks, TaskFailed
from muster.coordinator.replication.io.wire.link import NodeLink
from muster.coordinator.replication.io.wire.links import NodeLinks
from muster.coordinator.replication.io.wire.reaching import LinkError
from muster.coordinator.replication.io.wire.translate import NameOf
from muster.coordinator.replication.protocol.messages import FetchAnswer, FetchRequest
from muster.coordinator.replication.protocol.replicas import NodeReplicas

PATIENCE_MS: Final = 5_000
"""Beyond the time that a leader may hold a fetch: then it is taken for silent."""


class ReplicaFetchClient:
    """Sends what `NodeReplicas.requests` asks for, and says what came of it."""

    def __init__(
        self,
        replicas: NodeReplicas,
        links: NodeLinks,
        name_of: NameOf,
        *,
        max_wait_ms: int,
        min_bytes: int,
        now_ms: Callable[[], int],
        happened: Callable[[], None],
        broke: Callable[[int], None],
        failed: TaskFailed,
    ) -> None:
        """happened: there may be something to do for the replicas. broke: a node did not answer (CL-C9). failed: see
        `SupervisedTasks`."""
        self._replicas = replicas
        self._links = links
        self._name_of = name_of
        self._max_wait_ms = max_wait_ms
        self._min_bytes = min_bytes
        self._now_ms = now_ms
        self._happened = happened
        self._broke = broke
        self._failed = failed
        self._tasks = SupervisedTasks(failed)
        self._stopped = False

    def send(self, node: int, request: FetchRequest) -> None:
        """By calls alone where a link stands: a task for each fetch would cost more than what it waits for."""
        link = self._links.standing(node)
        if link is None:
            self._tasks.start(self._reach(node, request))
        else:
            self._ask(link, node, request)

    def stop(self) -> None:
        self._stopped = True
        self._tasks.stop()
        self._links.close()

    async def _reach(self, node: int, request: FetchRequest) -> None:
        try:
            link = await self._links.to(node)
        except LinkError as error:
            self._came(node, request, error)
        else:
            self._ask(link, node, request)

    def _ask(self, link: NodeLink, node: int, request: FetchRequest) -> None:
        link.fetch_then(
            request,
            self._name_of,
            partial(self._heard, node, request),
            max_wait_ms=self._max_wait_ms,
            min_bytes=self._min_bytes,
            deadline_s=(self._max_wait_ms + PATIENCE_MS) / 1000,
        )

    def _heard(self, node: int, request: FetchRequest, answer: FetchAnswer | LinkError) -> None:
        if self._stopped:
            return
        try:
            self._came(node, request, answer)
        except Exception as error:
            self._failed(error)

    def _came(self, node: int, request: FetchRequest, answer: FetchAnswer | LinkError) -> None:
        if isinstance(answer, LinkError):
            self._replicas.failed(node, request, self._now_ms())
            self._broke(node)
        else:
            self._replicas.answered(node, request, answer, self._now_ms())
        self._happened()
