"""No answer at Kafka's port names a topic that its caller may not describe.

A hidden name is planted in every text of the answer of every API in every version; answers with nothing of the kind
are listed here, each with its reason. The other doors: tests/unit/security/test_hidden_names.py.
"""

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

from muster.assignors.data.consumer_protocol import (
    Subscription,
    encode_assignment,
    encode_subscription,
    parse_assignment,
    parse_subscription,
)
from muster.coordinator.kafka.authorization.guard import HandlerGuard
from muster.coordinator.kafka.authorization.table_judges import fields_of
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.codec.messages import STRUCT, MessageStruct
from muster.coordinator.kafka.dispatch import ClientPeer, EncodedAnswer, KafkaCall
from muster.coordinator.kafka.protocol import APIS, Api
from muster.coordinator.security.access_model import Operation, Permission
from muster.coordinator.security.rights import API_RIGHTS
from tests.support.kafka.asked import Asked
from tests.support.kafka.rights import ALICE, CLUSTER, FIELDS, GROUP, TOPIC, TRANSACTIONAL_ID, acl, authorizer, request

SECRET, PLAIN, READERS = "zebra", "orders", "readers"

REQUESTED: Final = "It tells what becomes of the names in its request."
ITS_SHARE: Final = (
    "A member hears its share of what it may read; a leader plans with all that members say, as in Kafka."
)
ENTRIES: Final = "Who may look after all entries reads all of them, as in Kafka."
UNJUDGED: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("Produce", "Fetch", "ListOffsets", "OffsetForLeaderEpoch", "OffsetCommit", "OffsetDelete"), REQUESTED
    ),
    **dict.fromkeys(
        ("DeleteRecords", "InitProducerId", "AddOffsetsToTxn", "TxnOffsetCommit", "DescribeProducers"), REQUESTED
    ),
    **dict.fromkeys(("JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat"), ITS_SHARE),
    **dict.fromkeys(("DescribeAcls", "CreateAcls", "DeleteAcls"), ENTRIES),
    **dict.fromkeys(("DescribeClientQuotas", "AlterClientQuotas"), ENTRIES),
    **dict.fromkeys(("DescribeUserScramCredentials", "AlterUserScramCredentials"), ENTRIES),
}
REFLECTED: Final = frozenset(
    {"CreateTopics", "DeleteTopics", "CreatePartitions", "DescribeConfigs", "AlterConfigs", "IncrementalAlterConfigs"}
    | {"AlterPartitionReassignments", "DeleteGroups", "FindCoordinator"}
)
"""Their rows are those of their requests: only their sentences can tell of something else."""
BLOBS: Final = {
    "member_metadata": encode_subscription(Subscription(1, (SECRET, PLAIN), SECRET.encode(), {SECRET: (0,)})),
    "member_assignment": encode_assignment({SECRET: (0,), PLAIN: (1,)}, SECRET.encode()),
}
NAMES: Final = frozenset({"name", "topic", "topic_name", "resource_name", "subscribed_topic_names"})
WORDS: Final = {"group_id": READERS, "protocol_type": "consumer"}
JUDGED: Final = [api for api in APIS if API_RIGHTS[api.name] and api.name not in UNJUDGED]


def planted(path: str, version: int, name: str, reflected: bool) -> Any:
    fields: dict[str, object] = {}
    for field in fields_of(path):
        schema = fields_of(path)[field]
        if version not in schema.versions:
            continue
        if schema.type == STRUCT:
            each = [planted(schema.path, version, one, reflected) for one in (name, PLAIN)]
            fields[field] = each if schema.array else each[0]
        elif schema.type == "string" and field == "resource_name" and version == 0:
            fields[field] = "x"  # of client metrics: this version lists nothing else
        elif schema.type == "string":
            text = text_of(field, name, reflected)
            fields[field] = [text, PLAIN] if schema.array else text
        elif schema.type == "bytes" and field in BLOBS:
            fields[field] = BLOBS[field]
        elif field == "resource_type":
            fields[field] = 2
    return struct(path)(**fields)


def text_of(field: str, name: str, reflected: bool) -> str:
    if field == "error_message":
        return f"'{name}' and {name}-3 collide with {PLAIN}"
    return WORDS.get(field) or (name if field in NAMES and not reflected else "x")


def texts(answer: object) -> Iterator[str]:
    if isinstance(answer, str):
        yield answer
    elif isinstance(answer, bytes):
        yield answer.decode("latin-1")
    elif isinstance(answer, MessageStruct):
        for name in answer._defaults:
            yield from texts(getattr(answer, name))
    elif isinstance(answer, list | tuple):
        for each in answer:
            yield from texts(each)


class Topics:
    auto_create = True

    def __contains__(self, name: object) -> bool:
        return name in (SECRET, PLAIN)

    def by_id(self) -> dict[bytes, str]:
        return {}


async def answered(api: Api, version: int, *, hidden: bool, encoded: bool = False) -> Any:
    every = [acl(Operation.ALL, kind, "*") for kind in (TOPIC, GROUP, TRANSACTIONAL_ID)]
    denied = [acl(Operation.ALL, TOPIC, SECRET, permission=Permission.DENY)] if hidden else []
    guard = HandlerGuard(authorizer([*every, acl(Operation.ALL, CLUSTER), *denied]), Topics())
    answer = planted(f"{api.name}Response", version, SECRET, api.name in REFLECTED)

    async def handler(request: Any, call: KafkaCall) -> Any:
        return EncodedAnswer(encode(f"{api.name}Response", version, answer)) if encoded else answer

    judged, _ = guard.guarded(api.name, version, handler, None)
    assert judged is not None
    asked: Any = struct(f"{api.name}Request")()
    if api.name in FIELDS:
        asked = request(api.name, [PLAIN], [READERS])
        if api.name == "Metadata":
            asked.topics = None
        if api.name == "OffsetFetch":
            asked.topics = None
            for group in asked.groups:
                group.topics = None
    eof: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    peer = ClientPeer("10.0.0.1", eof, identity=Asked.identity(ALICE))
    return await judged(asked, KafkaCall(version, "tests", peer))


VERSIONS: Final = [(api, version) for api in JUDGED for version in range(api.first, api.last + 1)]


@pytest.mark.parametrize(("api", "version"), VERSIONS, ids=[f"{api.name}-{version}" for api, version in VERSIONS])
def test_no_answer_names_a_topic_that_its_caller_may_not_describe(api: Api, version: int) -> None:
    hidden = asyncio.run(answered(api, version, hidden=True))
    assert not any(SECRET in text for text in texts(hidden)), hidden
    everything = asyncio.run(answered(api, version, hidden=False))
    if not isinstance(everything, EncodedAnswer):
        told = any(
            SECRET in text for text in texts(planted(f"{api.name}Response", version, SECRET, api.name in REFLECTED))
        )
        assert any(SECRET in text for text in texts(everything)) is told


def test_what_is_left_of_a_member_is_what_the_caller_may_see() -> None:
    (api,) = (api for api in JUDGED if api.name == "DescribeGroups")
    (first, *_) = asyncio.run(answered(api, api.last, hidden=True)).groups
    for member in first.members:
        assert parse_subscription(member.member_metadata).topics == (PLAIN,)
        assert parse_assignment(member.member_assignment).partitions == {PLAIN: [1]}


def test_nothing_that_is_not_judged_goes_without_a_reason() -> None:
    assert UNJUDGED.keys() | REFLECTED <= {api.name for api in APIS} | API_RIGHTS.keys()
