"""The topics of nodes that make no cluster, in ZooKeeper: what a node publishes, and what tools of that era ask for.

A node's log is the truth about its topics; `/brokers/topics` and `/config/topics` show them. `kafka-topics --zookeeper`
and `kafka-configs --zookeeper` write there as if it were the truth: a topic or partitions with this node as replica, a
marker in `/admin/delete_topics`, settings with a notice in `/config/changes`. `PublishedTopics` carries such requests
out in the log, then publishes the result. What it refuses is logged and undone in ZooKeeper.

What the node publishes has a mark of its own (`layout.read_own_id`). A topic that the log does not have was deleted
here while ZooKeeper was away if it has the mark; otherwise a tool has created it.
"""

from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

import structlog

from muster.coordinator.zookeeper import layout
from muster.coordinator.zookeeper.consumer_group import gather_bounded
from muster.coordinator.zookeeper.errors import MalformedZnode, NoNode, NotEmpty, ZooKeeperError
from muster.coordinator.zookeeper.session import WatchEvent, ZooKeeperSession

log = structlog.get_logger("muster.zookeeper")

# Watched topics
# --------------

ReplicaAssignment = dict[int, tuple[int, ...]]
"""Partition -> the ids of its replicas."""


class TopicsWatch:
    """`changed` is called, on the loop, when `read` would give something else."""

    def __init__(self, session: ZooKeeperSession, changed: Callable[[], None]) -> None:
        self._session = session
        self._changed = changed
        self._known: dict[str, ReplicaAssignment | None] = {}
        self._suspect: set[str] = set()
        self.made: dict[str, int] = {}
        """topic -> the transaction that made it: one that was deleted and made again has another"""
        self.own_ids: dict[str, str] = {}
        """topic -> the id under which a node on its own has published it; "" of one that another program wrote"""

    async def read(self) -> dict[str, ReplicaAssignment]:
        """All topics that can be read; the others are left out with a warning. Raises ZooKeeper's weather."""
        names = await self._session.children(layout.BROKER_TOPICS, self._list_fired) or []
        for name in self._known.keys() - set(names):
            del self._known[name]
            self.made.pop(name, None)
            self.own_ids.pop(name, None)
            self._suspect.discard(name)
        await gather_bounded(
            [name for name in names if name not in self._known or name in self._suspect], self._read_one
        )
        return {name: assignment for name, assignment in self._known.items() if assignment is not None}

    async def _read_one(self, name: str) -> None:
        path = layout.topic_path(name)
        self._suspect.discard(name)
        try:
            znode = await self._session.get(path, self._topic_fired)
        except ZooKeeperError:
            self._suspect.add(name)
            raise
        if znode is None:
            self._known.pop(name, None)  # gone meanwhile: the watch on the list says so
            return
        self.made[name] = znode.made
        self.own_ids[name] = layout.read_own_id(znode.data)
        try:
            self._known[name] = layout.read_topic(path, znode.data)
        except MalformedZnode as error:
            log.warning("a topic is left out", why=str(error))
            self._known[name] = None

    # kazoo tells watches apart by what they call, so these are methods.

    def _list_fired(self, fired: WatchEvent) -> None:
        self._note(fired)

    def _topic_fired(self, fired: WatchEvent) -> None:
        self._suspect.add(fired.path.rpartition("/")[2])
        self._note(fired)

    def _note(self, fired: WatchEvent) -> None:
        if fired.kind == "session":
            self._suspect.update(self._known)  # every watch went with the connection
        self._changed()


# Published topics
# ----------------

REASSIGN_PARTITIONS: Final = "/admin/reassign_partitions"
KAFKA_ACLS: Final = "/kafka-acl"
"""Where `kafka-acls --authorizer-properties zookeeper.connect` of that era writes."""


class ForeignAclWatch:
    """Whether somebody has written access control lists into ZooKeeper, where no node applies them."""

    def __init__(self, session: ZooKeeperSession, changed: Callable[[], None]) -> None:
        """changed: called when `look` should be called again."""
        self._session = session
        self._changed = changed
        self._told = False

    async def look(self) -> None:
        """Warn of them, once. Raises ZooKeeper's weather."""
        if not self._told and await self._session.exists(KAFKA_ACLS, self._fired):
            self._told = True
            why = "rights are set over Kafka's protocol, or with muster acls"
            log.warning("access control lists in ZooKeeper are not applied", path=KAFKA_ACLS, why=why)

    def _fired(self, fired: WatchEvent) -> None:
        self._changed()


class OwnTopic(NamedTuple):
    """A topic of this node's log. `configs`: only what was set for it."""

    partitions: int
    topic_id: str
    configs: Mapping[str, str]


class OwnTopics(Protocol):
    """The topics of this node's log, and how to change them. A change returns "", or why it was refused."""

    def topics(self) -> Mapping[str, OwnTopic]:
        """All but internal ones."""

    async def create(self, name: str, partitions: int, configs: Mapping[str, str]) -> str: ...

    async def grow(self, name: str, partitions: int) -> str: ...

    async def configure(self, name: str, configs: Mapping[str, str]) -> str:
        """Exactly these settings from now on."""

    async def delete(self, name: str) -> str: ...


class PublishedTopics:
    """`reconcile` makes log and ZooKeeper agree; `changed` is called when it should be called again."""

    def __init__(self, session: ZooKeeperSession, broker_id: int, own: OwnTopics, changed: Callable[[], None]) -> None:
        self._session = session
        self._broker_id = broker_id
        self._own = own
        self._changed = changed
        self._watch = TopicsWatch(session, changed)
        self._settings: dict[str, Mapping[str, str]] | None = None
        """What `/config/topics` says; None while that is not known"""
        self._foreign: set[str] = set()
        self._elsewhere: dict[str, ReplicaAssignment] | None = None
        self._told: set[str] = set()
        self._foreign_acls = ForeignAclWatch(session, changed)

    def has_elsewhere(self, topic: str) -> bool:
        """Whether another broker has published a topic of this name, as last read; True until that was read once."""
        if self._elsewhere is None:
            return True
        if topic in self._elsewhere and topic not in self._told:
            self._told.add(topic)
            brokers = sorted(brokers_of(self._elsewhere[topic]))
            log.warning("a topic of another broker was requested; it is not created here", topic=topic, brokers=brokers)
        return topic in self._elsewhere

    def forget_settings(self) -> None:
        """ZooKeeper was away: what it says of settings is read again."""
        self._settings = None

    async def reconcile(self) -> None:
        """Carry out what tools ask for, then publish what this node has; topics of other brokers are left alone.
        Raises ZooKeeper's weather."""
        published = await self._watch.read()
        mine = {name for name, found in published.items() if self._owns(found)}
        self._elsewhere = {name: found for name, found in published.items() if name not in mine}
        self._told &= self._elsewhere.keys()
        await self._delete_marked(published, mine)
        await self._create_and_grow(published, mine)
        await self._configure_changed(mine)
        await self._drop_reassignments()
        await self._foreign_acls.look()
        await self._publish(published, mine)

    # -- requests of tools ----------------------------------------------------------------------------------------

    async def _delete_marked(self, published: Mapping[str, ReplicaAssignment], mine: set[str]) -> None:
        for name in await self._session.children(layout.DELETE_TOPICS, self._fired) or ():
            if name in published and name not in mine:
                continue  # for another broker
            if name in mine:
                if name in self._own.topics():
                    self._note(await self._own.delete(name), "delete", topic=name)
                if name not in self._own.topics():
                    await self._unpublish(name)
                    mine.discard(name)
            await self._session.delete(layout.topic_deletion_path(name))

    async def _create_and_grow(self, published: Mapping[str, ReplicaAssignment], mine: set[str]) -> None:
        own = self._own.topics()
        for name in sorted(mine):
            wanted = published[name]
            if name in own:
                if len(wanted) > own[name].partitions and self._watch.own_ids.get(name) in ("", own[name].topic_id):
                    self._note(await self._own.grow(name, len(wanted)), "grow", topic=name, partitions=len(wanted))
                    self._warn_of_spread(name, wanted)
                continue
            configs = None if self._watch.own_ids.get(name) else await self._settings_of_new(name)
            if configs is not None:
                why = await self._own.create(name, len(wanted), configs)
                self._note(why, "create", topic=name, partitions=len(wanted), configs=configs)
                self._warn_of_spread(name, wanted)
            if name not in self._own.topics():
                await self._unpublish(name)
                mine.discard(name)

    async def _settings_of_new(self, name: str) -> Mapping[str, str] | None:
        """Tools write the settings before the topic, and always; None where there are none."""
        path = layout.topic_config_path(name)
        znode = await self._session.get(path)
        try:
            return None if znode is None else layout.read_config(path, znode.data)
        except MalformedZnode as error:
            log.warning("what a tool asked for was refused", request="create", topic=name, why=str(error))
            return None

    async def _configure_changed(self, mine: set[str]) -> None:
        for notice in await self._session.children(layout.CONFIG_CHANGES, self._fired) or ():
            path = f"{layout.CONFIG_CHANGES}/{notice}"
            znode = await self._session.get(path)
            if znode is None:
                continue
            try:
                entity = layout.read_config_change(path, znode.data)
                kind, _, name = entity.partition("/")
                if kind == "topics" and name in (self._elsewhere or ()):
                    continue  # for that broker
                if kind == "topics" and name in mine and name in self._own.topics():
                    configs = await self._settings_of_new(name) or {}
                    self._note(await self._own.configure(name, configs), "configure", topic=name, configs=configs)
                    self.forget_settings()
                else:
                    why = "only settings of this node's topics can be changed through ZooKeeper"
                    log.warning("what a tool asked for was refused", request="configure", entity=entity, why=why)
            except MalformedZnode as error:
                log.warning("what a tool asked for was refused", request="configure", why=str(error))
            await self._session.delete(path)

    async def _drop_reassignments(self) -> None:
        """Nodes that share no log have nothing to move or to elect; tools would wait for the znode to go."""
        for path in (layout.PREFERRED_REPLICA_ELECTION, REASSIGN_PARTITIONS):
            if await self._session.exists(path, self._fired):
                if path == REASSIGN_PARTITIONS:
                    why = "nodes that make no cluster share no log, so partitions cannot move between them"
                    log.warning("what a tool asked for was refused", request="reassign", why=why)
                await self._session.delete(path)

    def _note(self, refusal: str, request: str, **of: object) -> None:
        if refusal:
            log.warning("what a tool asked for was refused", request=request, **of, why=refusal)
        else:
            log.info("admin", action=request, door="zookeeper", **of)

    def _warn_of_spread(self, name: str, wanted: ReplicaAssignment) -> None:
        others = sorted(brokers_of(wanted) - {self._broker_id})
        if others and name in self._own.topics():
            why = "nodes that make no cluster share no log; the one with the first partition's first replica has it all"
            log.warning("a topic is on this node alone", topic=name, asked_for_too=others, why=why)

    # -- what this node has ---------------------------------------------------------------------------------------

    async def _publish(self, published: Mapping[str, ReplicaAssignment], mine: set[str]) -> None:
        own = self._own.topics()
        await self._publish_settings({name: own[name] for name in own if name in mine or name not in published})
        for name, topic in own.items():
            body = dict.fromkeys(range(topic.partitions), (self._broker_id,))
            path, data = layout.topic_path(name), layout.topic_json(body, topic.topic_id)
            if name not in published:
                await self._session.write(path, data)
            elif name in mine and (published[name] != body or self._watch.own_ids.get(name) != topic.topic_id):
                try:
                    await self._session.put(path, data)
                except NoNode:
                    self._changed()
        self._warn_of_foreign(own.keys() & (published.keys() - mine))

    async def _publish_settings(self, own: Mapping[str, OwnTopic]) -> None:
        if self._settings is None:
            there = set(await self._session.children(layout.CONFIG_TOPICS) or ())
            read = await gather_bounded([name for name in own if name in there], self._read_settings)
            self._settings = dict(read)
        for name, topic in own.items():
            if self._settings.get(name, {}) != topic.configs:
                await self._session.write(layout.topic_config_path(name), layout.config_json(topic.configs))
                self._settings[name] = dict(topic.configs)

    async def _read_settings(self, name: str) -> tuple[str, Mapping[str, str]]:
        path = layout.topic_config_path(name)
        znode = await self._session.get(path)
        try:
            return name, {} if znode is None else layout.read_config(path, znode.data)
        except MalformedZnode:
            return name, {"": "unreadable"}

    async def _unpublish(self, name: str) -> None:
        try:
            await self._session.delete_all(layout.topic_path(name))
        except NotEmpty:
            self._changed()  # the controller has just added to it: once more
        await self._session.delete(layout.topic_config_path(name))
        if self._settings is not None:
            self._settings.pop(name, None)

    def _owns(self, assignment: ReplicaAssignment) -> bool:
        """Whether a topic is this node's: all of it is where its first partition has its first replica."""
        return bool(assignment) and next(iter(assignment.values()))[:1] == (self._broker_id,)

    def _warn_of_foreign(self, names: set[str]) -> None:
        for name in sorted(names - self._foreign):
            log.warning("another broker has published a topic of this name; this node's is not published", topic=name)
        self._foreign = names

    def _fired(self, fired: WatchEvent) -> None:
        self._changed()


def brokers_of(assignment: ReplicaAssignment) -> set[int]:
    return {broker for replicas in assignment.values() for broker in replicas}
