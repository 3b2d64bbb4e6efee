"""Quotas of a node, set by its own command and by Kafka's API, and what they do at both doors."""

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from muster.cli.main import main
from muster.client.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
from muster.client.errors import Refused, TopicExists, TransportRefused
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.server.node.node import CoordinatorNode
from tests.integration.conftest import Run
from tests.support.grpc_node import serving
from tests.support.kafka.client import KafkaClient
from tests.support.logins import bearer, give_token

pytestmark = pytest.mark.integration
SECURED = {
    "authorizer": "acl",
    "super_users": "User:admin;User:ANONYMOUS",
    "allow_everyone_if_no_acl_found": "true",
    "kafka_listeners": "127.0.0.1:0",
}


class Place:
    def __init__(self, node: CoordinatorNode, admin: str, alice: str) -> None:
        self.node, self._tokens = node, {"admin": admin, "alice": alice}

    def properties(self, who: str) -> dict[str, Any]:
        return {"bootstrap.servers": f"127.0.0.1:{self.node.bound.port}", "token": self._tokens[who]}

    def command(self, *words: str) -> int:
        options = [f"--set={name}={value}" for name, value in self.properties("admin").items()]
        return main([*words, *options])


@asynccontextmanager
async def place(tmp_path: Path) -> AsyncIterator[Place]:
    async with serving(tmp_path, **SECURED) as node:
        security = node._security
        assert security is not None
        tokens = [
            dict(bearer(await give_token(security.store, number, f"User:{name}")))["authorization"]
            for number, name in enumerate(("admin", "alice"), 1)
        ]
        yield Place(node, *tokens)


def test_quotas_are_set_listed_and_removed_by_both_doors(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async def story() -> None:
        async with place(tmp_path) as here:
            say = asyncio.to_thread
            assert await say(here.command, "quotas", "set", "--user", "alice", "producer_byte_rate=1024") == 0
            assert (
                await say(here.command, "quotas", "set", "--user-default", "--client-id", "c", "request_percentage=0.5")
                == 0
            )
            assert await say(here.command, "quotas", "set", "--user", "alice", "producer_byte_rate=0") == 2
            assert await say(here.command, "quotas", "set", "--ip", "nowhere", "connection_creation_rate=5") == 2
            assert await say(here.command, "quotas", "list", "-o", "csv") == 0
            assert here.node.kafka_bound is not None
            async with KafkaClient(*here.node.kafka_bound) as kafka:
                answer = await kafka.ask("DescribeClientQuotas", 1, components=[], strict=False)
                found = {
                    tuple((part.entity_type, part.entity_name) for part in entry.entity): {
                        value.key: value.value for value in entry.values
                    }
                    for entry in answer.entries
                }
                assert found == {
                    (("client-id", "c"), ("user", None)): {"request_percentage": 0.5},
                    (("user", "alice"),): {"producer_byte_rate": 1024.0},
                }
                path = "AlterClientQuotasRequest.entries"
                part = struct(f"{path}.entity")(entity_type="user", entity_name="alice")
                ops = [
                    struct(f"{path}.ops")(key="producer_byte_rate", remove=True),
                    struct(f"{path}.ops")(key="consumer_byte_rate", value=10.0),
                ]
                wrong = struct(f"{path}.ops")(key="nonsense", value=10.0)
                entries = [struct(path)(entity=[part], ops=ops), struct(path)(entity=[], ops=[wrong])]
                told = await kafka.ask("AlterClientQuotas", 1, entries=entries)
                assert [entry.error_code for entry in told.entries] == [0, 42]
            async with AsyncAdmin(here.properties("admin")) as admin:
                assert await admin.quotas({"user": "alice"}) == [({"user": "alice"}, {"consumer_byte_rate": 10.0})]
                assert await admin.quotas(any_of=["user"], strict=True) == await admin.quotas({"user": "alice"})
                with pytest.raises(Refused, match="entity type 'host' is not known"):
                    await admin.quotas({"host": "x"})
            assert await say(here.command, "quotas", "remove", "--user", "alice") == 0
            async with AsyncAdmin(here.properties("admin")) as admin:
                assert len(await admin.quotas()) == 1

    run(story)
    out, err = capsys.readouterr()
    assert re.search("<default>,c,-?,request_percentage,0.5,", out)
    assert "removed consumer_byte_rate of user alice" in err


def test_a_node_that_asks_nobody_keeps_no_quotas_and_says_so(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with serving(tmp_path, kafka_listeners="127.0.0.1:0") as node:
            assert node.kafka_bound is not None
            async with KafkaClient(*node.kafka_bound) as kafka:
                answer = await kafka.ask("DescribeClientQuotas", 0, components=[], strict=False)
                assert (answer.error_code, answer.entries) == (54, None)
                assert "authorizer=acl" in answer.error_message
            async with AsyncAdmin(bootstrap_servers=f"127.0.0.1:{node.bound.port}") as admin:
                with pytest.raises(TransportRefused, match="UNIMPLEMENTED"):
                    await admin.quotas()

    run(story)


def test_who_produces_over_its_quota_by_grpc_waits_and_its_member_stays(run: Run, tmp_path: Path) -> None:
    """What alice sends next waits; her consumer's session does not run out in it, and nobody else waits."""

    async def story() -> None:
        async with place(tmp_path) as here:
            async with AsyncAdmin(here.properties("admin")) as admin:
                await admin.create_topic("t", 1)
                await admin.alter_quotas({"user": "alice"}, {"producer_byte_rate": 100_000})
            security = here.node._security
            assert security is not None
            async with (
                AsyncConsumer(
                    here.properties("alice"), group_id="g", group_membership="poll", auto_offset_reset="earliest"
                ) as consumer,
                AsyncProducer(here.properties("alice"), linger_ms=0) as producer,
            ):
                await consumer.subscribe("t")
                await consumer.poll(1)
                for _ in range(2):
                    await producer.produce("t", value=bytes(600_000))
                    await producer.flush(30)
                assert security.quotas.throttled == {"producer_byte_rate": 1}
                assert security.quotas.throttled_s["alice"] > 0
                message = await consumer.poll(30)
                assert message is not None

    run(story)


def test_partitions_and_members_have_their_limits_by_grpc(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with place(tmp_path) as here:
            security = here.node._security
            assert security is not None
            async with AsyncAdmin(here.properties("admin")) as admin:
                await admin.alter_quotas({"user": "alice"}, {"controller_mutation_rate": 100, "group_count": 1})
            async with AsyncAdmin(here.properties("alice")) as alice:
                await alice.create_topic("t", 1_110)
                assert security.quotas.throttled == {"controller_mutation_rate": 1}
            async with (
                AsyncConsumer(here.properties("alice"), group_id="one") as one,
                AsyncConsumer(here.properties("alice"), group_id="two") as two,
            ):
                await one.subscribe("t")
                await one.poll(1)
                await two.subscribe("t")
                with pytest.raises(Refused, match="user alice has members in 1 groups"):
                    await two.poll(5)

    run(story)


def test_topics_are_counted_by_who_made_them_whatever_the_door_and_after_a_restart(run: Run, tmp_path: Path) -> None:
    async def story() -> None:
        async with place(tmp_path) as here:
            async with AsyncAdmin(here.properties("admin")) as admin:
                await admin.alter_quotas({"user": "alice"}, {"topic_count": 2})
                await admin.alter_quotas({"user": "ANONYMOUS"}, {"topic_count": 1})
            async with AsyncAdmin(here.properties("alice")) as alice:
                await alice.create_topic("a")
                await alice.create_topic("b")
                with pytest.raises(Refused, match=r"POLICY_VIOLATION.*user alice has made as many topics"):
                    await alice.create_topic("c")
                with pytest.raises(TopicExists):
                    await alice.create_topic("a")
                await alice.delete_topics(["b"])
            async with AsyncAdmin(here.properties("admin")) as admin:
                await admin.create_topic("b")
                await admin.delete_topics(["b"])
                await admin.create_topic("b")
            async with AsyncAdmin(here.properties("alice")) as alice:
                await alice.create_topic("d")
            assert here.node.kafka_bound is not None
            async with KafkaClient(*here.node.kafka_bound) as kafka:
                made = struct("CreateTopicsRequest.topics")
                asked = [made(name=name, num_partitions=1, replication_factor=1) for name in ("k1", "a", "k2")]
                answer = await kafka.ask("CreateTopics", 7, topics=asked, timeout_ms=1_000)
                told = {topic.name: topic.error_code for topic in answer.topics}
                assert told == {"k1": 0, "a": 36, "k2": 44}
                wanted = [struct("MetadataRequest.topics")(name="asked-for")]
                asking = {"topics": wanted, "allow_auto_topic_creation": True}
                [unknown] = (await kafka.ask("Metadata", 9, **asking)).topics
                assert unknown.error_code == 3, "what is made by asking for it counts, too"
                async with AsyncAdmin(here.properties("admin")) as admin:
                    await admin.alter_quotas({"user": "ANONYMOUS"}, {"topic_count": 2})
                [found] = (await kafka.ask("Metadata", 9, **asking)).topics
                assert found.error_code == 0
                answer = await kafka.ask("CreateTopics", 7, topics=[asked[2]], timeout_ms=1_000)
                assert [topic.error_code for topic in answer.topics] == [44]
        async with place(tmp_path) as here, AsyncAdmin(here.properties("alice")) as alice:
            assert set(await alice.list_topics()) == {"a", "b", "d", "k1", "asked-for"}
            with pytest.raises(Refused, match="POLICY_VIOLATION"):
                await alice.create_topic("e")

    run(story)
