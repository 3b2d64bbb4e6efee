"""Kafka's own admin client against three nodes: topics with copies, who leads, who has copies."""

from pathlib import Path

import pytest

from tests.interop.peers import java_story
from tests.support.cluster_nodes import running_cluster
from tests.support.zookeeper.servers import zookeeper, zookeeper_server

__all__ = ["zookeeper", "zookeeper_server"]

pytestmark = pytest.mark.timeout(180)


def test_kafkas_admin_client_places_moves_and_elects(zookeeper: str, tmp_path: Path) -> None:
    with running_cluster(tmp_path, zookeeper) as cluster:
        assert java_story("ClusterTools", cluster.kafka_address) == [
            "copies 3 2",
            "spread done",
            "hand done",
            "four InvalidReplicationFactorException",
            "nobody InvalidReplicaAssignmentException",
            "grow done",
            "hand {0=[1, 2], 1=[2, 3], 2=[3, 1]}",
            "move done",
            "hand {0=[3, 2], 1=[2, 3], 2=[3, 1]}",
            "cancel NoReassignmentInProgressException",
            "nowhere InvalidReplicaAssignmentException",
            "elect ElectionNotNeededException",
            "unclean ElectionNotNeededException",
            "unknown UnknownTopicOrPartitionException",
            "rate done",
            "rate 1000000 DYNAMIC_BROKER_CONFIG",
            "delete done",
            "topics [spread]",
        ], cluster.log_tail()
