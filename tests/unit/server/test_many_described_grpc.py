"""Descriptions of very many groups, and of very large ones, by gRPC: others have their turns while they are made."""

import asyncio
import threading
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest

from muster.coordinator.core.model import effects, events
from muster.coordinator.edge.large_answers import MAX_GROUPS_PER_TURN
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.server.services import group_control, group_responses
from muster.coordinator.server.services.group_coordinator import GroupCoordinator
from tests.support.group_service import group_service_context
from tests.support.kafka.door import OneShard
from tests.unit.kafka.test_kafka_overload import consumer_view

CALL = cast(Any, SimpleNamespace(peer_host="h"))
MEMBER = effects.DescribedMember("m", None, "c", "h", b"", b"")


class SameReply(OneShard):
    """Gives each group the same reply; knows how many were asked about at once."""

    refused_commits: ClassVar[dict[Any, Any]] = {}

    def __init__(self, reply: effects.DescribeReply | effects.DescribeConsumerReply) -> None:
        super().__init__()
        self._reply = reply
        self.asked: list[int] = []

    def taken_over(self, group_id: str, instance_id: str) -> int:
        return 0

    async def ask_all(self, questions: Sequence[tuple[int, events.Request]], wanted: type[Any]) -> list[Any]:
        self.asked.append(len(questions))
        return [self._reply] * len(questions)


def described(driver: SameReply, names: Sequence[str]) -> Any:
    service = GroupCoordinator(group_service_context(driver=driver, partitions=lambda: {"t": 1}))
    if isinstance(driver._reply, effects.DescribeReply):
        return asyncio.run(service.describe_groups(pb.DescribeGroupsRequest(groups=names), CALL))
    return asyncio.run(service.consumer_group_describe(pb.ConsumerGroupDescribeRequest(group_ids=names), CALL))


@pytest.mark.parametrize("reply", [effects.DescribeReply(members=(MEMBER,)), effects.DescribeConsumerReply()])
def test_who_asks_about_very_many_groups_hears_of_each_and_holds_up_nobody(
    reply: effects.DescribeReply | effects.DescribeConsumerReply,
) -> None:
    driver, names = SameReply(reply), [str(number) for number in range(3_500)]
    assert [group.group_id for group in described(driver, names).groups] == names
    assert max(driver.asked) <= MAX_GROUPS_PER_TURN, "whoever else the node serves has turns in between"


@pytest.mark.parametrize(
    ("owner", "build", "reply"),
    [
        (group_control, "build_controlled_group", effects.DescribeReply(members=(MEMBER,) * 1_000)),
        (
            group_responses,
            "build_described_consumer_group",
            effects.DescribeConsumerReply(members=(consumer_view(1),) * 1_000),
        ),
        (
            group_responses,
            "build_described_consumer_group",
            effects.DescribeConsumerReply(members=(consumer_view(20_000),)),
        ),
    ],
)
def test_a_very_large_group_is_written_down_beside_the_loop(
    owner: Any,
    build: str,
    reply: effects.DescribeReply | effects.DescribeConsumerReply,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: list[threading.Thread] = []
    make: Callable[..., Any] = getattr(owner, build)

    def watching(*given: Any) -> Any:
        threads.append(threading.current_thread())
        return make(*given)

    monkeypatch.setattr(owner, build, watching)
    (group,) = described(SameReply(reply), ["g"]).groups
    assert len(group.members) == len(reply.members)
    assert threads[0] is not threading.main_thread()
