"""All handlers of the group APIs as one object, for the dispatcher."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from muster.coordinator.edge.rights import UNRESTRICTED, TopicRightsSource
from muster.coordinator.kafka.handlers.classic_membership import MembershipHandlers
from muster.coordinator.kafka.handlers.committed_offsets import CommittedOffsetHandlers, ZooKeeperOffsets
from muster.coordinator.kafka.handlers.consumer_groups import ConsumerGroupHandlers
from muster.coordinator.kafka.handlers.group_requests import GroupDriver, GroupRequests
from muster.coordinator.kafka.handlers.metadata import AdvertisedEndpoint
from muster.coordinator.kafka.handlers.tools import GroupAdminHandlers

if TYPE_CHECKING:
    from muster.coordinator.edge.cluster import ClusterView


class GroupHandlers:
    """Members of both protocols, committed offsets and tools, over the same groups as the node's other door.

    `endpoint` is asked each time: the port is known only once the node listens. `partitions` gives the catalog's
    partition counts, `log_span` the first offset and the end of one partition; `elsewhere` are the groups of a
    ZooKeeper, if there is one; `rights_of` says what a member may read; `cluster` knows who
    coordinates which group where this node is one of many.
    """

    def __init__(
        self,
        driver: GroupDriver,
        *,
        shards: int,
        endpoint: Callable[[], AdvertisedEndpoint],
        partitions: Callable[[], Mapping[str, int]],
        log_span: Callable[[str, int], tuple[int, int]],
        elsewhere: ZooKeeperOffsets | None = None,
        rights_of: TopicRightsSource = UNRESTRICTED,
        cluster: "ClusterView | None" = None,
    ) -> None:
        groups = GroupRequests(driver, shards, rights_of)
        members = make_membership_handlers(groups, endpoint, cluster)
        self.find_coordinator = members.find_coordinator
        self.join_group_now, self.sync_group_now = members.join_group_now, members.sync_group_now
        self.leave_group_now, self.heartbeat_now = members.leave_group_now, members.heartbeat_now
        offsets = CommittedOffsetHandlers(groups, partitions, log_span, elsewhere)
        self.offset_commit_now, self.offset_commit_reader = offsets.offset_commit_now, offsets.offset_commit_reader
        self.offset_fetch, self.offset_delete = offsets.offset_fetch, offsets.offset_delete
        tools = GroupAdminHandlers(groups)
        self.list_groups, self.describe_groups = tools.list_groups, tools.describe_groups
        self.delete_groups = tools.delete_groups
        consumers = ConsumerGroupHandlers(groups)
        self.consumer_group_heartbeat = consumers.consumer_group_heartbeat
        self.consumer_group_describe = consumers.consumer_group_describe


def make_membership_handlers(
    groups: GroupRequests, endpoint: Callable[[], AdvertisedEndpoint], cluster: "ClusterView | None"
) -> MembershipHandlers:
    if cluster is None:
        return MembershipHandlers(groups, endpoint)
    from muster.coordinator.kafka.handlers.members import ClusterMembers

    return ClusterMembers(groups, endpoint, cluster)
