"""Groups at a node that is one of three: it finds coordinators, and answers for its own groups only (rules CL-K1,
CL-G1)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.coordinator.core.model import events
from muster.coordinator.core.model.effects import SettingsReply
from muster.coordinator.errors import ErrorCode
from muster.coordinator.runtime.shards import partition_for
from tests.support.cluster_image import ALL, ThreeNodes, led, node
from tests.support.kafka.asked import HUNG_UP, Asked
from tests.support.kafka.memory_node import SHARDS, MemoryNode
from tests.support.kafka.rights import ROOT, one, request, settle
from tests.support.kafka.rights_cells import configure

HERE, ELSEWHERE = 0, 1
Story = Callable[[MemoryNode, Asked], Awaitable[None]]


def group_of(shard: int) -> str:
    return next(name for number in range(100) if partition_for(name := f"g{number}", SHARDS) == shard)


def play(story: Story, cluster: ThreeNodes | None = None) -> None:
    async def run() -> None:
        async with MemoryNode({"t": 1}, cluster=(cluster or ThreeNodes(SHARDS)).view) as node:
            await story(node, Asked(node.dispatch, ROOT))
            assert not node.bugs

    asyncio.run(run())


@pytest.mark.parametrize("version", range(5))
def test_the_coordinator_of_a_group_is_the_leader_of_its_shard(version: int) -> None:
    async def story(_: MemoryNode, ask: Asked) -> None:
        for shard in range(SHARDS):
            (found,) = await coordinators(ask, version, group_of(shard))
            assert (found.error_code, found.node_id) == (0, ALL[shard])
            assert (found.host, found.port) == (f"node-{ALL[shard]}.example", 9092)

    play(story)


@pytest.mark.parametrize("version", range(5))
def test_a_node_that_is_cut_off_ends_the_connection_of_who_looks_for_a_coordinator(version: int) -> None:
    """Else its members would be sent to it again and again, while another node coordinates them."""
    cluster = ThreeNodes(SHARDS)
    cluster.cut_off = True

    async def story(_: MemoryNode, ask: Asked) -> None:
        assert await ask("FindCoordinator", version, request("FindCoordinator", [], [group_of(0)])) == HUNG_UP

    play(story, cluster)


@pytest.mark.parametrize("version", range(5))
@pytest.mark.parametrize("why", ["nobody leads", "the leader is gone", "the leader has no such door", "no shards yet"])
def test_a_group_whose_shard_has_no_leader_has_no_coordinator(version: int, why: str) -> None:
    cluster = ThreeNodes(SHARDS)
    match why:
        case "nobody leads":
            cluster.topics(__consumer_offsets={1: led(-1)})
        case "the leader is gone":
            cluster.nodes(node(8, gone=True))
        case "the leader has no such door":
            cluster.nodes(node(8, listeners=["GRPC"]))
        case _:
            cluster = ThreeNodes(shards=0)

    async def story(_: MemoryNode, ask: Asked) -> None:
        (found,) = await coordinators(ask, version, group_of(ELSEWHERE))
        assert (found.error_code, found.node_id, found.host, found.port) == (15, -1, "", -1)

    play(story, cluster)


async def coordinators(ask: Asked, version: int, *groups: str) -> list[Any]:
    answer = await ask("FindCoordinator", version, request("FindCoordinator", [], list(groups)))
    if version < 4:
        return [answer]
    assert [each.key for each in answer.coordinators] == list(groups)
    return list(answer.coordinators)


def test_many_are_found_at_once_and_one_without_a_coordinator_hurts_no_other() -> None:
    cluster = ThreeNodes(SHARDS)
    cluster.topics(__consumer_offsets={1: led(-1)})

    async def story(_: MemoryNode, ask: Asked) -> None:
        found = await coordinators(ask, 4, group_of(HERE), group_of(ELSEWHERE))
        assert [(each.error_code, each.node_id) for each in found] == [(0, ALL[0]), (15, -1)]

    play(story, cluster)


CODES: dict[str, Callable[[Any, int], int]] = {
    "JoinGroup": lambda answer, version: answer.error_code,
    "SyncGroup": lambda answer, version: answer.error_code,
    "Heartbeat": lambda answer, version: answer.error_code,
    "LeaveGroup": lambda answer, version: answer.error_code,
    "OffsetCommit": lambda answer, version: answer.topics[0].partitions[0].error_code,
    "OffsetFetch": lambda answer, version: (
        (answer.groups[0] if version >= 8 else answer if version >= 2 else answer.topics[0].partitions[0]).error_code
    ),
    "OffsetDelete": lambda answer, version: answer.error_code,
    "DescribeGroups": lambda answer, version: answer.groups[0].error_code,
    "DeleteGroups": lambda answer, version: answer.results[0].error_code,
    "ConsumerGroupHeartbeat": lambda answer, version: answer.error_code,
    "ConsumerGroupDescribe": lambda answer, version: answer.groups[0].error_code,
}


@pytest.mark.parametrize("api", CODES)
def test_whoever_asks_for_a_group_of_another_node_hears_16(api: str) -> None:
    async def story(node: MemoryNode, ask: Asked) -> None:
        node.driver.submit_event(ELSEWHERE, events.Unload())
        await node.quiet()
        for version in versions(node, api):
            answer = await ask(api, version, request(api, ["t"], [group_of(ELSEWHERE)]))
            assert CODES[api](answer, version) == 16, (version, answer)

    play(story)


def versions(node: MemoryNode, api: str) -> range:
    (found,) = (each for each in node.dispatch.apis if each.name == api)
    return range(found.first, found.last + 1)


@pytest.mark.parametrize("version", range(6))
def test_a_node_lists_the_groups_that_it_coordinates(version: int) -> None:
    async def story(node: MemoryNode, ask: Asked) -> None:
        await settle(ask, [], [])
        for shard in (HERE, ELSEWHERE):
            await ask("OffsetCommit", 8, request("OffsetCommit", ["t"], [group_of(shard)]))
        answer = await ask("ListGroups", version)
        assert {row.group_id for row in answer.groups} == {group_of(HERE), group_of(ELSEWHERE)}
        node.driver.submit_event(ELSEWHERE, events.Unload())
        await node.quiet()
        answer = await ask("ListGroups", version)
        assert (answer.error_code, [row.group_id for row in answer.groups]) == (0, [group_of(HERE)])

    play(story)


def test_groups_with_settings_are_listed_where_they_are_coordinated() -> None:
    async def story(node: MemoryNode, ask: Asked) -> None:
        for shard in (HERE, ELSEWHERE):
            await configure(ask, group_of(shard))
        node.driver.submit_event(ELSEWHERE, events.Unload())
        await node.quiet()
        answer = await ask("ListConfigResources", 1, resource_types=[32])
        assert (answer.error_code, [row.resource_name for row in answer.config_resources]) == (0, [group_of(HERE)])

    play(story)


class Others:
    """Answers for every shard that this node does not lead."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, Any]] = []

    async def settings(self, shard: int, event: Any) -> SettingsReply:
        self.asked.append((shard, event))
        values = {"handoff.timeout.ms": 1500}
        if isinstance(event, events.AlterSettings) and event.expected_version != 4:
            return SettingsReply(ErrorCode.INVALID_UPDATE_VERSION, "it has another version")
        return SettingsReply(version=4, values=values, defaults={"handoff.timeout.ms": 0})

    code = ErrorCode.NONE

    async def with_settings(self, node: int) -> tuple[ErrorCode, tuple[str, ...]]:
        return self.code, () if self.code else (f"of-node-{node}",)

    async def forwarded(self, *_: Any) -> Any:
        raise NotImplementedError("nobody scales by Kafka's protocol")


def test_whoever_is_asked_which_groups_have_settings_asks_the_others() -> None:
    """Kafka's admin client asks one node, whichever has least to do."""
    cluster, others = ThreeNodes(SHARDS), Others()
    cluster.view.elsewhere = others

    async def story(node: MemoryNode, ask: Asked) -> None:
        await configure(ask, group_of(HERE))
        answer = await ask("ListConfigResources", 1, resource_types=[32])
        names = [row.resource_name for row in answer.config_resources]
        assert (answer.error_code, group_of(HERE) in names) == (0, True)
        assert [name for name in names if name.startswith("of-node-")], "of whoever leads the others"
        others.code = ErrorCode.COORDINATOR_NOT_AVAILABLE
        answer = await ask("ListConfigResources", 1, resource_types=[32])
        assert (answer.error_code, list(answer.config_resources)) == (15, []), "a part is not the whole"

    play(story, cluster)


def test_settings_of_a_group_are_told_and_changed_by_its_coordinator_whoever_is_asked() -> None:
    """Kafka's tools ask any node for them."""
    cluster, others = ThreeNodes(SHARDS), Others()
    cluster.view.elsewhere = others

    async def story(node: MemoryNode, ask: Asked) -> None:
        node.driver.submit_event(ELSEWHERE, events.Unload())
        await configure(ask, group_of(HERE))
        assert others.asked == [], "that is this node's"
        path = "DescribeConfigsRequest.resources"
        rows = [
            one(path, resource_type=32, resource_name=group_of(shard), configuration_keys=["handoff.timeout.ms"])
            for shard in (ELSEWHERE, HERE)
        ]
        answer = await ask("DescribeConfigs", 4, resources=rows)
        assert [each.error_code for each in answer.results] == [0, 0]
        assert [each.resource_name for each in answer.results] == [group_of(ELSEWHERE), group_of(HERE)]
        assert [each.configs[0].value for each in answer.results] == ["1500", "1000"]
        others.asked.clear()
        await configure(ask, group_of(ELSEWHERE))
        assert [shard for shard, _ in others.asked] == [ELSEWHERE] * 2
        described, altered = (event for _, event in others.asked)
        assert isinstance(described, events.DescribeSettings)
        assert isinstance(altered, events.AlterSettings)
        assert (altered.set, altered.expected_version, altered.validate_only) == (
            {"handoff.timeout.ms": 1000},
            4,
            False,
        )

    play(story, cluster)
