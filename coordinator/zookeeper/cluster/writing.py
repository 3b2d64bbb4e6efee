"""A controller's decision as one multi (CL-Z5), and what became of it.

A multi checks the controller's epoch first, then does what was decided, and tells the cluster's version last. Znodes
that have to be made or to go along are looked up before, so that none is made by a controller whose time is over.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal, NamedTuple

from muster.coordinator.replication.protocol.controller import effects, events
from muster.coordinator.replication.protocol.controller.events import WriteFailure
from muster.coordinator.replication.protocol.facts import NO_EPOCH, ClusterTopic, TopicPartition
from muster.coordinator.zookeeper import layout as paths
from muster.coordinator.zookeeper.cluster import cluster_layout
from muster.coordinator.zookeeper.consumer import gather_bounded
from muster.coordinator.zookeeper.errors import ConnectionLost, SessionExpired, ZooKeeperError
from muster.coordinator.zookeeper.session import ZooKeeperSession

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

    async def write(self, write: effects.WriteMulti) -> events.MultiWritten | events.WriteFailed:
        """Never raises for ZooKeeper's weather: what is neither done nor refused is LOST, and may be done yet."""
        try:
            steps = await self._steps(write)
            await self._session.commit(lambda together: [step.put_on(together) for step in steps])
        except (ConnectionLost, SessionExpired):
            return events.WriteFailed(write.sequence, WriteFailure.LOST)
        except ZooKeeperError as error:
            failure = WriteFailure.EPOCH if error.step == EPOCH_STEP else WriteFailure.VERSION
            return events.WriteFailed(write.sequence, failure)
        return events.MultiWritten(write.sequence)

    async def _steps(self, write: effects.WriteMulti) -> list[MultiStep]:
        steps = [MultiStep("check", paths.CONTROLLER_EPOCH, version=write.epoch_version)]
        steps += await self._parents(write.operations)
        gone: set[str] = set()
        for each in write.operations:
            match each:
                case effects.PutPartitionState(place, state, at):
                    steps.append(put_step(paths.partition_state_path(*place), cluster_layout.state_json(state), at))
                case effects.PutTopicZnode(topic):
                    steps.append(
                        put_step(paths.topic_path(topic.name), cluster_layout.topic_json(topic), topic.version)
                    )
                case effects.CreateInternalTopic():
                    steps += await self._make(each)
                case effects.DeletePartitionState(place, at):
                    steps += await self._drop_state(place, at, gone)
                case effects.DeleteTopicZnode(name, at):
                    steps += await self._drop_topic(name, at, gone)
        version = cluster_layout.ClusterVersionZnode(write.epoch, write.sequence).to_json()
        steps.append(put_step(cluster_layout.CLUSTER_VERSION, version, write.cluster_version))
        return steps

    async def _parents(self, operations: Iterable[effects.WriteOperation]) -> list[MultiStep]:
        """The folders of states that are new, as far as they are not there. The topic's own znode is never made: one
        that was deleted meanwhile must not come back as an empty shell."""
        new: dict[str, list[int]] = {}
        for each in operations:
            if isinstance(each, effects.PutPartitionState) and each.at == NO_EPOCH:
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

    async def _make(self, wanted: effects.CreateInternalTopic) -> list[MultiStep]:
        topic = ClusterTopic(wanted.name, self._draw_id(), wanted.partitions)
        steps = [MultiStep("create", paths.topic_path(wanted.name), cluster_layout.topic_json(topic))]
        if configs := self._configs_of(wanted.name):
            path, body = paths.topic_config_path(wanted.name), cluster_layout.config_json(configs)
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
