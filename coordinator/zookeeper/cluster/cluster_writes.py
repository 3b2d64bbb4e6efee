"""Writes a cluster's znodes: the controller's decisions, and what any node may write about topics and settings.

A controller's decision is one multi (CL-Z5): it checks the controller's epoch first, then does what was decided, and
writes the cluster's version last. Znodes that have to be created or deleted along with it are looked up before, so that
a superseded controller creates none.

Any node may create a topic, add partitions, change settings, or mark a topic for deletion (CL-A1); each is one multi.
Any node may leave a request for the controller, and mark nodes as drained.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace as with_
from typing import Any, Final, Literal, NamedTuple, TypeVar

from muster.coordinator.replication.protocol.cluster_metadata import NO_EPOCH, ClusterTopic, TopicPartition
from muster.coordinator.replication.protocol.controller import events_and_effects
from muster.coordinator.replication.protocol.controller.events_and_effects import WriteFailure
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.consumer_group import gather_bounded
from muster.coordinator.zookeeper.errors import (
    BadVersion,
    ConnectionLost,
    NodeExists,
    NoNode,
    SessionExpired,
    ZooKeeperError,
)
from muster.coordinator.zookeeper.session import WatchEvent, ZooKeeperSession

# The controller's decisions
# --------------------------

EPOCH_STEP = 0
"""Of every write: where it checks the controller's epoch."""


class MultiStep(NamedTuple):
    """One of a multi. version: what the znode has to have, -1 any."""

    verb: Literal["check", "create", "set", "delete"]
    path: str
    data: bytes = b""
    version: int = -1

    def put_on(self, together: Any) -> None:
        if self.verb == "check":
            together.check(self.path, self.version)
        elif self.verb == "create":
            together.create(self.path, self.data)
        elif self.verb == "set":
            together.set_data(self.path, self.data, self.version)
        else:
            together.delete(self.path, self.version)


class DecisionWriter:
    """Writes what the controller decides. draw_id: 16 bytes for a topic it makes; configs_of: what that topic sets."""

    def __init__(
        self, session: ZooKeeperSession, *, draw_id: Callable[[], bytes], configs_of: Callable[[str], Mapping[str, str]]
    ) -> None:
        self._session = session
        self._draw_id = draw_id
        self._configs_of = configs_of

    async def write(
        self, write: events_and_effects.WriteMulti
    ) -> events_and_effects.MultiWritten | events_and_effects.WriteFailed:
        """Never raises for ZooKeeper's weather: what is neither done nor refused is LOST, and may be done yet."""
        try:
            steps = await self._steps(write)
            await self._session.commit(lambda together: [step.put_on(together) for step in steps])
        except (ConnectionLost, SessionExpired):
            return events_and_effects.WriteFailed(write.sequence, WriteFailure.LOST)
        except ZooKeeperError as error:
            failure = WriteFailure.EPOCH if error.step == EPOCH_STEP else WriteFailure.VERSION
            return events_and_effects.WriteFailed(write.sequence, failure)
        return events_and_effects.MultiWritten(write.sequence)

    async def _steps(self, write: events_and_effects.WriteMulti) -> list[MultiStep]:
        steps = [MultiStep("check", paths.CONTROLLER_EPOCH, version=write.epoch_version)]
        steps += await self._parents(write.operations)
        gone: set[str] = set()
        for each in write.operations:
            match each:
                case events_and_effects.PutPartitionState(place, state, at):
                    steps.append(put_step(paths.partition_state_path(*place), cluster_layout.state_json(state), at))
                case events_and_effects.PutTopicZnode(topic):
                    topic = topic if topic.topic_id else with_(topic, topic_id=self._draw_id())
                    steps.append(
                        put_step(paths.topic_path(topic.name), cluster_layout.topic_json(topic), topic.version)
                    )
                case events_and_effects.CreateInternalTopic():
                    steps += await self._make(each)
                case events_and_effects.DeletePartitionState(place, at):
                    steps += await self._drop_state(place, at, gone)
                case events_and_effects.DeleteTopicZnode(name, at):
                    steps += await self._drop_topic(name, at, gone)
        version = cluster_layout.ClusterVersionZnode(write.epoch, write.sequence).to_json()
        steps.append(put_step(cluster_layout.CLUSTER_VERSION, version, write.cluster_version))
        return steps

    async def _parents(self, operations: Iterable[events_and_effects.WriteOperation]) -> list[MultiStep]:
        """The folders of states that are new, as far as they are not there. The topic's own znode is never made: one
        that was deleted meanwhile must not come back as an empty shell."""
        new: dict[str, list[int]] = {}
        for each in operations:
            if isinstance(each, events_and_effects.PutPartitionState) and each.at == NO_EPOCH:
                new.setdefault(each.place.topic, []).append(each.place.partition)
        steps = []
        for name, there in await gather_bounded(sorted(new), self._partitions):
            if there is None:
                steps.append(MultiStep("create", paths.topic_partitions_path(name)))
            missing = (number for number in new[name] if str(number) not in (there or ()))
            steps += [MultiStep("create", paths.partition_path(name, number)) for number in missing]
        return steps

    async def _partitions(self, name: str) -> tuple[str, frozenset[str] | None]:
        found = await self._session.children(paths.topic_partitions_path(name))
        return name, None if found is None else frozenset(found)

    async def _make(self, wanted: events_and_effects.CreateInternalTopic) -> list[MultiStep]:
        topic = ClusterTopic(wanted.name, self._draw_id(), wanted.partitions)
        steps = [MultiStep("create", paths.topic_path(wanted.name), cluster_layout.topic_json(topic))]
        if configs := self._configs_of(wanted.name):
            path, body = paths.topic_config_path(wanted.name), paths.config_json(configs)
            steps.append(MultiStep("set" if await self._session.exists(path) else "create", path, body))
        return steps

    async def _drop_state(self, place: TopicPartition, at: int, gone: set[str]) -> list[MultiStep]:
        path, folder = paths.partition_state_path(*place), paths.partition_path(*place)
        gone.add(path)
        steps = [MultiStep("delete", path, version=at), *await self._emptied(folder, gone), MultiStep("delete", folder)]
        gone.add(folder)
        return steps

    async def _drop_topic(self, name: str, at: int, gone: set[str]) -> list[MultiStep]:
        path = paths.topic_path(name)
        beside = [
            each
            for each in (paths.topic_config_path(name), paths.topic_deletion_path(name))
            if await self._session.exists(each)
        ]
        below = await self._emptied(path, gone)
        return [*below, MultiStep("delete", path, version=at), *(MultiStep("delete", each) for each in beside)]

    async def _emptied(self, path: str, gone: set[str]) -> list[MultiStep]:
        """What is below, deepest first, but for what goes already: a folder with something in it cannot be deleted."""
        steps: list[MultiStep] = []
        for name in await self._session.children(path) or ():
            below = f"{path}/{name}"
            if below not in gone:
                steps += [*await self._emptied(below, gone), MultiStep("delete", below)]
        return steps


def put_step(path: str, data: bytes, at: int) -> MultiStep:
    return MultiStep("create", path, data) if at == NO_EPOCH else MultiStep("set", path, data, at)


# Topics and settings, written by any node
# ----------------------------------------

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
            steps.append(MultiStep("set" if left else "create", config, paths.config_json(topic.configs)))
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
    return StoredConfigs({}) if found is None else StoredConfigs(paths.read_config(path, found.data), found.version)


async def put_configs(session: ZooKeeperSession, kind: str, name: str, configs: StoredConfigs) -> bool:
    """Set these, and say that they have changed; False where others were faster, or the topic is gone."""

    def build(together: Any) -> None:
        if kind == "topics":
            together.check(paths.topic_path(name), -1)
        put_step(f"/config/{kind}/{name}", paths.config_json(configs.values), configs.version).put_on(together)
        together.create(cluster_layout.CONFIG_CHANGE, paths.config_change_json(f"{kind}/{name}"), sequence=True)

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


# Requests to the controller
# --------------------------

AskedResult = TypeVar("AskedResult")

GRACE_S: Final = 1.0
"""For who looks at the deadline itself."""


async def within_deadline(
    session: ZooKeeperSession, deadline_s: float, ask: Callable[[], Awaitable[AskedResult]]
) -> AskedResult:
    """What comes of asking, which has its end soon after this moment of the loop's clock: a session that is out of
    touch neither answers nor fails, and what it was asked then is done when it is back, whoever has given up by then.
    So it is asked nothing before it is in touch. Raises ConnectionLost, and what `ask` raises."""
    try:
        async with asyncio.timeout_at(deadline_s):
            await session.connected()
        async with asyncio.timeout_at(deadline_s + GRACE_S):
            return await ask()
    except TimeoutError as error:
        raise ConnectionLost("it is out of reach") from error


async def leave_request(session: ZooKeeperSession, path: str, body: bytes, deadline_s: float) -> bool:
    """Put it there when what somebody left before has been taken; False if it still lies there at this moment of the
    loop's clock. One whose answer is lost counts as left: what comes of it will show. Raises SessionExpired."""
    while True:
        try:
            await session.create(path, body)
        except NodeExists:
            taken = asyncio.Event()

            def fired(it: WatchEvent, taken: asyncio.Event = taken) -> None:
                taken.set()

            if await session.exists(path, fired):
                try:
                    async with asyncio.timeout_at(deadline_s):
                        await taken.wait()
                except TimeoutError:
                    return False
        except ConnectionLost:
            return True
        else:
            return True


async def drained_nodes(session: ZooKeeperSession) -> frozenset[int]:
    """Raises ConnectionLost, SessionExpired."""
    names = await session.children(cluster_layout.DRAINED) or ()
    return frozenset(int(name) for name in names if paths.is_decimal(name))


async def set_drained(session: ZooKeeperSession, node_id: int, *, on: bool) -> None:
    """Whether a node is to lead nothing, for every controller from now on. Raises ConnectionLost, SessionExpired."""
    if on:
        await session.ensure(cluster_layout.drained_path(node_id))
    else:
        await session.delete(cluster_layout.drained_path(node_id))
