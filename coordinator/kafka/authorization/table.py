"""Who judges which API. One without a row of rights, or without a judge, is not served."""

from collections.abc import Mapping
from typing import Final

from muster.coordinator.kafka.authorization.cluster import judge_describe_cluster, make_cluster_judge
from muster.coordinator.kafka.authorization.configs import judge_list_config_resources, make_resource_judge
from muster.coordinator.kafka.authorization.groups import (
    judge_consumer_group_describe,
    judge_delete_groups,
    judge_describe_groups,
    judge_find_coordinator,
    judge_list_groups,
)
from muster.coordinator.kafka.authorization.judging import Judge
from muster.coordinator.kafka.authorization.members import MemberJudge, judge_consumer_group_heartbeat, judge_join_group
from muster.coordinator.kafka.authorization.offsets import judge_offset_commit, judge_offset_delete, judge_offset_fetch
from muster.coordinator.kafka.authorization.records import (
    judge_fetch,
    judge_init_producer_id,
    judge_list_offsets,
    judge_offset_for_leader_epoch,
    judge_produce,
)
from muster.coordinator.kafka.authorization.topics import (
    judge_create_partitions,
    judge_create_topics,
    judge_delete_records,
    judge_delete_topics,
    judge_metadata,
)
from muster.coordinator.kafka.authorization.transactions import judge_add_offsets_to_txn, judge_txn_offset_commit
from muster.coordinator.security.rights import API_RIGHTS

JUDGES: Final[Mapping[str, Judge]] = {
    "Produce": judge_produce,
    "Fetch": judge_fetch,
    "ListOffsets": judge_list_offsets,
    "OffsetForLeaderEpoch": judge_offset_for_leader_epoch,
    "Metadata": judge_metadata,
    "OffsetCommit": judge_offset_commit,
    "OffsetFetch": judge_offset_fetch,
    "FindCoordinator": judge_find_coordinator,
    "JoinGroup": judge_join_group,
    "Heartbeat": MemberJudge("Heartbeat"),
    "LeaveGroup": MemberJudge("LeaveGroup"),
    "SyncGroup": MemberJudge("SyncGroup"),
    "DescribeGroups": judge_describe_groups,
    "ListGroups": judge_list_groups,
    "CreateTopics": judge_create_topics,
    "DeleteTopics": judge_delete_topics,
    "DeleteRecords": judge_delete_records,
    "InitProducerId": judge_init_producer_id,
    "AddOffsetsToTxn": judge_add_offsets_to_txn,
    "TxnOffsetCommit": judge_txn_offset_commit,
    "DescribeAcls": make_cluster_judge("DescribeAcls"),
    "CreateAcls": make_cluster_judge("CreateAcls"),
    "DeleteAcls": make_cluster_judge("DeleteAcls"),
    "DescribeConfigs": make_resource_judge("DescribeConfigs", "results"),
    "AlterConfigs": make_resource_judge("AlterConfigs", "responses"),
    "CreatePartitions": judge_create_partitions,
    "DeleteGroups": judge_delete_groups,
    "IncrementalAlterConfigs": make_resource_judge("IncrementalAlterConfigs", "responses"),
    "OffsetDelete": judge_offset_delete,
    "DescribeClientQuotas": make_cluster_judge("DescribeClientQuotas"),
    "AlterClientQuotas": make_cluster_judge("AlterClientQuotas"),
    "DescribeUserScramCredentials": make_cluster_judge("DescribeUserScramCredentials"),
    "AlterUserScramCredentials": make_cluster_judge("AlterUserScramCredentials"),
    "ElectLeaders": make_cluster_judge("ElectLeaders"),
    "AlterPartitionReassignments": make_cluster_judge("AlterPartitionReassignments"),
    "ListPartitionReassignments": make_cluster_judge("ListPartitionReassignments"),
    "DescribeCluster": judge_describe_cluster,
    "ConsumerGroupHeartbeat": judge_consumer_group_heartbeat,
    "ConsumerGroupDescribe": judge_consumer_group_describe,
    "ListConfigResources": judge_list_config_resources,
}


def find_judge(api: str) -> Judge | None:
    """None for an API that everybody may ask. Raises LookupError for one that has no row, or no judge."""
    if api not in API_RIGHTS:
        raise LookupError(f"{api} has no row in the table of rights; coordinator/security/rights.py needs one")
    if not API_RIGHTS[api]:
        return None
    if api not in JUDGES:
        raise LookupError(f"{api} has rights but no judge; coordinator/kafka/authorization/table.py needs one")
    return JUDGES[api]
