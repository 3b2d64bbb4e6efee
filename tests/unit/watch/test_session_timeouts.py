"""The session timeout of a KIP-848 group is asked of its broker, and counts where a silence is compared with it."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from muster.coordinator.config import Settings
from muster.coordinator.core.model.records import GroupEpochStored
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.group_requests import (
    AT_ONCE,
    GROUP_RESOURCE,
    ListedUpstreamGroup,
    fetch_session_timeouts,
)
from muster.coordinator.kafka_backend.upstream.protocol import SUPPORTED_APIS, UpstreamAddress
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from muster.coordinator.server.watch_backend.looked_kafka import LookedKafka
from muster.coordinator.watch.watched_partition import WatchedFacts
from tests.fakes.upstream_broker import UpstreamBroker, metadata
from tests.support.watched_batches import batch, facts

UNSUPPORTED_TYPE = 42


class Shards:
    """WatchedShards that keep what they learn."""

    def __init__(self) -> None:
        self.learnt: dict[str, int] = {}

    def tell_group(self, group_id: str, event: object) -> None:
        pass

    def looked(self) -> None:
        pass

    def live_groups(self) -> set[str]:
        return set()

    def learn_sessions(self, sessions: Mapping[str, int]) -> None:
        self.learnt.update(sessions)


class NoNames:
    def ids(self) -> Mapping[str, bytes]:
        return {}


class Scene:
    """One broker with these groups, by kind, and session timeouts."""

    def __init__(self, broker: UpstreamBroker, groups: Mapping[str, str]) -> None:
        self.broker, self.groups, self.code = broker, groups, 0
        self.timeouts: dict[str, str] = {}
        broker.answers = {
            "Metadata": lambda request: metadata({1: broker.address}, {}),
            "ListGroups": self._list,
            "DescribeConfigs": self._configs,
        }
        self.upstream = Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=30))
        settings = Settings(engine=f"kafka://{broker.address.host}:{broker.address.port}", watch_enable=True)
        self.shards = Shards()
        self.looked = LookedKafka(settings, self.upstream, NoNames(), lambda: 0, self.shards)  # type: ignore[arg-type]

    def _list(self, request: Any) -> Any:
        row = struct("ListGroupsResponse.groups")
        rows = [row(group_id=name, protocol_type="consumer", group_type=kind) for name, kind in self.groups.items()]
        return struct("ListGroupsResponse")(groups=rows)

    def _configs(self, request: Any) -> Any:
        made, row = struct("DescribeConfigsResponse.results"), struct("DescribeConfigsResponse.results.configs")
        return struct("DescribeConfigsResponse")(
            results=[
                made(
                    error_code=self.code, resource_type=each.resource_type, resource_name=each.resource_name,
                    configs=[] if self.code else [
                        row(name="consumer.session.timeout.ms", value=self.timeouts.get(each.resource_name, "45000"))
                    ],
                )
                for each in request.resources
            ]
        )  # fmt: skip

    def asked(self) -> list[list[str]]:
        requests = self.broker.of("DescribeConfigs")
        assert {each.resource_type for request in requests for each in request.resources} <= {GROUP_RESOURCE}
        return [[each.resource_name for each in request.resources] for request in requests]


def run(story: Any, groups: Mapping[str, str]) -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            scene = Scene(broker, groups)
            await scene.upstream.refresh([])
            try:
                await story(scene)
            finally:
                scene.upstream.close()

    asyncio.run(whole())


def test_groups_of_the_new_protocol_alone_are_asked_after() -> None:
    async def story(scene: Scene) -> None:
        scene.timeouts = {"billing": "60000"}
        await scene.looked.ask_all_sessions("")
        assert scene.asked() == [["billing", "mail"]]
        assert scene.shards.learnt == {"billing": 60_000, "mail": 45_000}

    run(story, {"billing": "consumer", "old": "classic", "mail": "consumer", "queue": "share"})


def test_where_one_group_matters_no_other_is_asked_after() -> None:
    async def story(scene: Scene) -> None:
        await scene.looked.ask_all_sessions("mail")
        assert scene.asked() == [["mail"]]

    run(story, {"billing": "consumer", "mail": "consumer"})


def listed(names: Sequence[str]) -> list[ListedUpstreamGroup]:
    return [ListedUpstreamGroup(name, "consumer", "Stable", "consumer") for name in names]


def test_looks_at_all_groups_ask_again_some_at_a_time() -> None:
    names = [f"g{number}" for number in range(AT_ONCE + 1)]

    async def story(scene: Scene) -> None:
        await scene.looked.saw_groups(1, listed(names))
        assert [len(each) for each in scene.asked()] == [AT_ONCE, 1]
        scene.timeouts = {"g7": "9000"}
        await scene.looked.saw_groups(1, listed(names))
        assert (scene.shards.learnt["g7"], scene.shards.learnt["g8"]) == (9_000, 45_000)

    run(story, {})


def test_a_broker_that_does_not_know_groups_settings_is_asked_once_each_time() -> None:
    async def story(scene: Scene) -> None:
        scene.code = UNSUPPORTED_TYPE
        await scene.looked.saw_groups(1, listed([f"g{number}" for number in range(3 * AT_ONCE)]))
        assert len(scene.asked()) == 1
        assert scene.shards.learnt == {}

    run(story, {})


def test_a_broker_that_describes_no_settings_is_no_trouble() -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            del broker.offers[SUPPORTED_APIS["DescribeConfigs"].key]
            scene = Scene(broker, {})
            await scene.upstream.refresh([])
            await scene.looked.saw_groups(1, listed(["g"]))
            scene.upstream.close()

    asyncio.run(whole())


def test_what_is_no_number_is_passed_over() -> None:
    async def story(scene: Scene) -> None:
        scene.timeouts = {"a": "soon", "b": ""}
        assert await fetch_session_timeouts(scene.upstream, 1, ["a", "b", "c"]) == {"c": 45_000}

    run(story, {})


def test_a_group_goes_by_its_own_whether_it_is_learnt_before_its_records_or_after() -> None:
    known = WatchedFacts(lambda shard, event: None)
    known.session_ms = 45_000
    known.learn_sessions({"early": 6_000})
    partition = known.made_partition(0)
    records = facts(*(GroupEpochStored(group, 1, 0) for group in ("early", "late", "plain")))
    partition.take_batches(batch(records))
    known.learn_sessions({"late": 7_000})
    assert {name: group.consumer.session_ms for name, group in partition.groups.items()} == {
        "early": 6_000,
        "late": 7_000,
        "plain": 45_000,
    }
