"""What any node may write about topics and settings (CL-A1): made, grown, set, marked to be deleted. Each is one
multi."""

from collections.abc import Mapping
from dataclasses import replace as with_
from typing import Any, NamedTuple

from muster.coordinator.replication.protocol.facts import NO_EPOCH, ClusterTopic
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.cluster.writing import MultiStep, put_step
from muster.coordinator.zookeeper.errors import BadVersion, NodeExists, NoNode
from muster.coordinator.zookeeper.session import ZooKeeperSession

TOPIC_STEP = 0
"""Of what makes a topic."""


class StoredConfigs(NamedTuple):
    """What is set for a topic or a node. version: of its znode; NO_EPOCH where there is none."""

    values: Mapping[str, str]
    version: int = NO_EPOCH


async def create_topic(session: ZooKeeperSession, topic: ClusterTopic) -> bool:
    """Make it with its settings; False where there is one of that name. Raises ConnectionLost, SessionExpired."""
    config = paths.topic_config_path(topic.name)
    while True:
        left = await session.exists(config)  # of a topic that was removed by hand
        steps = [MultiStep("create", paths.topic_path(topic.name), cluster_layout.topic_json(topic))]
        if topic.configs:
            steps.append(MultiStep("set" if left else "create", config, cluster_layout.config_json(topic.configs)))
        elif left:
            steps.append(MultiStep("delete", config))
        try:
            await commit_steps(session, steps)
        except (NodeExists, NoNode) as error:
            if error.step == TOPIC_STEP:
                return False
            continue  # its settings came or went meanwhile
        return True


async def fetch_topic(session: ZooKeeperSession, name: str) -> ClusterTopic | None:
    """As it is written, without settings. Raises MalformedZnode, ConnectionLost, SessionExpired."""
    path = paths.topic_path(name)
    found = await session.get(path)
    return None if found is None else with_(cluster_layout.read_topic(path, found.data), version=found.version)


async def put_topic(session: ZooKeeperSession, topic: ClusterTopic) -> bool:
    """Its assignments as they are to be; False where it was changed since it was read."""
    try:
        await session.put(paths.topic_path(topic.name), cluster_layout.topic_json(topic), topic.version)
    except (BadVersion, NoNode):
        return False
    return True


async def fetch_configs(session: ZooKeeperSession, kind: str, name: str) -> StoredConfigs:
    """kind: `topics` or `brokers`. Raises MalformedZnode, ConnectionLost, SessionExpired."""
    path = f"/config/{kind}/{name}"
    found = await session.get(path)
    return (
        StoredConfigs({})
        if found is None
        else StoredConfigs(cluster_layout.read_config(path, found.data), found.version)
    )


async def put_configs(session: ZooKeeperSession, kind: str, name: str, configs: StoredConfigs) -> bool:
    """Set these, and say that they have changed; False where others were faster, or the topic is gone."""

    def build(together: Any) -> None:
        if kind == "topics":
            together.check(paths.topic_path(name), -1)
        put_step(f"/config/{kind}/{name}", cluster_layout.config_json(configs.values), configs.version).put_on(together)
        together.create(
            cluster_layout.CONFIG_CHANGE, cluster_layout.config_change_json(f"{kind}/{name}"), sequence=True
        )

    try:
        await session.commit(build)
    except (BadVersion, NoNode, NodeExists):
        return False
    return True


async def mark_to_delete(session: ZooKeeperSession, topic: ClusterTopic) -> bool:
    """For the controller (CL-A3); False where it was changed since it was read. Raises ConnectionLost,
    SessionExpired."""
    steps = [MultiStep("check", paths.topic_path(topic.name), version=topic.version)]
    try:
        await commit_steps(session, [*steps, MultiStep("create", paths.topic_deletion_path(topic.name))])
    except NodeExists:
        return True
    except (BadVersion, NoNode):
        return False
    return True


async def commit_steps(session: ZooKeeperSession, steps: list[MultiStep]) -> None:
    await session.commit(lambda together: [step.put_on(together) for step in steps])
