"""What the guard takes out of answers, where refused rows stand, and what becomes of calls that go on."""

import asyncio
import json
from collections.abc import AsyncIterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Final

import pytest
from google.protobuf.message import Message

from muster.coordinator.errors import CallDenied, NotAuthenticated
from muster.coordinator.rpc.v1 import control_service_pb2 as control_pb
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.security.access_model import (
    Acl,
    Identity,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
)
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.server.rpc_dispatch import FastPathHandler, MethodKind, ServiceMethod, fast_path_of
from muster.coordinator.server.security.answer_judges import OTHER_NAMES
from muster.coordinator.server.security.audit_log import AuditLog, Line
from muster.coordinator.server.security.call_guard import guard_method
from muster.coordinator.server.security.call_rights import CallRights
from muster.coordinator.server.services.shared_session import SharedSessionHandler
from muster.storage.rpc.v1 import broker_service_pb2 as log_pb
from muster.storage.rpc.v1 import staging_service_pb2 as staging_pb

BOB: Final = Identity(Principal("User", "bob"), "10.0.0.7", "TOKEN")
CALL: Final = SimpleNamespace(identity=BOB, door="grpc")
GROUPS, BROKER, STAGING = "/coordinator.rpc.v1.GroupCoordinator/", "/storage.rpc.v1.Broker/", "/storage.rpc.v1.Staging/"


def allow(kind: str, operation: str, name: str, permission: str = "ALLOW") -> Acl:
    pattern = PatternType.PREFIXED if name.endswith("*") and name != "*" else PatternType.LITERAL
    name = name if name == "*" else name.rstrip("*")
    return Acl(ResourceType[kind], pattern, name, "User:bob", "*", Operation[operation], Permission[permission])


class Guarded:
    """One method that answers `answer`."""

    def __init__(
        self, full_name: str, request: Any, answer: Any, *acls: Acl, kind: MethodKind = MethodKind.UNARY
    ) -> None:
        self.seen: list[Any] = []
        self.lines: list[Line] = []
        self.answer = answer
        self.authorizer = AclAuthorizer()
        self.rights = CallRights(self.authorizer, AuditLog(self.lines.append), lambda: {"orders", "secret"})
        self.grant(*acls)
        handler = self.handle if kind is MethodKind.UNARY else answer
        self.ask = guard_method(
            ServiceMethod(full_name, kind, type(request), type(answer), handler), self.rights, self.staged
        )

    def grant(self, *acls: Acl) -> None:
        self.authorizer.replace(acls)
        self.rights.changed.notify_waiters()

    async def handle(self, request: Any, call: Any) -> Any:
        self.seen.append(request)
        return self.answer

    async def staged(self, request: Any) -> list[str]:
        return ["orders"]


def answered(full_name: str, request: Any, answer: Any, *acls: Acl) -> Any:
    return asyncio.run(Guarded(full_name, request, answer, *acls).ask(request, CALL))


def test_groups_that_one_may_not_describe_are_not_listed() -> None:
    every = pb.ListGroupsResponse(groups=[pb.ListedGroup(group_id="billing"), pb.ListedGroup(group_id="hr")])
    request = pb.ListGroupsRequest()
    found = answered(GROUPS + "ListGroups", request, every, allow("GROUP", "READ", "billing"))
    assert [group.group_id for group in found.groups] == ["billing"]
    assert not answered(GROUPS + "ListGroups", request, pb.ListGroupsResponse(groups=found.groups)).groups
    both = pb.ListGroupsResponse(groups=[pb.ListedGroup(group_id="billing"), pb.ListedGroup(group_id="hr")])
    cluster = allow("CLUSTER", "DESCRIBE", "kafka-cluster")
    assert len(answered(GROUPS + "ListGroups", request, both, cluster).groups) == 2


def test_a_refused_row_stands_at_its_place_with_all_its_partitions() -> None:
    request = log_pb.ListOffsetsRequest()
    for name in ("a", "secret", "b"):
        row = request.topics.add(name=name)
        row.partitions.add(partition_index=3)
        row.partitions.add(partition_index=5)
    answer = log_pb.ListOffsetsResponse()
    for name in ("a", "b"):
        answer.topics.add(name=name).partitions.add(partition_index=3, offset=7)
    door = Guarded(
        BROKER + "ListOffsets", request, answer, allow("TOPIC", "DESCRIBE", "a"), allow("TOPIC", "READ", "b")
    )
    found = asyncio.run(door.ask(request, CALL))
    assert [row.name for row in found.topics] == ["a", "secret", "b"]
    assert [(part.partition_index, part.error_code, part.offset) for part in found.topics[1].partitions] == [
        (3, 29, -1),
        (5, 29, -1),
    ]
    assert [row.name for row in door.seen[0].topics] == ["a", "b"], "the handler never hears of it"
    assert [row.name for row in request.topics] == ["a", "secret", "b"], "the request itself stays as it is"


def test_of_an_encoded_fetch_refused_rows_are_part() -> None:
    request = log_pb.MultiFetchRequest(max_wait_ms=5)
    for name in ("secret", "orders"):
        request.fetches.add(topic=name, partition=2)
    told = log_pb.MultiFetchResponse()
    told.results.add(topic="orders").result.records = b"bytes"
    door = Guarded(BROKER + "MultiFetch", request, told, allow("TOPIC", "READ", "orders"))
    door.answer = told.SerializeToString()
    found = asyncio.run(door.ask(request, CALL))
    assert [(row.topic, row.result.error_code, row.result.records) for row in found.results] == [
        ("secret", 29, b""),
        ("orders", 0, b"bytes"),
    ]
    assert door.seen[0].max_wait_ms == 5


@pytest.mark.parametrize("api", ["Fetch", "MultiFetch"])
def test_records_that_were_waited_for_go_to_nobody_who_lost_the_right_or_the_token(api: str) -> None:
    """Whoever had begun to wait before got what was written afterwards."""

    async def story() -> None:
        for lost in ("nothing", "another's", "right", "token"):
            request: Any = log_pb.FetchRequest(max_wait_ms=5_000)
            answer: Any = log_pb.FetchResponse()
            if api == "Fetch":
                request.topics.add(topic="orders").partitions.add(partition=1)
                answer.responses.add(topic="orders").partitions.add(partition_index=1, records=b"late")
            else:
                request, answer = log_pb.MultiFetchRequest(max_wait_ms=5_000), log_pb.MultiFetchResponse()
                request.fetches.add(topic="orders", partition=1)
                answer.results.add(topic="orders").result.records = b"late"
            door = Guarded(BROKER + api, request, answer, allow("TOPIC", "READ", "orders"))
            waiting, come = asyncio.Event(), asyncio.Event()

            async def held(
                request: Any, call: Any, door: Guarded = door, waiting: Any = waiting, come: Any = come
            ) -> Any:
                door.seen.append(request)
                waiting.set()
                await come.wait()
                return door.answer.SerializeToString()

            method = ServiceMethod(BROKER + api, MethodKind.UNARY, type(request), type(answer), held)
            asked = asyncio.ensure_future(guard_method(method, door.rights, door.staged)(request, CALL))
            await waiting.wait()
            if lost == "right":
                door.grant()
            elif lost == "another's":
                door.grant(allow("TOPIC", "READ", "orders"), allow("TOPIC", "READ", "x"))
            elif lost == "token":
                door.rights.believed = lambda who: False
            come.set()
            if lost == "token":
                with pytest.raises(NotAuthenticated):
                    await asked
                continue
            found = await asked
            told = found if isinstance(found, bytes) else found.SerializeToString()
            assert (b"late" in told) == (lost != "right"), lost
            assert len(door.seen) == 1

    asyncio.run(story())


def test_a_handler_is_not_asked_for_nothing() -> None:
    """DescribeConfigs without topics would be the node's settings."""
    request = log_pb.DescribeConfigsRequest(topics=["secret"])
    door = Guarded(BROKER + "DescribeConfigs", request, log_pb.DescribeConfigsResponse())
    found = asyncio.run(door.ask(request, CALL))
    assert [(row.topic, row.error_code) for row in found.results] == [("secret", 29)]
    assert not door.seen


def test_the_nodes_own_settings_need_a_right_to_the_cluster() -> None:
    request = log_pb.DescribeConfigsRequest()
    whole = log_pb.DescribeConfigsResponse(results=[log_pb.DescribedConfigs()])
    refused = answered(BROKER + "DescribeConfigs", request, whole)
    assert [row.error_code for row in refused.results] == [31]
    may = allow("CLUSTER", "ALTER_CONFIGS", "kafka-cluster")
    assert answered(BROKER + "DescribeConfigs", request, whole, may) == whole


def test_all_topics_are_those_that_one_may_describe() -> None:
    answer = log_pb.MetadataResponse(topics=[log_pb.TopicMetadata(name=name) for name in ("orders", "secret")])
    found = answered(BROKER + "Metadata", log_pb.MetadataRequest(all_topics=True), answer, allow("TOPIC", "READ", "o*"))
    assert [topic.name for topic in found.topics] == ["orders"]


def test_a_name_is_refused_whether_it_exists_or_not() -> None:
    named = log_pb.MetadataRequest(topics=["secret", "not there"])
    found = answered(BROKER + "Metadata", named, log_pb.MetadataResponse())
    assert [(topic.name, topic.error_code, topic.error_message) for topic in found.topics] == [
        ("secret", 29, ""),
        ("not there", 29, ""),
    ]


def test_who_may_know_is_told_what_is_missing_and_how_to_grant_it() -> None:
    request = pb.RemoveMembersRequest(group_id="billing")
    found = answered(GROUPS + "RemoveMembers", request, pb.RemoveMembersResponse(), allow("GROUP", "DESCRIBE", "*"))
    assert found.error_code == 30
    assert found.error_message == (
        "User:bob at 10.0.0.7 lacks READ on GROUP 'billing'; "
        "muster acls add --allow-principal User:bob --operation READ --group billing"
    )
    assert answered(GROUPS + "RemoveMembers", request, pb.RemoveMembersResponse()).error_message == ""


def rebalance() -> ledger_pb2.Rebalance:
    snapshot = {
        "topics": {"orders": 1, "secret": 2, "gone": 1},
        "members": [{"id": "m", "topics": ["orders", "secret"], "owned": {"secret": [0]}, "user_data": "c2VjcmV0"}],
        "lags": {"secret": [4, 5]},
        "options": {"secret": 1},
    }
    plan = ledger_pb2.MemberPlan(member_id="m")
    for topic in ("orders", "secret"):
        plan.assigned.add(topic=topic, partitions=[0])
    return ledger_pb2.Rebalance(
        number=4,
        detail="topic secret has 2 partitions now; orders, too (secret.)",
        members=[plan],
        moves=[ledger_pb2.PartitionMove(topic="secret"), ledger_pb2.PartitionMove(topic="orders", why="as secret")],
        positions=[ledger_pb2.PositionChange(topic="gone")],
        late_fetches=[ledger_pb2.LateFetch(member_id="m", topic="secret")],
        also=["secret was looked at"],
        snapshot_json=json.dumps(snapshot),
    )


def test_a_ledger_entry_names_no_topic_that_its_reader_may_not_describe() -> None:
    answer = pb.ExplainGroupResponse(rebalances=[rebalance()])
    rights = allow("GROUP", "DESCRIBE", "g"), allow("TOPIC", "DESCRIBE", "orders")
    found = answered(GROUPS + "ExplainGroup", pb.ExplainGroupRequest(group_id="g"), answer, *rights)
    text = str(found)
    assert "secret" not in text
    assert "gone" not in text
    assert "c2VjcmV0" not in text
    (entry,) = found.rebalances
    assert entry.detail.endswith("(2 topics you may not describe left out)")
    assert [part.topic for part in entry.members[0].assigned] == ["orders"]
    assert json.loads(entry.snapshot_json)["topics"] == {"orders": 1}


def fill_texts(message: Message, text: str, topic: str) -> None:
    """Every text of a message, and of one more message in each of its lists."""
    for field in message.DESCRIPTOR.fields:
        if field.name in OTHER_NAMES - {"topic"}:
            continue
        value = getattr(message, field.name)
        if field.type == field.TYPE_STRING:
            if isinstance(value, str):
                setattr(message, field.name, topic if field.name == "topic" else text)
            else:
                value.append(text)
        elif field.type == field.TYPE_MESSAGE:
            fill_texts(value.add(), text, topic)


def test_no_field_of_an_entry_names_a_hidden_topic() -> None:
    """Also none that is added: each text of it is found by looking at the contract."""
    entry = ledger_pb2.Rebalance()
    fill_texts(entry, "orders and secret.", "secret")
    assert str(entry).count("secret") > 10
    answer = pb.ExplainGroupResponse(rebalances=[entry])
    rights = allow("GROUP", "DESCRIBE", "g"), allow("TOPIC", "DESCRIBE", "orders")
    found = answered(GROUPS + "ExplainGroup", pb.ExplainGroupRequest(group_id="g"), answer, *rights)
    assert "secret" not in str(found)
    (left,) = found.rebalances
    assert left.evidence == "orders and a topic you may not describe."
    assert not left.topics
    assert len(left.triggers) == 1


def test_who_may_describe_everything_reads_the_entry_as_it_is() -> None:
    answer = pb.ExplainGroupResponse(rebalances=[rebalance()])
    rights = allow("GROUP", "DESCRIBE", "g"), allow("TOPIC", "DESCRIBE", "*")
    found = answered(GROUPS + "ExplainGroup", pb.ExplainGroupRequest(group_id="g"), answer, *rights)
    assert found.rebalances[0] == rebalance()


def test_a_simulation_of_topics_that_one_may_not_describe_is_refused() -> None:
    answer = pb.SimulateAssignmentResponse(snapshot_json=json.dumps({"topics": {"secret": 1}, "members": []}))
    request = pb.SimulateAssignmentRequest(group_id="g")
    found = answered(GROUPS + "SimulateAssignment", request, answer, allow("GROUP", "DESCRIBE", "g"))
    assert (found.error_code, found.snapshot_json) == (29, "")
    own = pb.SimulateAssignmentRequest(snapshot_json=answer.snapshot_json)
    assert answered(GROUPS + "SimulateAssignment", own, answer) == answer


def test_a_kip_848_group_with_hidden_topics_is_not_described() -> None:
    member = pb.ConsumerGroupMember(member_id="m", subscribed_topic_names=["secret"])
    answer = pb.ConsumerGroupDescribeResponse(groups=[pb.DescribedConsumerGroup(group_id="g", members=[member])])
    request = pb.ConsumerGroupDescribeRequest(group_ids=["g"])
    found = answered(GROUPS + "ConsumerGroupDescribe", request, answer, allow("GROUP", "DESCRIBE", "g"))
    assert (found.groups[0].error_code, len(found.groups[0].members)) == (29, 0)


@pytest.mark.parametrize("what", ["ListGroups", "DescribeGroups"])
def test_a_group_s_health_is_told_to_who_may_describe_all_that_it_reads(what: str) -> None:
    """Its reason named a topic, and a lag over one is a figure of it."""
    request: Any = getattr(pb, f"{what}Request")()
    if what == "DescribeGroups":
        request.groups.append("g")
    rights = allow("GROUP", "DESCRIBE", "g"), allow("TOPIC", "DESCRIBE", "orders")
    for more, told in ((), False), ((allow("TOPIC", "DESCRIBE", "secret"),), True):
        answer: Any = getattr(pb, f"{what}Response")()
        answer.groups.add(group_id="g", progress=pb.GroupProgress(lag=3, health="WARN", reason="secret-0 is behind"))
        door = Guarded(GROUPS + what, request, answer, *rights, *more)
        door.rights.topics_of_group = lambda group: {"orders", "secret"}
        (group,) = asyncio.run(door.ask(request, CALL)).groups
        assert group.HasField("progress") is told


def test_pins_of_hidden_topics_are_left_out() -> None:
    pins = [control_pb.HeldPin(pin=control_pb.Pin(topic=name)) for name in ("orders", "secret")]
    answer = control_pb.DescribeHoldsResponse(holds=control_pb.Holds(pins=pins))
    rights = allow("GROUP", "DESCRIBE", "g"), allow("TOPIC", "DESCRIBE", "orders")
    request = control_pb.DescribeHoldsRequest(group_id="g")
    found = answered("/coordinator.rpc.v1.GroupControl/DescribeHolds", request, answer, *rights)
    assert [held.pin.topic for held in found.holds.pins] == ["orders"]


@pytest.mark.parametrize("what", ["HoldGroup", "ResumeGroup", "StartCanary"])
def test_moves_of_hidden_topics_leave_no_part_that_looks_like_the_whole(what: str) -> None:
    request = getattr(control_pb, f"{what}Request")(group_id="g")
    moves = [control_pb.ForecastMove(topic=name, source="a", target="b") for name in ("orders", "secret")]
    answer = getattr(control_pb, f"{what}Response")(moves=moves)
    rights = allow("GROUP", "ALTER_CONFIGS", "g"), allow("TOPIC", "DESCRIBE", "orders")
    found = answered(f"/coordinator.rpc.v1.GroupControl/{what}", request, answer, *rights)
    assert (list(found.moves), found.moves_unknown != "", "secret" in str(found)) == ([], True, False)
    everything = (*rights, allow("TOPIC", "DESCRIBE", "*"))
    assert answered(f"/coordinator.rpc.v1.GroupControl/{what}", request, answer, *everything) == answer


@pytest.mark.parametrize("what", ["CommitStaged", "AbortStaged"])
def test_what_was_staged_is_decided_by_who_may_write_there(what: str) -> None:
    request, answer = getattr(staging_pb, f"{what}Request")(sink="s"), getattr(staging_pb, f"{what}Response")
    assert answered(STAGING + what, request, answer()).error_code == 29
    assert answered(STAGING + what, request, answer(), allow("TOPIC", "WRITE", "orders")).error_code == 0


def test_an_empty_batch_is_decided_by_who_may_write_anywhere() -> None:
    class Nothing(Guarded):
        async def staged(self, request: Any) -> list[str]:
            return []

    request, answer = staging_pb.CommitStagedRequest(sink="s"), staging_pb.CommitStagedResponse()
    for acls, code in (((), 29), ((allow("TOPIC", "READ", "*"),), 29), ((allow("TOPIC", "WRITE", "x"),), 0)):
        door = Nothing(STAGING + "CommitStaged", request, answer, *acls)
        assert asyncio.run(door.ask(request, CALL)).error_code == code


@pytest.mark.parametrize(
    ("acls", "codes"),
    [
        ((), (31, 53)),
        ((allow("TOPIC", "WRITE", "x"),), (0, 53)),
        ((allow("CLUSTER", "IDEMPOTENT_WRITE", "kafka-cluster"),), (0, 53)),
        ((allow("TRANSACTIONAL_ID", "WRITE", "mine"),), (31, 0)),
        ((allow("TOPIC", "WRITE", "x"), allow("TOPIC", "WRITE", "*", "DENY")), (31, 53)),
    ],
)
def test_a_producer_id_is_for_who_may_produce(acls: tuple[Acl, ...], codes: tuple[int, int]) -> None:
    found = []
    for transactional_id in ("", "mine"):
        request = log_pb.InitProducerIdRequest(transactional_id=transactional_id)
        found.append(answered(BROKER + "InitProducerId", request, log_pb.InitProducerIdResponse(), *acls).error_code)
    assert tuple(found) == codes


# -- calls that go on ---------------------------------------------------------------------------------------


async def for_ever(request: Any, call: Any) -> AsyncIterator[pb.WatchGroupResponse]:
    yield pb.WatchGroupResponse(group_id="g", rebalance=rebalance())
    await asyncio.Event().wait()


def test_a_watch_ends_when_its_right_is_taken_away_and_names_nothing_hidden() -> None:
    async def watch() -> None:
        request = pb.WatchGroupRequest(group_id="g")
        door = Guarded(
            GROUPS + "WatchGroup", request, for_ever, allow("GROUP", "DESCRIBE", "g"), kind=MethodKind.SERVER_STREAM
        )
        stream = door.ask(request, CALL)
        assert "secret" not in str(await anext(stream))
        following = asyncio.ensure_future(anext(stream))
        await asyncio.sleep(0)
        door.grant(allow("GROUP", "DESCRIBE", "g"), allow("TOPIC", "READ", "x"))
        await asyncio.sleep(0)
        assert not following.done(), "a change that takes nothing away ends nothing"
        door.grant()
        async with asyncio.timeout(10):
            with pytest.raises(CallDenied):
                await following

    asyncio.run(watch())


class Member:
    """What a member says on its stream, word for word."""

    def __init__(self, *acls: Acl) -> None:
        self.words: asyncio.Queue[pb.SessionRequest | None] = asyncio.Queue()
        self.heard: list[Any] = []
        self.door = Guarded(GROUPS + "Session", pb.SessionRequest(), self.handle, *acls, kind=MethodKind.BOTH_STREAM)
        self.stream = self.door.ask(self.said(), CALL)

    async def said(self) -> AsyncIterator[pb.SessionRequest]:
        while (word := await self.words.get()) is not None:
            yield word

    async def handle(self, requests: Any, call: Any) -> AsyncIterator[pb.SessionResponse]:
        number = 0
        async for request in requests:
            self.heard.append(request)
            number += 1
            yield pb.SessionResponse(sequence_number=number, rebalance=pb.SessionRebalance(cause_detail="secret grew"))

    def say(self, **word: Any) -> None:
        self.words.put_nowait(pb.SessionRequest(**word))


HELLO: Final = pb.SessionHello(group_id="g", member_id="m")
MEMBER: Final = allow("GROUP", "READ", "g")


def test_a_session_without_the_right_hears_the_code_and_nothing_else() -> None:
    async def story() -> None:
        member = Member()
        member.say(hello=HELLO)
        answers = [answer async for answer in member.stream]
        assert [(a.sequence_number, a.fenced.error_code) for a in answers] == [(1, 30)]
        assert not member.heard

    asyncio.run(story())


def test_an_open_session_loses_what_its_member_lost() -> None:
    async def story() -> None:
        member = Member(MEMBER)
        member.say(hello=HELLO)
        first = await anext(member.stream)
        assert "secret" not in first.rebalance.cause_detail
        waiting = asyncio.ensure_future(anext(member.stream))
        await asyncio.sleep(0)
        member.door.grant()
        async with asyncio.timeout(10):
            fenced = await waiting
            assert (fenced.sequence_number, fenced.fenced.error_code) == (2, 30)
            assert [each async for each in member.stream] == []

    asyncio.run(story())


def test_a_heartbeat_for_a_topic_that_one_may_not_describe_ends_the_session() -> None:
    async def story() -> None:
        member = Member(MEMBER)
        member.say(hello=HELLO)
        await anext(member.stream)
        names = pb.SubscribedTopicNames(names=["secret"])
        member.say(consumer_group_heartbeat=pb.ConsumerGroupHeartbeatRequest(subscribed_topic_names=names))
        assert [each.fenced.error_code async for each in member.stream] == [29]
        assert len(member.heard) == 1

    asyncio.run(story())


def test_somebody_elses_group_is_no_way_around() -> None:
    async def story() -> None:
        member = Member(MEMBER)
        member.say(hello=HELLO)
        await anext(member.stream)
        member.say(register_consumer=pb.RegisterConsumer(group_id="hr"))
        assert [each.fenced.error_code async for each in member.stream] == [30]

    asyncio.run(story())


def test_the_short_way_of_a_heartbeat_is_for_who_has_the_right_now() -> None:
    short: list[str] = []
    bob = replace(BOB, token_id="anew")
    call = SimpleNamespace(identity=bob, door="grpc")
    door = Guarded(GROUPS + "Heartbeat", pb.HeartbeatRequest(), pb.HeartbeatResponse(error_message="long"))

    def well(request: Any, call: Any) -> bool:
        short.append(request.group_id)
        return True

    inner = ServiceMethod(
        GROUPS + "Heartbeat",
        MethodKind.UNARY,
        pb.HeartbeatRequest,
        pb.HeartbeatResponse,
        FastPathHandler(door.handle, well),
    )
    outer = guard_method(inner, door.rights, door.staged)
    cleared = fast_path_of(outer)
    assert cleared is not None

    def beat(group: str) -> str:
        request = pb.HeartbeatRequest(group_id=group)
        return "short" if cleared(request, call) else asyncio.run(outer(request, call)).error_message or "refused"

    mine = allow("GROUP", "READ", "mine")
    assert beat("mine") == "refused"
    door.grant(mine)
    assert [beat("mine"), beat("mine"), beat("other"), beat("")] == ["long", "short", "refused", "long"]
    door.grant()
    assert beat("mine") == "refused"
    door.grant(mine)
    assert [beat("mine"), beat("mine")] == ["long", "short"]
    assert short == ["mine", "mine"]


def test_members_on_one_stream_are_judged_each_for_itself() -> None:
    """Who has no right hears the code and is out; who loses it goes as well; the others hear what they heard before."""

    async def story() -> None:
        served = Member()
        words: asyncio.Queue[pb.SharedSessionRequest] = asyncio.Queue()
        both = [allow("GROUP", "READ", "g"), allow("GROUP", "READ", "h")]
        name = GROUPS + "SharedSession"
        door = Guarded(
            name, pb.SharedSessionRequest(), SharedSessionHandler(served.handle), *both, kind=MethodKind.BOTH_STREAM
        )

        async def said() -> AsyncIterator[pb.SharedSessionRequest]:
            while True:
                yield await words.get()

        def say(*groups: str) -> None:
            hellos = [pb.SessionRequest(hello=pb.SessionHello(group_id=group, member_id="m")) for group in groups]
            requests = [pb.MemberRequest(member=number, request=hello) for number, hello in enumerate(hellos)]
            words.put_nowait(pb.SharedSessionRequest(requests=requests))

        async def heard(most: int) -> list[tuple[int, str, int]]:
            found: list[tuple[int, str, int]] = []
            while len(found) < most:
                for each in (await anext(stream)).responses:
                    assert "secret" not in each.response.rebalance.cause_detail
                    event = each.response.WhichOneof("event") if each.HasField("response") else "ended"
                    found.append((each.member, str(event), each.response.fenced.error_code))
            return sorted(found)

        stream = door.ask(said(), CALL)
        say("g", "h", "elsewhere")
        async with asyncio.timeout(10):
            assert await heard(4) == [(0, "rebalance", 0), (1, "rebalance", 0), (2, "ended", 0), (2, "fenced", 30)]
            door.grant(both[0])
            assert await heard(2) == [(1, "ended", 0), (1, "fenced", 30)]
        assert [request.hello.group_id for request in served.heard] == ["g", "h"]
        await stream.aclose()

    asyncio.run(story())
