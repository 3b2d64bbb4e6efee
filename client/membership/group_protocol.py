"""Chooses a consumer's membership by `group.protocol`, and implements the one with a coordinator: classic and KIP-848.

The ZooKeeper implementation is imported only when it is asked for: it needs kazoo.
"""

from collections.abc import Callable, Sequence

from muster.assignors.registry import resolve_all
from muster.client.calls.group_calls import GroupCalls
from muster.client.calls.topic_calls import PartitionCounts
from muster.client.calls.transport import Transport
from muster.client.config import ConsumerConfig
from muster.client.errors import IllegalState
from muster.client.members.consumer_member import RequestedSubscription
from muster.client.members.subscription import Subscriber
from muster.client.membership.central_membership import CentralJoining, ReportedPositions
from muster.client.membership.leader_planner import LeaderPlanner, shared_isolation
from muster.client.membership.member_driver import ClassicParticipation, ConsumerParticipation, MemberDriver
from muster.client.membership.ports import GroupJoining, Interest, Wake
from muster.client.types import TopicPartition


def choose_joining(
    config: ConsumerConfig, transport: Transport, catalog: PartitionCounts, positions: Callable[[], ReportedPositions]
) -> GroupJoining:
    """The way that this consumer's properties ask for. Raises ConfigError for assignors nobody knows.

    `positions` tells what the consumer has done; it is asked once there is a membership.
    """
    if config.group_protocol == "zookeeper":
        # Nobody else needs kazoo, nor what is built on it.
        from muster.client.membership.zookeeper_membership import ZookeeperJoining

        return ZookeeperJoining(config, transport)
    if config.group_protocol == "central":
        return CentralJoining(config, transport, positions)
    return CoordinatedJoining(config, transport, catalog)


class CoordinatedJoining:
    """Through the group's coordinator: the members plan (classic), or it does (consumer)."""

    def __init__(self, config: ConsumerConfig, transport: Transport, catalog: PartitionCounts) -> None:
        self.store = GroupCalls(transport, config.group_id) if config.group_id is not None else None
        self.resolves_patterns = config.group_protocol == "consumer"
        self.reports_positions = False
        self._config = config
        self._transport = transport
        self._catalog = catalog
        self._assignors = resolve_all(config.partition_assignment_strategy)

    async def open(self) -> None:
        """Nothing to do: bootstrap.servers says where to begin."""

    def membership(self, interest: Interest, wake: Wake) -> MemberDriver:
        calls = self._calls
        part: ClassicParticipation | ConsumerParticipation
        if self._config.group_protocol == "consumer":
            part = ConsumerParticipation(
                RequestedSubscription(interest.topics, interest.regex, self._config.group_remote_assignor or "")
            )
        else:
            planner = LeaderPlanner(
                self._assignors,
                self._catalog.fetch,
                self._measure_lags,
                self._config.partition_assignment_deadline_ms,
                self._config.partition_assignment_options,
                calls.recall_moves,
                shared_isolation(self._config.partition_assignment_isolation),
            )
            part = ClassicParticipation(Subscriber(interest.topics, self._assignors, self._config.client_rack), planner)
        return MemberDriver(self._transport, calls, self._config, part, wake)

    async def close(self) -> None:
        """Nothing of its own is open."""

    @property
    def _calls(self) -> GroupCalls:
        if self.store is None:
            raise IllegalState("subscribe() needs a group.id; without a group use assign([(topic, partition), ...])")
        return self.store

    async def _measure_lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        positions = await self._calls.positions(partitions)
        return {tp: position.lag(self._config.auto_offset_reset) for tp, position in positions.items()}
