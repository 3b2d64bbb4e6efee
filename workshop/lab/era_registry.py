"""What a consumer of the ZooKeeper era asks of the modelled ensemble, done as the real client does it."""

from muster.client.members import zookeeper_events as zk
from muster.client.members.types import Partitions, TopicPartition
from muster.client.members.zookeeper_types import ConsumerGroupView, GroupRegistration
from muster.workshop.lab.ensemble import EnsembleModel, ModelSession, ModelZnode

IDS, OWNERS, TOPICS, BROKERS = "/ids", "/owners", "/topics", "/brokers"


def owner_path(tp: TopicPartition) -> str:
    return f"{OWNERS}/{tp[0]}/{tp[1]}"


class ModelConsumerRegistry:
    """One consumer. `requests` counts what crossed the network, each with its answer."""

    def __init__(self, ensemble: EnsembleModel, name: str) -> None:
        self.ensemble = ensemble
        self.name = name
        self.requests = 0
        self._registrations = 0
        self._ids: list[str] = []

    def perform(
        self,
        session: ModelSession,
        action: zk.CreateRegistration | zk.ReadGroup | zk.ReleaseOwners | zk.ClaimOwners | zk.WithdrawConsumer,
    ) -> zk.ZookeeperAnswer:
        match action:
            case zk.CreateRegistration():
                return self._register(session, action)
            case zk.ReadGroup():
                return self._read(session, action)
            case zk.ClaimOwners():
                return self._claim(session, action)
            case zk.ReleaseOwners():
                self._give_back(session, action.partitions)
                return zk.OwnersReleased(action.token)
            case zk.WithdrawConsumer():
                self._give_back(session, action.partitions)
                self._unregister(session)
                return zk.ConsumerWithdrawn(action.token)

    def _register(self, session: ModelSession, action: zk.CreateRegistration) -> zk.ZookeeperAnswer:
        self._unregister(session)
        self._registrations += 1
        consumer_id = f"{self.name}.{self._registrations}"
        self._ids.append(consumer_id)
        self.requests += 1
        self.ensemble.create(session, f"{IDS}/{consumer_id}", action.registration, ephemeral=True)
        return zk.ConsumerRegistered(action.token, consumer_id)

    def _read(self, session: ModelSession, action: zk.ReadGroup) -> zk.ZookeeperAnswer:
        if action.afresh:
            self.requests += 1
            self.ensemble.sync(session)
        server = self.ensemble.read(session)
        server.watch(f"{IDS}/", session, "members")
        server.watch(f"{BROKERS}/", session, "brokers")
        members = {each: registration(server.tree[f"{IDS}/{each}"]) for each in server.children(IDS)}
        topics = sorted({topic for each in members.values() for topic in each.subscription})
        counts: dict[str, int] = {}
        for topic in topics:
            server.watch(f"{TOPICS}/{topic}", session, "partitions")
            if (node := server.tree.get(f"{TOPICS}/{topic}")) is not None:
                counts[topic] = int(str(node.data))
        self.requests += 2 + len(members) + len(topics)
        brokers = tuple(int(each) for each in server.children(BROKERS))
        return zk.GroupRead(action.token, ConsumerGroupView(members, counts, brokers))

    def _claim(self, session: ModelSession, action: zk.ClaimOwners) -> zk.ZookeeperAnswer:
        conflicts: dict[TopicPartition, str] = {}
        newest = 0
        for tp in sorted(action.share):
            path = owner_path(tp)
            there = self.ensemble.create(session, path, action.consumer_id, ephemeral=True)
            # Whoever meets a node asks whose it is.
            self.requests += 1 if there is None else 2
            node: ModelZnode = there or self.ensemble.tree[path]
            if node.owner != session.id:
                conflicts[tp] = str(node.data)
            else:
                newest = max(newest, node.number)
        return zk.OwnersClaimed(action.token, conflicts, newest)

    def _give_back(self, session: ModelSession, partitions: Partitions) -> None:
        for tp in partitions:
            self.requests += 1
            if self._is_own(session, owner_path(tp)):
                self.requests += 1
                self.ensemble.delete(session, owner_path(tp))

    def _unregister(self, session: ModelSession) -> None:
        for consumer_id in self._ids:
            self.requests += 1
            if self._is_own(session, f"{IDS}/{consumer_id}"):
                self.requests += 1
                self.ensemble.delete(session, f"{IDS}/{consumer_id}")
        self._ids.clear()

    def _is_own(self, session: ModelSession, path: str) -> bool:
        node = self.ensemble.tree.get(path)
        return node is not None and node.owner == session.id


def registration(node: ModelZnode) -> GroupRegistration:
    assert isinstance(node.data, GroupRegistration), "only consumers register"
    return node.data
