"""Nodes of `sides.py` that share who may do what."""

import asyncio
from pathlib import Path

from muster.coordinator.replication.io.security_log import PLACE
from muster.coordinator.replication.protocol.cluster_metadata import SECURITY, ClusterTopic, ReplicaAssignment
from muster.coordinator.security.access_model import Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.server.cluster_backend.shared_security import SharedSecurityStore, security_follower_of
from muster.coordinator.server.security.accounts import UserAccounts
from muster.coordinator.server.security.acl_service import NodeAcls
from muster.coordinator.server.security.security_store import CONFIGS
from tests.support.sides import SideNode, Sides

ID = b"s" * 16


def acl(name: str, permission: Permission = Permission.DENY) -> Acl:
    return Acl(ResourceType.TOPIC, PatternType.LITERAL, name, "User:alice", "*", Operation.READ, permission)


class SecuredNode:
    """What a node knows of who may do what, in one life of it."""

    def __init__(self, node: SideNode) -> None:
        self.node = node
        self.store = SharedSecurityStore(node.broker)
        self.store.load()
        self.accounts = UserAccounts(self.store)
        self.acls = NodeAcls(self.store)
        self.failures: list[BaseException] = []
        self.store.on_change(node.side.happened.set)
        self.following = security_follower_of(node.side, node.broker)
        self.knowing = asyncio.create_task(self.store.know(self.following, self.failures.append, there=True))

    @property
    def names(self) -> set[str]:
        return {each.name for each in self.store.state.acls}


class SecuredSides:
    """Copies of `__security` are on the first three nodes."""

    def __init__(self, directory: Path, nodes: int = 3) -> None:
        self.sides = Sides(directory, nodes)
        self.secured: dict[int, SecuredNode] = {}

    async def __aenter__(self) -> "SecuredSides":
        await self.sides.__aenter__()
        for node in self.sides:
            self.secured[node.id] = SecuredNode(node)
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in self.secured.values():
            each.knowing.cancel()
            each.store.stop()
        await self.sides.__aexit__()

    async def known(self, **configs: str) -> None:
        """There is the topic, and all nodes know it."""
        self.make(**configs)
        for each in self.secured.values():
            await each.knowing

    def make(self, **configs: str) -> None:
        settings = {key.replace("_", "."): value for key, value in configs.items()}
        self.sides.standing.make(ClusterTopic(SECURITY, ID, (ReplicaAssignment((1, 2, 3)),), CONFIGS | settings))

    def __getitem__(self, node: int) -> SecuredNode:
        return self.secured[node]

    async def kill(self, node: int) -> None:
        each = self.secured.pop(node)
        each.store.stop()
        await self.sides.kill(each.node)

    async def start(self, node: int) -> SecuredNode:
        side = self.sides.nodes[node - 1]
        await self.sides.start(side)
        each = self.secured[node] = SecuredNode(side)
        return each

    async def leader(self) -> int:
        return (await self.sides.leader(PLACE)).id

    async def all_have(self, *names: str) -> None:
        await self.sides.until(lambda: all(each.names == set(names) for each in self.secured.values()))
