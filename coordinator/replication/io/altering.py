"""AlterPartition: what the leaders on this node ask of the controller about who is in sync (CL-L5, CL-D6)."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io.background_tasks import SupervisedTasks, TaskFailed
from muster.coordinator.replication.io.wire.links import NodeLinks
from muster.coordinator.replication.io.wire.reaching import LinkError
from muster.coordinator.replication.protocol.controller.effects import AlterPartitionResult
from muster.coordinator.replication.protocol.controller.events import IsrItem, IsrMember
from muster.coordinator.replication.protocol.image import ClusterImage
from muster.coordinator.replication.protocol.in_sync import RETRY_MS, IsrAnswer, IsrProposal
from muster.coordinator.replication.protocol.replicas import NodeReplicas

ALTER_DEADLINE_S: Final = 2.0
NO_ANSWER = IsrAnswer(ErrorCode.REQUEST_TIMED_OUT)


class AlterPartitionClient:
    """Asks one controller, all questions that come up together in one request."""

    def __init__(
        self,
        replicas: NodeReplicas,
        image: ClusterImage,
        links: NodeLinks,
        controller: Callable[[], int | None],
        *,
        now_ms: Callable[[], int],
        happened: Callable[[], None],
        failed: TaskFailed,
    ) -> None:
        self._replicas = replicas
        self._image = image
        self._links = links
        self._controller = controller
        self._now_ms = now_ms
        self._happened = happened
        self._tasks = SupervisedTasks(failed)

    def ask(self, questions: Sequence[IsrProposal]) -> None:
        self._tasks.start(self._ask(questions))

    def stop(self) -> None:
        self._tasks.stop()
        self._links.close()

    async def _ask(self, questions: Sequence[IsrProposal]) -> None:
        items = {question: item for question in questions if (item := self._item(question)) is not None}
        answered = await self._answered(tuple(items.values()))
        found = {(result.topic_id, result.partition): result for result in answered.results}
        for question in questions:
            item = items.get(question)
            result = None if item is None else found.get((item.topic_id, item.partition))
            answer = NO_ANSWER
            if answered.error is not ErrorCode.NONE:
                answer = IsrAnswer(answered.error)
            elif result is not None and result.state is not None:
                state = result.state
                answer = IsrAnswer(result.error, state.leader_epoch, state.partition_epoch, state.isr)
            elif result is not None:
                answer = IsrAnswer(result.error)
            self._replicas.altered(question, answer, self._now_ms())
        self._happened()
        asyncio.get_running_loop().call_later(RETRY_MS / 1000, self._happened)

    async def _answered(self, items: tuple[IsrItem, ...]) -> AlterPartitionResult:
        controller = self._controller()
        if controller is None or not items:
            return AlterPartitionResult(NO_ANSWER.code)
        try:
            link = await self._links.to(controller)
            return await link.alter_partition(self._replicas.node_epoch, items, deadline_s=ALTER_DEADLINE_S)
        except LinkError:
            return AlterPartitionResult(NO_ANSWER.code)

    def _item(self, question: IsrProposal) -> IsrItem | None:
        topic = self._image.topics.get(question.unit.topic)
        if topic is None:
            return None
        members = tuple(IsrMember(*each) for each in question.isr)
        unit, epochs = question.unit, (question.leader_epoch, question.partition_epoch)
        return IsrItem(topic.topic_id, unit.partition, *epochs, members)
