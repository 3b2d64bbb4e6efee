"""Who judges which API. One without a row of rights, or without a judge, is not served."""

from collections.abc import Mapping
from typing import Final

from muster.coordinator.kafka.rights.cluster import describe_cluster, of_cluster
from muster.coordinator.kafka.rights.configs import list_config_resources, of_resources
from muster.coordinator.kafka.rights.groups import (
    consumer_group_describe,
    delete_groups,
    describe_groups,
    find_coordinator,
    list_groups,
)
from muster.coordinator.kafka.rights.judging import Judge
from muster.coordinator.kafka.rights.members import OfMember, consumer_group_heartbeat, join_group
from muster.coordinator.kafka.rights.offsets import offset_commit, offset_delete, offset_fetch
from muster.coordinator.kafka.rights.records import (
    fetch,
    init_producer_id,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from muster.coordinator.kafka.rights.topics import (
    create_partitions,
    create_topics,
    delete_records,
    delete_topics,
    metadata,
)
from muster.coordinator.kafka.rights.transactions import add_offsets_to_txn, txn_offset_commit
from muster.coordinator.security.acl.rights import API_RIGHTS

JUDGES: Final[Mapping[str, Judge]] = {
    "Produce": produce,
    "Fetch": fetch,
    "ListOffsets": list_offsets,
    "OffsetForLeaderEpoch": offset_for_leader_epoch,
    "Metadata": metadata,
    "OffsetCommit": offset_commit,
    "OffsetFetch": offset_fetch,
    "FindCoordinator": find_coordinator,
    "JoinGroup": join_group,
    "Heartbeat": OfMember("Heartbeat"),
    "LeaveGroup": OfMember("LeaveGroup"),
    "SyncGroup": OfMember("SyncGroup"),
    "DescribeGroups": describe_groups,
    "ListGroups": list_groups,
    "CreateTopics": create_topics,
    "DeleteTopics": delete_topics,
    "DeleteRecords": delete_records,
    "InitProducerId": init_producer_id,
    "AddOffsetsToTxn": add_offsets_to_txn,
    "TxnOffsetCommit": txn_offset_commit,
    "DescribeAcls": of_cluster("DescribeAcls"),
    "CreateAcls": of_cluster("CreateAcls"),
    "DeleteAcls": of_cluster("DeleteAcls"),
    "DescribeConfigs": of_resources("DescribeConfigs", "results"),
    "AlterConfigs": of_resources("AlterConfigs", "responses"),
    "CreatePartitions": create_partitions,
    "DeleteGroups": delete_groups,
    "IncrementalAlterConfigs": of_resources("IncrementalAlterConfigs", "responses"),
    "OffsetDelete": offset_delete,
    "DescribeClientQuotas": of_cluster("DescribeClientQuotas"),
    "AlterClientQuotas": of_cluster("AlterClientQuotas"),
    "DescribeUserScramCredentials": of_cluster("DescribeUserScramCredentials"),
    "AlterUserScramCredentials": of_cluster("AlterUserScramCredentials"),
    "ElectLeaders": of_cluster("ElectLeaders"),
    "AlterPartitionReassignments": of_cluster("AlterPartitionReassignments"),
    "ListPartitionReassignments": of_cluster("ListPartitionReassignments"),
    "DescribeCluster": describe_cluster,
    "ConsumerGroupHeartbeat": consumer_group_heartbeat,
    "ConsumerGroupDescribe": consumer_group_describe,
    "ListConfigResources": list_config_resources,
}


def judge_of(api: str) -> Judge | None:
    """None for an API that everybody may ask. Raises LookupError for one that has no row, or no judge."""
    if api not in API_RIGHTS:
        raise LookupError(f"{api} has no row in the table of rights; coordinator/security/acl/rights.py needs one")
    if not API_RIGHTS[api]:
        return None
    if api not in JUDGES:
        raise LookupError(f"{api} has rights but no judge; coordinator/kafka/rights/table.py needs one")
    return JUDGES[api]
