"""Settings by Kafka's tools through nodes over a Kafka: of Muster's groups and nodes here, of all else there
(KB-X12)."""

import asyncio
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from muster.client import Admin
from muster.coordinator.config import parse_address
from muster.coordinator.runtime.shards import partition_for
from tests.integration.kafka_backend.conftest import RealKafka
from tests.support.kafka.client import KafkaClient
from tests.support.kafka_backend.door import DoorNode
from tests.support.kafka_backend.secured import until
from tests.support.kafka_backend.served import SHARDS, make_topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

BASE: Final = 1_000_000
SETTING: Final = "consumer.session.timeout.ms"
TOPIC: Final = "settings"
RETENTION: Final = "retention.ms"
GROUPS: Final = [f"g{number}" for number in range(8)]
"""Of all shards, so of both nodes."""


@pytest.fixture(scope="module")
def nodes(real_kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, DoorNode]]:
    make_topics(real_kafka.address, {TOPIC: 1})
    assert {partition_for(group, SHARDS) for group in GROUPS} == {*range(SHARDS)}
    place: Path = tmp_path_factory.mktemp("settings")
    both = {number: DoorNode(real_kafka.address, "settings", number, place) for number in (1, 2)}
    with ExitStack() as stack:
        for node in both.values():
            stack.callback(node.stop)
            node.start()
        yield both


def described(admin: AdminClient, *resources: ConfigResource) -> list[dict[str, str]]:
    told = admin.describe_configs(list(resources))
    return [{name: entry.value for name, entry in told[each].result(30).items()} for each in resources]


def of_group(group: str, *entries: ConfigEntry) -> ConfigResource:
    return ConfigResource(ResourceType.GROUP, group, incremental_configs=list(entries) or None)


def set_to(name: str, value: str) -> ConfigEntry:
    return ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)


def altered(admin: AdminClient, resources: list[ConfigResource]) -> bool:
    """False: a group's shard moves yet."""
    try:
        for done in admin.incremental_alter_configs(resources).values():
            done.result(30)
    except KafkaException:
        return False
    return True


def test_one_request_about_a_group_and_a_topic_is_answered_by_both(nodes: dict[int, DoorNode], kafka: str) -> None:
    topic = ConfigResource(ResourceType.TOPIC, TOPIC, incremental_configs=[set_to(RETENTION, "123456")])
    for node in nodes.values():
        admin = AdminClient({"bootstrap.servers": node.kafka_address})
        for number, group in enumerate(GROUPS):
            wanted = str(50_000 + number)
            both = [of_group(group, set_to(SETTING, wanted)), topic]
            until(partial(altered, admin, both), "both are changed", *nodes.values())
            told = described(admin, of_group(group), ConfigResource(ResourceType.TOPIC, TOPIC))
            assert told[0][SETTING] == wanted
            assert told[1][RETENTION] == "123456"
    upstream = AdminClient({"bootstrap.servers": kafka})
    assert described(upstream, ConfigResource(ResourceType.TOPIC, TOPIC))[0][RETENTION] == "123456"


def test_a_node_tells_its_own_settings_and_a_broker_its_own(nodes: dict[int, DoorNode]) -> None:
    admin = AdminClient({"bootstrap.servers": nodes[1].kafka_address})
    brokers = admin.list_topics(timeout=30).brokers
    assert {BASE + 1, BASE + 2, 1} <= brokers.keys()
    for number in (1, 2):
        told = described(admin, ConfigResource(ResourceType.BROKER, str(BASE + number)))[0]
        assert told["engine.kafka.cluster"] == "settings"
        assert told["node.id"] == str(number)
    told = described(admin, ConfigResource(ResourceType.BROKER, "1"))[0]
    assert "engine.kafka.cluster" not in told
    assert told["node.id"] == "1"
    assert told["advertised.listeners"] in (None, ""), "no broker's address gets out"


def tool(classpath: str, name: str, *arguments: str) -> str:
    command = ["java", "-Xmx128m", "-cp", classpath, name, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout


def test_kafkas_own_tools(nodes: dict[int, DoorNode], kafka_classpath: str) -> None:
    where = ["--bootstrap-server", nodes[1].kafka_address]
    configs = "kafka.admin.ConfigCommand"
    group = ["--entity-type", "groups", "--entity-name", "by-tool"]
    tool(kafka_classpath, configs, *where, "--alter", *group, "--add-config", f"{SETTING}=51000")
    assert f"{SETTING}=51000" in tool(kafka_classpath, configs, *where, "--describe", *group)
    topic = ["--entity-type", "topics", "--entity-name", TOPIC]
    tool(kafka_classpath, configs, *where, "--alter", *topic, "--add-config", "max.message.bytes=777777")
    assert "max.message.bytes=777777" in tool(kafka_classpath, configs, *where, "--describe", *topic)
    with Admin(bootstrap_servers=",".join(node.address for node in nodes.values())) as admin:
        found: Any = admin.group_settings("by-tool")
        assert "51000" in str(found)


def test_what_has_settings_is_listed_by_both(nodes: dict[int, DoorNode]) -> None:
    async def asked(address: str) -> set[tuple[int, str]]:
        async with KafkaClient(*parse_address(address)) as client:
            told = await client.ask("ListConfigResources", 1, resource_types=[])
            assert told.error_code == 0
            return {(each.resource_type, each.resource_name) for each in told.config_resources}

    told = [asyncio.run(asked(node.kafka_address)) for node in nodes.values()]
    for one in told:
        assert (2, TOPIC) in one
        assert (4, "1") in one
        assert {(32, group) for group in GROUPS} <= one, "whichever node coordinates them"
