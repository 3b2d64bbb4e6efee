"""The upstream as a whole: who leads, who coordinates, what is written and read there, and what a bad moment costs."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.inspection import dump_shard_log
from muster.coordinator.kafka_backend.upstream import record_requests, topic_requests
from muster.coordinator.kafka_backend.upstream import upstream_client as asking
from muster.coordinator.kafka_backend.upstream.connection import FIRST_PAUSE_S, ConnectionPool
from muster.coordinator.kafka_backend.upstream.group_requests import UpstreamMembership
from muster.coordinator.kafka_backend.upstream.protocol import (
    SUPPORTED_APIS,
    Unreached,
    UpstreamAddress,
    UpstreamRefused,
    describe_code,
)
from muster.coordinator.kafka_backend.upstream.upstream_client import (
    TRANSACTION,
    Upstream,
    UpstreamMetadata,
    merge_metadata,
)
from muster.storage.records.batch import encode_batch, read_batches
from tests.fakes.upstream_broker import HANG_UP, UpstreamBroker, metadata

STATE = "muster.state"


def batch(offset: int, *keys: str) -> bytes:
    return encode_batch([(0, key.encode(), b"v", ()) for key in keys], base_offset=offset)


def run(
    story: Callable[[Upstream, UpstreamBroker, UpstreamBroker], Coroutine[Any, Any, None]],
    leaders: dict[int, tuple[int, int]],
) -> None:
    """Two brokers, of which the second is found by what the first one says."""

    async def whole() -> None:
        async with UpstreamBroker() as one, UpstreamBroker() as two:
            told = lambda request: metadata({1: one.address, 2: two.address}, {STATE: leaders})  # noqa: E731
            one.answers["Metadata"] = two.answers["Metadata"] = told
            upstream = Upstream(UpstreamAddress((one.address,), connect_s=5, answer_s=5))
            try:
                await upstream.refresh([STATE])
                await story(upstream, one, two)
            finally:
                upstream.close()

    asyncio.run(whole())


# -- who leads ------------------------------------------------------------------------------------------------------


def test_an_answer_of_a_broker_that_is_behind_does_not_bring_an_old_leader_back() -> None:
    brokers = {1: Address("a", 1), 2: Address("b", 1)}
    view = merge_metadata(UpstreamMetadata(), metadata(brokers, {STATE: {0: (2, 7), 1: (1, 3)}}))
    view = merge_metadata(view, metadata(brokers, {STATE: {0: (1, 6), 1: (2, 4)}}))
    assert (view.leader(STATE, 0), view.leader(STATE, 1)) == (2, 2)
    anew = metadata(brokers, {STATE: {0: (1, 0)}})
    anew.topics[0].topic_id = b"another one     "
    assert merge_metadata(view, anew).leader(STATE, 0) == 1, "a topic that was made anew begins anew"


def test_a_leader_that_is_not_there_is_nobody() -> None:
    view = merge_metadata(UpstreamMetadata(), metadata({1: Address("a", 1)}, {STATE: {0: (9, 1), 1: (-1, 2)}}))
    assert (view.leader(STATE, 0), view.leader(STATE, 1), view.leader("other", 0)) == (-1, -1, -1)


def test_what_cannot_be_told_of_a_topic_takes_nothing_away() -> None:
    view = merge_metadata(UpstreamMetadata(), metadata({1: Address("a", 1)}, {STATE: {0: (1, 1)}}))
    refused = metadata({1: Address("a", 1)}, {STATE: {}})
    refused.topics[0].error_code = 29
    view = merge_metadata(view, refused)
    assert (view.topics[STATE].code, view.leader(STATE, 0)) == (29, 1)


def test_who_asks_the_same_at_once_is_answered_at_once() -> None:
    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        asked = len(one.of("Metadata")) + len(two.of("Metadata"))
        await asyncio.gather(*(upstream.refresh([STATE]) for _ in range(10)))
        assert len(one.of("Metadata")) + len(two.of("Metadata")) == asked + 1

    run(story, {0: (1, 1)})


def test_who_asks_for_something_else_at_once_takes_nothing_away_from_what_others_learned() -> None:
    """The answer that comes last knew of no new leader when it was asked for."""

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        brokers = {1: one.address, 2: two.address}

        def told(request: Any) -> Any:
            leaders = {STATE: {0: (2, 2)}, "muster.security": {0: (1, 1)}}
            return metadata(brokers, {each.name: leaders[each.name] for each in request.topics})

        one.answers["Metadata"] = two.answers["Metadata"] = told
        await asyncio.gather(upstream.refresh([STATE]), upstream.refresh(["muster.security"]))
        assert upstream.leader(STATE, 0) == 2
        assert upstream.leader("muster.security", 0) == 1

    run(story, {0: (1, 1)})


def test_another_broker_is_asked_where_one_is_gone_and_the_gone_one_is_left_alone_for_a_while() -> None:
    async def story() -> None:
        async with UpstreamBroker() as gone:
            nobody = gone.address
        async with UpstreamBroker() as there:
            there.answers["Metadata"] = lambda request: metadata({2: there.address}, {})
            upstream = Upstream(UpstreamAddress((nobody, there.address), connect_s=5, answer_s=5))
            assert (await upstream.refresh([])).brokers == {2: there.address}
            assert upstream.lines.failures(nobody) == 1
            await upstream.refresh([])
            assert upstream.lines.failures(nobody) <= 1, "those without failures come first"
            upstream.close()
        lonely = Upstream(UpstreamAddress((nobody,), connect_s=5))
        with pytest.raises(Unreached, match=f"no broker of the upstream at 127.0.0.1:{nobody.port} answers"):
            await lonely.refresh([])
        lonely.close()

    asyncio.run(story())


def test_an_address_that_failed_is_tried_again_after_a_pause() -> None:
    async def story() -> None:
        async with UpstreamBroker() as gone:
            nobody = gone.address
        lines, loop = ConnectionPool(UpstreamAddress((nobody,), connect_s=5)), asyncio.get_running_loop()
        for _ in range(2):
            with pytest.raises(Unreached):
                await lines.to(nobody)
        begun_s = loop.time()
        again = asyncio.ensure_future(lines.to(nobody))
        await asyncio.wait([again], timeout=FIRST_PAUSE_S)
        assert not again.done() or loop.time() - begun_s >= FIRST_PAUSE_S
        again.cancel()
        lines.close()

    asyncio.run(story())


# -- what is written and read -----------------------------------------------------------------------------------------


def test_batches_of_several_partitions_go_in_one_request_and_each_has_its_answer() -> None:
    def answer(request: Any) -> Any:
        made = struct("ProduceResponse.responses.partition_responses")
        return struct("ProduceResponse")(
            responses=[
                struct("ProduceResponse.responses")(
                    name=STATE,
                    partition_responses=[
                        made(index=0, base_offset=41),
                        made(index=1, error_code=47, base_offset=-1, error_message="fenced"),
                    ],
                )
            ]
        )

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        two.answers["Produce"] = answer
        sent = {(STATE, 0): batch(0, "a"), (STATE, 1): batch(0, "b"), (STATE, 2): batch(0, "c")}
        told = await record_requests.produce(upstream, upstream.leader(STATE, 0), sent, 1_000)
        assert told[STATE, 0][:3] == (0, 41, "")
        assert told[STATE, 1][:3] == (47, -1, "fenced")
        assert told[STATE, 2].code == 7, "of which nothing was said"
        (request,) = two.of("Produce")
        assert (request.acks, request.timeout_ms, len(request.topic_data)) == (-1, 1_000, 1)
        assert [bytes(each.records) for each in request.topic_data[0].partition_data] == list(sent.values())

    run(story, {0: (2, 1), 1: (2, 1), 2: (2, 1)})


def fetched(offset: int, *batches: bytes, code: int = 0, start: int = 0) -> Any:
    part = struct("FetchResponse.responses.partitions")(
        partition_index=0, error_code=code, high_watermark=9, log_start_offset=start, records=b"".join(batches)
    )
    return struct("FetchResponse")(responses=[struct("FetchResponse.responses")(topic=STATE, partitions=[part])])


def test_a_load_goes_on_portion_by_portion_and_follows_the_leader() -> None:
    """It asks again where nothing came, passes over what was deleted, and stops at what it was told to read up to."""
    first = [
        fetched(0, code=6),  # it does not lead any more
        fetched(0, code=1, start=2),
        fetched(2, batch(1, "b", "c"), batch(3, "d")),
        HANG_UP,
    ]
    second = [fetched(4), fetched(4, batch(4, "e"), batch(5, "f"), batch(6, "g"))]

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        left = iter(first)

        def of_one(request: Any) -> Any:
            answer = next(left)
            if answer is HANG_UP:
                told = lambda request: metadata({1: one.address, 2: two.address}, {STATE: {0: (2, 2)}})  # noqa: E731
                one.answers["Metadata"] = two.answers["Metadata"] = told
            return answer

        more = iter(second)
        one.answers["Fetch"], two.answers["Fetch"] = of_one, lambda request: next(more)
        read = [
            (each.base_offset, each.next_offset)
            async for some in record_requests.read_log(upstream, STATE, 0, 0, 6, deadline_s=5)
            for each in some
        ]
        assert read == [(1, 3), (3, 4), (4, 5), (5, 6)]
        offsets = [request.topics[0].partitions[0].fetch_offset for request in [*one.of("Fetch"), *two.of("Fetch")]]
        assert offsets == [0, 0, 2, 4, 4, 4]
        assert all(request.isolation_level == 0 for request in one.of("Fetch")), "markers are looked at here (S5)"

    run(story, {0: (1, 1)})


def test_a_load_that_gets_nothing_gives_up_and_says_why() -> None:
    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        one.answers["Fetch"] = lambda request: fetched(0)
        with pytest.raises(Unreached, match=r"muster\.state-0 cannot be read from offset 0 to 20: it ends at 9"):
            async for _ in record_requests.read_log(upstream, STATE, 0, 0, 20, deadline_s=0.05):
                pass

    run(story, {0: (1, 1)})


def test_records_whose_checksum_is_wrong_are_not_taken() -> None:
    broken = bytearray(batch(0, "a"))
    broken[-1] ^= 1

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        one.answers["Fetch"] = lambda request: fetched(0, bytes(broken))
        with pytest.raises(Unreached, match=r"muster.state-0: The batch .* carries checksum"):
            await record_requests.fetch(upstream, 1, {(STATE, 0): 0})

    run(story, {0: (1, 1)})


def test_where_logs_end_is_asked_of_their_leader() -> None:
    def answer(request: Any) -> Any:
        made = struct("ListOffsetsResponse.topics.partitions")
        told = [made(partition_index=0, offset=7), made(partition_index=1, error_code=6, offset=-1)]
        return struct("ListOffsetsResponse")(topics=[struct("ListOffsetsResponse.topics")(name=STATE, partitions=told)])

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        one.answers["ListOffsets"] = answer
        told = await record_requests.list_offsets(upstream, 1, [(STATE, 0), (STATE, 1)])
        assert (told[STATE, 0], told[STATE, 1].code) == (record_requests.ProduceResult(0, 7), 6)

    run(story, {0: (1, 1), 1: (1, 1)})


def said_of_offsets(code: int, *parts: int) -> Any:
    made = struct("ListOffsetsResponse.topics.partitions")
    told = [made(partition_index=part, error_code=code, offset=-1) for part in parts]
    return struct("ListOffsetsResponse")(topics=[struct("ListOffsetsResponse.topics")(name=STATE, partitions=told)])


def test_where_a_log_begins_or_ends_that_an_answer_leaves_out_is_not_known() -> None:
    """It was a mistake of the program, which ends a node."""

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        one.answers["ListOffsets"] = lambda request: said_of_offsets(0, 5)
        told = await record_requests.list_offsets(upstream, 1, [(STATE, 0), (STATE, 1)])
        assert {place: each.code for place, each in told.items()} == {(STATE, 0): 7, (STATE, 1): 7}
        for ask in (record_requests.log_start, record_requests.log_span):
            with pytest.raises(UpstreamRefused, match=r"muster.state-0 begins.*REQUEST_TIMED_OUT"):
                await ask(upstream, STATE, 0)

    run(story, {0: (1, 1), 1: (1, 1)})


def test_a_shard_that_may_not_be_read_is_not_an_empty_one() -> None:
    rows: list[Any] = []

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        one.answers["ListOffsets"] = lambda request: said_of_offsets(29, 0)
        with pytest.raises(UpstreamRefused, match=r"TOPIC_AUTHORIZATION_FAILED"):
            await dump_shard_log(upstream.reach, STATE, 0, rows.append)

    run(story, {0: (1, 1)})
    assert rows == []


# -- coordinators ---------------------------------------------------------------------------------------------------


def coordinator(node: int, address: Address, code: int = 0) -> Any:
    return struct("FindCoordinatorResponse")(error_code=code, node_id=node, host=address.host, port=address.port)


def test_a_coordinator_is_looked_for_once_and_anew_when_it_is_another_or_gone() -> None:
    given = struct("InitProducerIdResponse")
    answers = [given(producer_id=7), given(error_code=16), given(producer_id=7, producer_epoch=1), HANG_UP, given()]

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        left = iter(answers)
        for each in (one, two):
            each.answers["FindCoordinator"] = lambda request: coordinator(2, two.address)
        two.answers["InitProducerId"] = lambda request: next(left)

        async def init() -> record_requests.InitializedProducer:
            return await record_requests.init_producer(upstream, "muster.shard-0")

        def looked() -> int:
            return len(one.of("FindCoordinator")) + len(two.of("FindCoordinator"))

        assert await init() == (0, 7, 0)
        assert ((await init()).code, looked()) == (16, 1)
        assert (await init(), looked()) == ((0, 7, 1), 2)
        with pytest.raises(Unreached):
            await init()
        assert ((await init()).code, looked()) == (0, 3)
        request = one.of("FindCoordinator") + two.of("FindCoordinator")
        assert {(each.key, each.key_type) for each in request} == {("muster.shard-0", TRANSACTION)}

    run(story, {})


def test_a_coordinator_that_is_not_there_is_a_refusal_by_its_code() -> None:
    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        for each in (one, two):
            each.answers["FindCoordinator"] = lambda request: coordinator(-1, Address("", -1), code=15)
        with pytest.raises(
            UpstreamRefused, match=r"coordinator of muster.shard-3: .* COORDINATOR_NOT_AVAILABLE \(15\)"
        ):
            await record_requests.init_producer(upstream, "muster.shard-3")

    run(story, {})


def test_coordinators_of_any_number_of_groups_are_not_kept_in_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node asks for each group that somebody names and it does not know (KB-M2): names cost a stranger nothing."""
    monkeypatch.setattr(asking, "MOST_COORDINATORS", 3)

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        for each in (one, two):
            each.answers["FindCoordinator"] = lambda request: coordinator(1, one.address)
        one.answers["InitProducerId"] = lambda request: struct("InitProducerIdResponse")(producer_id=7)
        for number in range(10):
            await record_requests.init_producer(upstream, f"id-{number}")
        assert [key for _, key in upstream._coordinators] == ["id-7", "id-8", "id-9"]

    run(story, {})


def test_a_partition_is_put_into_a_clients_transaction() -> None:
    def answer(request: Any) -> Any:
        by = struct("AddPartitionsToTxnResponse.results.results_by_partition")
        one = struct("AddPartitionsToTxnResponse.results")(
            name=STATE, results_by_partition=[by(partition_index=3, partition_error_code=51)]
        )
        return struct("AddPartitionsToTxnResponse")(results=[one])

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        one.answers["FindCoordinator"] = two.answers["FindCoordinator"] = lambda request: coordinator(1, one.address)
        one.answers["AddPartitionsToTxn"] = answer
        assert await record_requests.add_partition_to_transaction(upstream, "app", (9, 2), (STATE, 3)) == 51
        (request,) = one.of("AddPartitionsToTxn")
        assert (request.transactional_id, request.producer_id, request.producer_epoch) == ("app", 9, 2)
        two.answers["AddPartitionsToTxn"] = lambda request: struct("AddPartitionsToTxnResponse")()
        assert await record_requests.add_partition_to_transaction(upstream, "app", (9, 2), (STATE, 3), 2) == 15, (
            "of broker 2, as asked"
        )
        assert len(one.of("AddPartitionsToTxn")) == 1

    run(story, {})


def test_a_member_joins_syncs_beats_and_leaves_by_its_instance() -> None:
    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        one.answers["FindCoordinator"] = two.answers["FindCoordinator"] = lambda request: coordinator(1, one.address)
        left = struct("LeaveGroupResponse")(members=[struct("LeaveGroupResponse.members")(error_code=82)])
        one.answers |= {
            "JoinGroup": lambda request: struct("JoinGroupResponse")(generation_id=4, member_id="m", leader="m"),
            "SyncGroup": lambda request: struct("SyncGroupResponse")(assignment=b"map"),
            "Heartbeat": lambda request: struct("HeartbeatResponse")(error_code=27),
            "LeaveGroup": lambda request: left,
        }
        member = UpstreamMembership(upstream, "muster.nodes", "node-2", "muster")
        joined = await member.join("", 10_000, 10_000, {"muster-1": b"bid"})
        assert (joined.generation_id, joined.member_id) == (4, "m")
        assert bytes((await member.sync("m", 4, "muster-1", {"m": b"map"}, 10_000)).assignment) == b"map"
        assert (await member.heartbeat("m", 4), await member.leave("m")) == (27, 82)
        (gone,) = one.of("LeaveGroup")
        assert [(each.member_id, each.group_instance_id) for each in gone.members] == [("m", "node-2")]
        (asked,) = one.of("JoinGroup")
        assert (asked.group_instance_id, asked.session_timeout_ms, asked.protocol_type) == ("node-2", 10_000, "muster")

    run(story, {})


def test_a_heartbeat_waits_for_nothing_else_that_a_member_asks() -> None:
    """A connection's answers come in order. With a look at the group in front of it, it ended with that, too."""

    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        asked, answers = asyncio.Event(), asyncio.Event()

        async def described(request: Any) -> Any:
            asked.set()
            await answers.wait()
            return struct("DescribeGroupsResponse")()

        one.answers |= {
            "FindCoordinator": lambda request: coordinator(1, one.address),
            "DescribeGroups": described,
            "Heartbeat": lambda request: struct("HeartbeatResponse")(),
        }
        member = UpstreamMembership(upstream, "muster.nodes", "node-2", "muster")
        for look in (member.is_rebalancing, member.fellows):
            looking = asyncio.create_task(look())
            await asked.wait()
            assert await member.heartbeat("m", 4) == 0
            assert not looking.done()
            answers.set()
            assert not await looking
            asked.clear(), answers.clear()

    run(story, {})


# -- topics ---------------------------------------------------------------------------------------------------------


def test_a_topic_is_made_by_the_controller_and_its_settings_are_read() -> None:
    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        made = struct("CreateTopicsResponse.topics")
        config = struct("DescribeConfigsResponse.results.configs")(name="cleanup.policy", value="compact")
        result = struct("DescribeConfigsResponse.results")(configs=[config])
        one.answers["CreateTopics"] = lambda request: struct("CreateTopicsResponse")(topics=[made(error_code=36)])
        one.answers["DescribeConfigs"] = lambda request: struct("DescribeConfigsResponse")(results=[result])
        two.answers["DescribeConfigs"] = one.answers["DescribeConfigs"]
        await topic_requests.create_topic(upstream, STATE, 50, 3, {"cleanup.policy": "compact"})
        assert await topic_requests.topic_configs(upstream, STATE, ["cleanup.policy"]) == {"cleanup.policy": "compact"}
        one.answers["CreateTopics"] = lambda request: struct("CreateTopicsResponse")(
            topics=[made(error_code=38, error_message="only 1 broker")]
        )
        with pytest.raises(
            UpstreamRefused, match=r"making the topic muster.state: .*REPLICATION_FACTOR \(38\) \(only 1 broker\)"
        ):
            await topic_requests.create_topic(upstream, STATE, 50, 3, {})

    run(story, {0: (1, 1)})


def test_what_an_upstream_lacks_is_named() -> None:
    async def story(upstream: Upstream, one: UpstreamBroker, two: UpstreamBroker) -> None:
        assert await upstream.lacks() == []
        for each in (one, two):
            each.offers[22] = (0, 0)
        anew = Upstream(upstream.reach)
        assert await anew.lacks() == ["InitProducerId 1"]
        anew.close()

    run(story, {})


def test_codes_have_names_and_versions_are_within_the_schema() -> None:
    assert describe_code(90) == "PRODUCER_FENCED (90)"
    from muster.coordinator.kafka.codec.messages import all_messages

    for name, api in SUPPORTED_APIS.items():
        assert {api.first, api.last} <= set(all_messages()[f"{name}Request"].versions), name
    assert [each.base_offset for each in read_batches(batch(3, "a") + batch(4, "b"))] == [3, 4]
