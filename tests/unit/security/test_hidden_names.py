"""No answer of gRPC, and so of HTTP and the command line, names a topic or group that its caller may not describe.

A hidden name is planted in every text of every answer of every method, whatever the text means today; a field that
names something else is listed here. Kafka's door: tests/unit/kafka/rights/test_rights_hidden_names.py.
"""

import asyncio
import json
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

import pytest
from google.protobuf import message_factory
from google.protobuf.message import Message

from muster.assignors.data.consumer_protocol import Subscription, encode_assignment, encode_subscription
from muster.coordinator.errors import CallDenied
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.security.access_model import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.server.rpc_dispatch import MethodKind, ServiceMethod, kind_of
from muster.coordinator.server.security.answer_judges import JUDGED_BY_SENTENCE, SENTENCES, UNJUDGED
from muster.coordinator.server.security.audit_log import AuditLog, Line
from muster.coordinator.server.security.call_guard import guard_method
from muster.coordinator.server.security.call_rights import CallRights
from tests.unit.security.test_grpc_matrix import BOB, DESCRIPTORS, by_path, put

SECRET, PLAIN, GROUP = "zebra", "orders", "billing"
CALL: Final = SimpleNamespace(identity=BOB, door="grpc")

SOMETHING_ELSE: Final = frozenset(
    {
        *(
            "group_id",
            "protocol_type",
            "protocol_data",
            "protocol_name",
            "group_state",
            "group_type",
            "state",
            "health",
        ),
        *("member_id", "client_id", "client_host", "client_software", "group_instance_id", "leader", "culprit"),
        *("culprit_client_id", "culprit_client_host", "previous_id", "waiting_for", "waited_for", "heaviest", "source"),
        *("target", "host", "rack", "rack_id", "listener", "cluster_id", "door", "address", "impairs", "how", "mode"),
        *("member_state", "clean", "records", "records_bootstrap", "snapshot_source", "token_id", "principal", "by"),
        *("assignor", "former", "operator", "guard", "offered_assignors", "assignor_name"),
        *("transactional_id", "unknown_states", "client_address", "producer_address", "producer_software"),
    }
)
"""Fields that name no topic, by their own name; a member or a group may be called as a topic is."""
ALSO: Final = frozenset(
    {
        "coordinator.rpc.v1.RebalancePhase.name",
        "coordinator.rpc.v1.Pin.name",
        "coordinator.rpc.v1.Drain.name",
        "storage.rpc.v1.ConfigEntry.name",
    }
)
NAMES: Final = frozenset({"topic", "topic_name", "name", "subscribed_topic_names", "topics"})
SENTENCE: Final = (
    f"{SECRET}-3 has stopped; '{SECRET}', {SECRET}: {SECRET}-[0, 1] and {SECRET}-0, of {PLAIN} and {SECRET}."
)
SNAPSHOT: Final = json.dumps(
    {
        "topics": {SECRET: 1, PLAIN: 1},
        "lags": {SECRET: {"0": 1}},
        "members": [{"topics": [SECRET, PLAIN], "owned": {SECRET: [0]}}],
    }
)
METADATA: Final = encode_subscription(
    Subscription(3, (SECRET, PLAIN), f"{SECRET} told".encode(), {SECRET: (0,), PLAIN: (1,)}, 7, "r")
)
BLOBS: Final = {"member_metadata": METADATA, "member_assignment": encode_assignment({SECRET: (0,), PLAIN: (1,)})}


def planted(message: Any, choice: int, name: str = SECRET, group: str = GROUP) -> Any:
    """Every text of it has the name; of alternatives, the one that `choice` is for."""
    for field in message.DESCRIPTOR.fields:
        of = field.containing_oneof
        if of is not None and len(of.fields) > 1 and of.fields[choice % len(of.fields)] is not field:
            continue
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            getattr(message, field.name)["key"] = text_of(field, name)
        elif field.message_type is not None and field.is_repeated:
            for each in (name, PLAIN):
                planted(getattr(message, field.name).add(), choice, each, group)
        elif field.message_type is not None:
            planted(getattr(message, field.name), choice, name, group)
        elif field.type == field.TYPE_STRING and field.is_repeated:
            getattr(message, field.name).extend((text_of(field, name, group), PLAIN))
        elif field.type == field.TYPE_STRING:
            setattr(message, field.name, text_of(field, name, group))
        elif field.type == field.TYPE_BYTES and not field.is_repeated:
            setattr(message, field.name, BLOBS.get(field.name, b""))
        elif field.name == "error_code":
            continue
        elif field.cpp_type in (field.CPPTYPE_INT32, field.CPPTYPE_INT64) and not field.is_repeated:
            setattr(message, field.name, 1)
    if "protocol_type" in message.DESCRIPTOR.fields_by_name:
        message.protocol_type = "consumer"
    return message


def text_of(field: Any, name: str, group: str = GROUP) -> str:
    if field.name == "group_id":
        return group
    if field.name in SOMETHING_ELSE or field.full_name in ALSO:
        return "x"
    if field.name in NAMES:
        return name
    if field.name == "snapshot_json":
        return SNAPSHOT.replace(SECRET, name)
    return SENTENCE.replace(SECRET, name)


def choices(full_name: str) -> int:
    """So many alternatives are looked at."""
    return max((len(of.fields) for of in DESCRIPTORS[full_name].output_type.oneofs), default=1)


def rights_of(*denied: tuple[ResourceType, str], cluster: bool = True) -> CallRights:
    lists = AclAuthorizer()
    kinds = [ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID]
    acls = [Acl(kind, PatternType.LITERAL, "*", "User:bob", "*", Operation.ALL, Permission.ALLOW) for kind in kinds]
    if cluster:
        acls.append(
            Acl(
                ResourceType.CLUSTER,
                PatternType.LITERAL,
                CLUSTER_NAME,
                "User:bob",
                "*",
                Operation.ALL,
                Permission.ALLOW,
            )
        )
    acls += [
        Acl(kind, PatternType.LITERAL, name, "User:bob", "*", Operation.ALL, Permission.DENY) for kind, name in denied
    ]
    lists.replace(acls)
    lines: list[Line] = []
    rights = CallRights(lists, AuditLog(lines.append), lambda: {PLAIN, SECRET})
    rights.topics_of_group = lambda group: {SECRET, PLAIN}
    return rights


def answered(full_name: str, answer: Any, rights: CallRights) -> list[Any]:
    rpc = DESCRIPTORS[full_name]
    kind, request_type = kind_of(rpc), message_factory.GetMessageClass(rpc.input_type)

    async def unary(request: Any, call: Any) -> Any:
        return answer

    async def stream(request: Any, call: Any) -> Any:
        if kind is MethodKind.BOTH_STREAM:
            await anext(request)
        yield answer

    handler = unary if kind is MethodKind.UNARY else stream
    method = ServiceMethod(full_name, kind, request_type, message_factory.GetMessageClass(rpc.output_type), handler)
    ask = guard_method(method, rights, staged)
    request: Any = request_type()
    for right in by_path(full_name):
        if right.of:
            put(request, right.of, PLAIN if right.resource_type is ResourceType.TOPIC else GROUP)
    if "all_topics" in request.DESCRIPTOR.fields_by_name:
        request.all_topics = True

    async def said() -> Any:
        yield pb.SessionRequest(hello=pb.SessionHello(group_id=GROUP, member_id="m"))

    async def story() -> list[Any]:
        if kind is MethodKind.UNARY:
            return [await ask(request, CALL)]
        return [each async for each in ask(said() if kind is MethodKind.BOTH_STREAM else request, CALL)]

    try:
        return asyncio.run(story())
    except CallDenied:
        return []


async def staged(request: Any) -> list[str]:
    return [PLAIN]


def answers(full_name: str, **names: str) -> Iterator[Any]:
    """Members hear their shares, which are topics that they may read: of those, only sentences are planted in."""
    of = message_factory.GetMessageClass(DESCRIPTORS[full_name].output_type)
    share = full_name in JUDGED_BY_SENTENCE or full_name.endswith("Session")
    for choice in range(choices(full_name)):
        answer = planted(of(), choice, **(names | ({"name": PLAIN} if share else {})))
        if share:
            plant_sentences(answer)
        yield answer


def plant_sentences(message: Any) -> None:
    for field, value in message.ListFields():
        if field.message_type is not None and not field.is_repeated:
            plant_sentences(value)
        elif field.name in SENTENCES and field.type == field.TYPE_STRING:
            setattr(message, field.name, SENTENCE)


JUDGED: Final = [name for name in DESCRIPTORS if name not in UNJUDGED and not name.endswith("SharedSession")]


def copied(message: Message) -> Any:
    made = type(message)()
    made.CopyFrom(message)
    return made


@pytest.mark.parametrize("full_name", JUDGED, ids=[name.rpartition("/")[2] for name in JUDGED])
def test_no_answer_names_a_topic_that_its_caller_may_not_describe(full_name: str) -> None:
    for answer in answers(full_name):
        for told in answered(full_name, answer, rights_of((ResourceType.TOPIC, SECRET))):
            assert SECRET not in str(told), told
            assert SECRET.encode() not in told.SerializeToString(), told


@pytest.mark.parametrize("full_name", JUDGED, ids=[name.rpartition("/")[2] for name in JUDGED])
def test_who_may_describe_everything_is_told_everything(full_name: str) -> None:
    for answer in answers(full_name):
        before = copied(answer)
        assert answered(full_name, answer, rights_of()) == [before]


@pytest.mark.parametrize("full_name", JUDGED, ids=[name.rpartition("/")[2] for name in JUDGED])
def test_no_answer_names_a_group_that_its_caller_may_not_describe(full_name: str) -> None:
    hidden = (ResourceType.GROUP, "zebras")
    for answer in answers(full_name, name=PLAIN, group="zebras"):
        for told in answered(full_name, answer, rights_of(hidden, cluster=False)):
            if full_name.endswith("ListGroups"):
                assert "zebras" not in str(told), told


def test_nobody_forgets_what_a_new_method_may_tell() -> None:
    """A method whose answer is not judged says why; nothing of it stays when the method goes."""
    assert UNJUDGED.keys() <= DESCRIPTORS.keys()
    assert all(reason.endswith(".") for reason in UNJUDGED.values())


@pytest.mark.parametrize("denied", [(ResourceType.TOPIC, SECRET), (ResourceType.GROUP, GROUP)])
def test_a_list_of_groups_is_left_whole_for_the_others_who_asked_at_once(denied: tuple[ResourceType, str]) -> None:
    """They share one answer: whoever may see less of it gets a copy."""
    method = next(name for name in DESCRIPTORS if name.endswith("GroupCoordinator/ListGroups"))
    shared = planted(pb.ListGroupsResponse(), 0)
    before = shared.SerializeToString()
    (told,) = answered(method, shared, rights_of(denied, cluster=False))
    assert told.SerializeToString() != before == shared.SerializeToString()
