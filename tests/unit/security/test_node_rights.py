"""Who is one of the nodes of a cluster: super users, and who has CLUSTER_ACTION on CLUSTER."""

import asyncio
from pathlib import Path

from muster.coordinator.config import load_settings
from muster.coordinator.security.access_model import (
    CLUSTER_NAME,
    UNAUTHENTICATED,
    Acl,
    Identity,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    parse_principal,
)
from muster.coordinator.server.security.node_security import NodeSecurity
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker


def who(name: str) -> Identity:
    return Identity(parse_principal(name), "10.0.0.1")


def test_super_users_are_before_anything_is_read_and_others_by_a_list(tmp_path: Path) -> None:
    settings = load_settings(None, {"authorizer": "acl", "super.users": "User:CN=node-1"})
    broker = Broker(tmp_path / "data")

    async def story() -> None:
        security = NodeSecurity(settings, broker.topics, SecurityStore(broker), alone=True)
        assert security.may_act_as_node(who("User:CN=node-1"))
        for other in (who("User:CN=node-2"), who("User:alice"), UNAUTHENTICATED):
            assert not security.may_act_as_node(other)
        security.load()
        entry = Acl(
            ResourceType.CLUSTER,
            PatternType.LITERAL,
            CLUSTER_NAME,
            "User:CN=node-2",
            "*",
            Operation.CLUSTER_ACTION,
            Permission.ALLOW,
        )
        await security.acls.create([entry])
        assert security.may_act_as_node(who("User:CN=node-2"))
        assert not security.may_act_as_node(who("User:alice"))

    asyncio.run(story())
    broker.close()
