"""The admin client: topics, groups, offsets, and why a group rebalanced."""

from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

from assignors.api import JsonValue, Snapshot
from coordinator.client.aio.admin import Admin as AsyncAdmin
from coordinator.client.described import (
    GroupDescription,
    GroupListing,
    GroupSettings,
    NodeCondition,
    PartitionLag,
    TopicDescription,
)
from coordinator.client.loop import shared_loop
from coordinator.client.types import OffsetAndMetadata, OffsetAndTimestamp, TopicPartition
from coordinator.rpc.v1.coordinator_service_pb2 import WatchGroupResponse
from coordinator.rpc.v1.ledger_pb2 import NodeStall, Rebalance

if TYPE_CHECKING:
    from coordinator.client.zookeeper_migration import MovedOffset

T = TypeVar("T")


class Admin:
    """Everything an operator may ask or change. Refusals are typed errors that name the topic or group.

    Safe to share between threads.
    """

    def __init__(self, config: Mapping[str, Any] | None = None, **properties: Any) -> None:
        self._admin = AsyncAdmin(config, **properties)
        self._loop = shared_loop()

    def nodes(self) -> dict[str, int]:
        """Node ids by the address at which each is reached."""
        return self._run(self._admin.nodes())

    def conditions(self) -> list[NodeCondition]:
        """What is wrong with the node at the moment; nothing where all is well, or it is too old to say."""
        return self._run(self._admin.conditions())

    def zookeeper_away(self) -> bool:
        """Whether the node works beside a ZooKeeper that it cannot reach: then what it says of groups there is old."""
        return self._run(self._admin.zookeeper_away())

    def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, validate_only: bool = False
    ) -> TopicDescription:
        """TopicExists when there is one of that name already."""
        return self._run(self._admin.create_topic(name, partitions, configs, validate_only))

    def delete_topics(self, names: Iterable[str]) -> None:
        """UnknownTopic for the first that does not exist; the others are deleted."""
        self._run(self._admin.delete_topics(names))

    def create_partitions(self, name: str, total: int) -> int:
        """Grow a topic to `total` partitions; keys go to other partitions from then on."""
        return self._run(self._admin.create_partitions(name, total))

    def list_topics(self, include_internal: bool = False) -> dict[str, int]:
        """Partition counts by name."""
        return self._run(self._admin.list_topics(include_internal))

    def describe_topic(self, name: str) -> TopicDescription:
        """With every setting that applies to it."""
        return self._run(self._admin.describe_topic(name))

    def alter_topic(
        self, name: str, configs: Mapping[str, str], unset: Iterable[str] = (), validate_only: bool = False
    ) -> None:
        """Give a topic other settings; those in `unset` go back to the node's. The others stay."""
        self._run(self._admin.alter_topic(name, configs, unset, validate_only))

    def describe_node(self) -> dict[str, str]:
        """What the node runs with, by the dotted names of its settings."""
        return self._run(self._admin.describe_node())

    def describe_configs(self, topic: str) -> dict[str, str]:
        """What holds for a topic, by the dotted names of Kafka's topic configs."""
        return self._run(self._admin.describe_configs(topic))

    def delete_records(self, before: Mapping[tuple[str, int], int]) -> dict[TopicPartition, int]:
        """Drop records below each offset (-1: all there are); the logs' new first offsets."""
        return self._run(self._admin.delete_records(before))

    def list_offsets(self, times: Mapping[tuple[str, int], int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        """The first offset at or after each time; -1 is the end, -2 the beginning."""
        return self._run(self._admin.list_offsets(times))

    def list_groups(self, states: Sequence[str] = (), types: Sequence[str] = ()) -> list[GroupListing]:
        return self._run(self._admin.list_groups(states, types))

    def describe_group(self, group: str) -> GroupDescription:
        """GroupNotFound when there is none."""
        return self._run(self._admin.describe_group(group))

    def delete_groups(self, groups: Iterable[str]) -> None:
        """GroupNotEmpty, GroupNotFound: the first refusal is raised after all were tried."""
        self._run(self._admin.delete_groups(groups))

    def remove_members(
        self, group: str, members: Iterable[str] | None = None, instances: Iterable[str] | None = None, reason: str = ""
    ) -> list[str]:
        """Remove members by id or by instance id; neither given means all of them. Returns who was removed."""
        return self._run(self._admin.remove_members(group, members, instances, reason))

    def group_settings(self, group: str) -> GroupSettings:
        """What an operator has set for the group; a group that nobody has heard of has nothing set."""
        return self._run(self._admin.group_settings(group))

    def alter_group_settings(
        self,
        group: str,
        set: Mapping[str, JsonValue] | None = None,
        unset: Iterable[str] = (),
        *,
        expected_version: int | None = None,
        validate_only: bool = False,
        reason: str = "",
    ) -> GroupSettings:
        """Change settings, all or none; with `expected_version` only if nobody has changed them since."""
        return self._run(
            self._admin.alter_group_settings(
                group, set, unset, expected_version=expected_version, validate_only=validate_only, reason=reason
            )
        )

    def group_offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Everything the group has committed."""
        return self._run(self._admin.group_offsets(group))

    def alter_offsets(self, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
        """Set positions of a group without members; with members, it is refused."""
        self._run(self._admin.alter_offsets(group, offsets))

    def delete_offsets(self, group: str, partitions: Iterable[tuple[str, int]]) -> None:
        """Forget positions of topics that no member of the group is subscribed to."""
        self._run(self._admin.delete_offsets(group, partitions))

    def migrate_offsets(
        self, group: str, to: Literal["kafka", "zookeeper"], zookeeper: str, dry_run: bool = False
    ) -> list["MovedOffset"]:
        """Copy the positions that the other store has and this one has not; `zookeeper` says where the ensemble is.

        GroupNotEmpty while members read that do not commit to both.
        """
        return self._run(self._admin.migrate_offsets(group, to, zookeeper, dry_run))

    def group_lag(self, group: str, *, include_zookeeper: bool = True) -> list[PartitionLag]:
        """How far behind the group is, for every partition it reads or has committed.

        Refused when the group keeps positions in a ZooKeeper that is away, unless these are left out.
        """
        return self._run(self._admin.group_lag(group, include_zookeeper=include_zookeeper))

    def explain(
        self, group: str, limit: int = 0, generation: int = 0, include_snapshots: bool = False
    ) -> list[Rebalance]:
        """What the ledger knows of the group's rebalances, newest first; 0 means all, and any."""
        return self._run(self._admin.explain(group, limit, generation, include_snapshots))

    def stalls(self, group: str, limit: int = 0) -> list[NodeStall]:
        """When the group's node stood still since the first of its last rebalances, newest first."""
        return self._run(self._admin.stalls(group, limit))

    def live_snapshot(self, group: str, reset: str = "latest") -> Snapshot:
        """The group as an assignor would see it now: members, what they own, lags of one moment. It must be stable."""
        return self._run(self._admin.live_snapshot(group, reset))

    def watch(self, group: str) -> Iterator[WatchGroupResponse]:
        """Every change of state, generation and plan, as it becomes durable; close the iterator to stop."""
        changes = self._admin.watch(group)
        try:
            while True:
                try:
                    yield self._run(next_of(changes))
                except StopAsyncIteration:
                    return
        finally:
            self._run(changes.aclose())  # type: ignore[attr-defined]

    def close(self) -> None:
        self._run(self._admin.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run(work)


async def next_of(changes: Any) -> Any:
    """`anext` as a coroutine, which is what another thread can submit."""
    return await anext(changes)
