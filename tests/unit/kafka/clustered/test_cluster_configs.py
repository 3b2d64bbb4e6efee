"""Settings that a node of a cluster takes while it runs (CL-A9), by Kafka's door."""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from muster.coordinator.config import load_settings
from muster.coordinator.kafka.handlers.cluster_backend import RATES, ClusterConfigHandlers
from muster.coordinator.kafka.handlers.configs import GroupConfigs
from muster.coordinator.kafka.handlers.group_requests import GroupRequests
from muster.coordinator.replication.io.admin.node_configs import apply_config_changes
from muster.storage.errors import RequestTimedOut
from tests.support.cluster_image import ThreeNodes
from tests.support.kafka.door import NODE_ID, Door, made, play

BROKER, TOPIC = 4, 2
LEADER, FOLLOWER = RATES
SET, DELETE, APPEND = 0, 1, 2


class Kept:
    """What ZooKeeper would keep, or that it does not answer."""

    def __init__(self, **given: str) -> None:
        self.given: dict[str, str] = given
        self.away = False

    async def node_configs(self, node: int) -> Mapping[str, str]:
        assert node == NODE_ID
        if self.away:
            raise RequestTimedOut("ZooKeeper is away.")
        return self.given

    async def set_node_configs(
        self,
        node: int,
        asked: Callable[[Mapping[str, str]], Mapping[str, str | None]],
        *,
        validate_only: bool = False,
    ) -> None:
        after = apply_config_changes(await self.node_configs(node), asked(self.given))
        if not validate_only:
            self.given = after


def ask(story: Any) -> None:
    async def run(door: Door) -> None:
        kept, cluster = Kept(), ThreeNodes().view
        groups = GroupConfigs(GroupRequests(door.driver, 1), cluster)
        handlers = ClusterConfigHandlers(door.requests, NODE_ID, groups, cluster, kept)
        door._everyone = (door._everyone[0], handlers)
        await story(door, kept)

    play(run, cluster=ThreeNodes().view)


async def alter(
    door: Door, version: int, *steps: tuple[str, int, str | None], name: str = str(NODE_ID), **more: Any
) -> Any:
    path = "IncrementalAlterConfigsRequest.resources"
    rows = [made(f"{path}.configs", name=key, config_operation=how, value=value) for key, how, value in steps]
    resource = made(path, resource_type=BROKER, resource_name=name, configs=rows)
    answer = await door.ask("IncrementalAlterConfigs", version, resources=[resource], **more)
    (row,) = answer.responses
    return row.error_code, row.error_message


async def replace(door: Door, version: int, **configs: str) -> int:
    path = "AlterConfigsRequest.resources"
    rows = [made(f"{path}.configs", name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = made(path, resource_type=BROKER, resource_name=str(NODE_ID), configs=rows)
    (row,) = (await door.ask("AlterConfigs", version, resources=[resource])).responses
    return int(row.error_code)


async def described(door: Door, version: int, kind: int = BROKER, name: str = str(NODE_ID)) -> Any:
    resource = made("DescribeConfigsRequest.resources", resource_type=kind, resource_name=name, configuration_keys=None)
    answer = await door.ask("DescribeConfigs", version, resources=[resource], include_synonyms=True)
    return answer.results[0]


@pytest.mark.parametrize("version", range(2))
def test_rates_are_set_and_unset_while_the_node_runs(version: int) -> None:
    async def story(door: Door, kept: Kept) -> None:
        assert await alter(door, version, (LEADER, SET, "1000"), (FOLLOWER, SET, "5")) == (0, None)
        assert kept.given == {LEADER: "1000", FOLLOWER: "5"}
        assert await alter(door, version, (LEADER, SET, "9"), validate_only=True) == (0, None)
        assert await alter(door, version, (FOLLOWER, DELETE, None)) == (0, None)
        assert kept.given == {LEADER: "1000"}

    ask(story)


def test_alter_configs_replaces_all_that_is_set() -> None:
    async def story(door: Door, kept: Kept) -> None:
        for version in range(3):
            kept.given = {FOLLOWER: "7"}
            assert await replace(door, version, leader_replication_throttled_rate="8") == 0
            assert kept.given == {LEADER: "8"}

    ask(story)


@pytest.mark.parametrize(
    ("steps", "name", "code", "says"),
    [
        ([("num.partitions", SET, "1")], str(NODE_ID), 40, "properties file"),
        ([(LEADER, SET, "-1")], str(NODE_ID), 40, "bytes a second"),
        ([(LEADER, SET, str(2**63))], str(NODE_ID), 40, "bytes a second"),
        ([(LEADER, APPEND, "1")], str(NODE_ID), 40, "not LIST"),
        ([(LEADER, SET, "1")], "", 42, "no defaults of all nodes"),
        ([(LEADER, SET, "1")], "8", 42, "Node '8' itself"),
        ([(LEADER, SET, "1")], "55", 42, "no node '55'"),
    ],
)
def test_what_a_node_does_not_take_while_it_runs(steps: list[Any], name: str, code: int, says: str) -> None:
    async def story(door: Door, kept: Kept) -> None:
        for version in range(2):
            found, why = await alter(door, version, *steps, name=name)
            assert (found, kept.given) == (code, {})
            assert says in why

    ask(story)


@pytest.mark.parametrize("version", range(1, 5))
def test_what_is_set_is_described_as_set_while_it_runs(version: int) -> None:
    async def story(door: Door, kept: Kept) -> None:
        kept.given = {LEADER: "1000"}
        door.broker.settings = load_settings(None, {})
        result = await described(door, version)
        assert result.error_code == 0
        rows = {entry.name: entry for entry in result.configs}
        assert (rows[LEADER].value, rows[LEADER].config_source, rows[LEADER].read_only) == ("1000", 2, False)
        assert [(each.value, each.source) for each in rows[LEADER].synonyms] == [("1000", 2), (str(2**63 - 1), 5)]
        assert (rows[FOLLOWER].value, rows[FOLLOWER].config_source) == (str(2**63 - 1), 5)
        assert not rows[FOLLOWER].read_only
        assert rows["num.partitions"].read_only
        kept.away = True
        assert ((await described(door, version)).error_code, kept.given) == (7, {LEADER: "1000"})
        assert (await described(door, version, TOPIC, "t")).error_code == 0

    ask(story)
