"""KB-X9: which groups are asked about, what stays of a broker that does not answer, and what an operator is told."""

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

import pytest

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.foreign_member_guard import (
    ForeignMemberGuard,
    ForeignMembers,
    foreign_members_sentence,
)
from muster.coordinator.kafka_backend.upstream import group_requests
from muster.coordinator.kafka_backend.upstream.group_requests import UpstreamMember, UpstreamOffset
from muster.coordinator.kafka_backend.upstream.protocol import UpstreamAddress, UpstreamRefused
from muster.coordinator.kafka_backend.upstream.upstream_client import Upstream
from tests.fakes.upstream_broker import HANG_UP, UpstreamBroker, metadata


def listed(*rows: tuple[str, str, str, str]) -> Any:
    return struct("ListGroupsResponse")(
        groups=[
            struct("ListGroupsResponse.groups")(group_id=group, protocol_type=kind, group_state=state, group_type=type_)
            for group, kind, state, type_ in rows
        ]
    )


def described(request: Any, members: Mapping[str, int], code: int = 0) -> Any:
    return struct("DescribeGroupsResponse")(
        groups=[
            struct("DescribeGroupsResponse.groups")(
                error_code=code,
                group_id=group,
                group_state="Stable",
                protocol_type="consumer",
                protocol_data="",
                members=[
                    struct("DescribeGroupsResponse.groups.members")(
                        member_id=f"m{number}",
                        client_id=f"c{number}",
                        client_host="/10.0.0.1",
                        member_metadata=b"",
                        member_assignment=b"",
                    )
                    for number in range(members.get(group, 0))
                ],
            )
            for group in request.groups
        ]
    )


def run(story: Callable[[Upstream, UpstreamBroker], Coroutine[Any, Any, None]]) -> None:
    async def whole() -> None:
        async with UpstreamBroker() as broker:
            broker.answers["Metadata"] = lambda request: metadata({1: broker.address}, {})
            upstream = Upstream(UpstreamAddress((broker.address,), connect_s=5, answer_s=5))
            await upstream.refresh([])
            await story(upstream, broker)
            upstream.close()

    asyncio.run(whole())


def test_only_groups_of_ours_that_could_have_members_are_asked_about() -> None:
    async def story(upstream: Upstream, broker: UpstreamBroker) -> None:
        broker.answers["ListGroups"] = lambda request: listed(
            ("mine", "consumer", "Stable", "Classic"),
            ("quiet", "consumer", "Empty", "Classic"),
            ("muster.nodes", "muster", "Stable", "Classic"),
            ("shared", "share", "Stable", "Share"),
            ("theirs", "consumer", "Stable", "Classic"),
            ("joining", "consumer", "PreparingRebalance", "Classic"),
        )
        broker.answers["DescribeGroups"] = lambda request: described(request, {"mine": 5})
        told: list[Mapping[str, ForeignMembers]] = []
        guard = ForeignMemberGuard(upstream, lambda group: group != "theirs", on_found=told.append)
        found = await guard.find_foreign_members()
        assert [request.groups for request in broker.of("DescribeGroups")] == [["mine", "joining"]]
        assert told == [found] == [guard.found]
        assert str(found["mine"]) == "mine (c0 at /10.0.0.1, c1 at /10.0.0.1, c2 at /10.0.0.1 and 2 more)"

    run(story)


def test_what_a_broker_that_does_not_answer_had_stays() -> None:
    async def story(upstream: Upstream, broker: UpstreamBroker) -> None:
        broker.answers["ListGroups"] = lambda request: listed(("mine", "consumer", "Stable", "Classic"))
        broker.answers["DescribeGroups"] = lambda request: described(request, {"mine": 1})
        guard = ForeignMemberGuard(upstream, lambda group: True)
        before = await guard.find_foreign_members()
        broker.answers["ListGroups"] = lambda request: HANG_UP
        assert await guard.find_foreign_members() == before
        broker.answers["ListGroups"] = lambda request: listed()
        assert await guard.find_foreign_members() == {}

    run(story)


def test_it_looks_by_itself() -> None:
    async def story(upstream: Upstream, broker: UpstreamBroker) -> None:
        broker.answers["ListGroups"] = lambda request: listed()
        twice = asyncio.Event()
        looks: list[object] = []

        def heard(found: Mapping[str, ForeignMembers]) -> None:
            looks.append(found)
            if len(looks) == 2:
                twice.set()

        guard = ForeignMemberGuard(upstream, lambda group: True, period_ms=1, on_found=heard)
        guard.start()
        await asyncio.wait_for(twice.wait(), 10)
        await guard.stop()

    run(story)


def test_an_operator_is_told_of_the_first_groups() -> None:
    found = {f"g{number}": ForeignMembers(f"g{number}", 1, [UpstreamMember("m", "", "")]) for number in range(7)}
    assert foreign_members_sentence(found).count("(m at unknown host)") == 5
    assert "; and 2 groups more. Give" in foreign_members_sentence(found)
    assert foreign_members_sentence({}) == ""


def coordinated(broker: UpstreamBroker) -> None:
    broker.answers["FindCoordinator"] = lambda request: struct("FindCoordinatorResponse")(
        node_id=1, host=broker.address.host, port=broker.address.port
    )


def test_a_coordinator_that_moves_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_requests, "PAUSE_S", 0)

    async def story(upstream: Upstream, broker: UpstreamBroker) -> None:
        coordinated(broker)
        codes = [16, 14, 0]
        broker.answers["DescribeGroups"] = lambda request: described(request, {"g": 1}, codes.pop(0))
        assert [each.client_id for each in (await group_requests.describe_group(upstream, "g")).members] == ["c0"]
        assert len(broker.of("FindCoordinator")) == 3

    run(story)


def test_positions_that_hang_in_a_transaction_are_not_taken_for_committed() -> None:
    async def story(upstream: Upstream, broker: UpstreamBroker) -> None:
        coordinated(broker)
        part = struct("OffsetFetchResponse.groups.topics.partitions")(
            partition_index=0, committed_offset=-1, metadata="", error_code=88
        )
        topic = struct("OffsetFetchResponse.groups.topics")(name="t", partitions=[part])
        told = struct("OffsetFetchResponse.groups")(group_id="g", topics=[topic], error_code=0)
        broker.answers["OffsetFetch"] = lambda request: struct("OffsetFetchResponse")(groups=[told])
        with pytest.raises(UpstreamRefused, match="what g has committed of t-0: the upstream says"):
            await group_requests.fetch_offsets(upstream, "g")
        assert broker.of("OffsetFetch")[0].require_stable

    run(story)


def test_a_large_commit_goes_in_portions_and_refusals_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group_requests, "POSITIONS_AT_ONCE", 2)

    async def story(upstream: Upstream, broker: UpstreamBroker) -> None:
        coordinated(broker)

        def taken(request: Any) -> Any:
            return struct("OffsetCommitResponse")(
                topics=[
                    struct("OffsetCommitResponse.topics")(
                        name=topic.name,
                        partitions=[
                            struct("OffsetCommitResponse.topics.partitions")(
                                partition_index=part.partition_index, error_code=3 * (part.partition_index == 2)
                            )
                            for part in topic.partitions
                        ],
                    )
                    for topic in request.topics
                ]
            )

        broker.answers["OffsetCommit"] = taken
        kept = {("t", number): UpstreamOffset(number) for number in range(5)}
        assert await group_requests.commit_offsets(upstream, "g", kept) == {("t", 2): 3}
        sizes = [sum(len(topic.partitions) for topic in each.topics) for each in broker.of("OffsetCommit")]
        assert sizes == [2, 2, 1]
        assert {(each.generation_id_or_member_epoch, each.member_id) for each in broker.of("OffsetCommit")} == {
            (-1, "")
        }

    run(story)
