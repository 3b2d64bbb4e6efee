"""Requests of which a part is allowed: that part is done, the rest is refused, and each answer is whole."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.coordinator.kafka.authorization.guard import HandlerGuard
from muster.coordinator.kafka.authorization.judge import AccessCheck, NodeTopics
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.kafka.handlers.offset_commit_reader import CommitReader
from muster.coordinator.security.access_model import Operation, PatternType, Permission
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.security.rights import API_RIGHTS
from muster.storage.records.batch import encode_batch
from tests.support.kafka.asked import HUNG_UP, Asked
from tests.support.kafka.memory_node import MemoryNode, until
from tests.support.kafka.rights import (
    ALICE,
    CLUSTER,
    GROUP,
    NOW,
    ROOT,
    TOPIC,
    acl,
    authorizer,
    codes,
    one,
    request,
    settle,
)

READ, WRITE, DESCRIBE, DELETE, CREATE = (
    Operation.READ,
    Operation.WRITE,
    Operation.DESCRIBE,
    Operation.DELETE,
    Operation.CREATE,
)
UNKNOWN_TOPIC = 3

Story = Callable[[MemoryNode, Asked, Asked, AclAuthorizer], Awaitable[None]]


def play(story: Story, *topics: str) -> None:
    async def run() -> None:
        lists = authorizer()
        async with MemoryNode(dict.fromkeys(topics or ("mine", "theirs"), 1), lists) as node:
            await story(node, Asked(node.dispatch, ROOT), Asked(node.dispatch, ALICE), lists)
            assert not node.bugs

    asyncio.run(run())


BOTH = ["mine", "theirs"]


@pytest.mark.parametrize("version", [2, 8, 9])
def test_positions_are_committed_for_topics_that_may_be_read(version: int) -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        lists.replace([acl(READ, GROUP, "g"), acl(READ, TOPIC, "mine")])
        asked = request("OffsetCommit", BOTH, ["g"])
        asked.topics[0].partitions[0].committed_offset = 7
        answer = await alice("OffsetCommit", version, asked)
        assert {topic.name: topic.partitions[0].error_code for topic in answer.topics} == {"mine": 0, "theirs": 29}
        found = await root("OffsetFetch", 5, request("OffsetFetch", BOTH, ["g"]))
        assert {topic.name: topic.partitions[0].committed_offset for topic in found.topics} == {"mine": 7, "theirs": -1}
        # The same once more, known by its bytes by now.
        lists.replace([])
        assert set(codes(await alice("OffsetCommit", version, asked))) == {30}

    play(story)


def test_each_request_of_a_reader_that_knows_them_by_their_bytes_is_judged() -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        reader = CommitReader(8)
        form = node.dispatch.form(8, 8)
        assert form is not None
        assert form.immediate is not None
        data = b"".join(encode("OffsetCommitRequest", 8, request("OffsetCommit", BOTH, ["g"])))
        for given, wanted in (([acl(READ, GROUP, "g")], {29}), ([], {30}), ([acl(READ, GROUP, "g")], {29})):
            lists.replace(given)
            for _ in range(3):
                commit, _ = reader(data, 0)
                answer = form.immediate(commit, one_call(alice))
                assert set(codes(answer)) == wanted

    play(story)


def one_call(asked: Asked) -> Any:
    return KafkaCall(8, "tests", asked.peer)


def test_a_large_commit_is_made_whole_in_a_thread() -> None:
    """Its answer comes as bytes, from a thread."""

    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        node.broker.create_topic("wide", 3000)
        lists.replace([acl(READ, GROUP, "g"), acl(READ, TOPIC, "wide")])
        path = "OffsetCommitRequest.topics"
        rows = [
            one(f"{path}.partitions", partition_index=n, committed_offset=n, committed_metadata="x" * 20)
            for n in range(3000)
        ]
        topics = [one(path, name="theirs", partitions=rows[:1]), one(path, name="wide", partitions=rows)]
        answer = await alice("OffsetCommit", 8, group_id="g", topics=topics)
        by_name = {topic.name: {part.error_code for part in topic.partitions} for topic in answer.topics}
        assert by_name == {"theirs": {29}, "wide": {0}}
        asked = one("OffsetFetchRequest.topics", name="wide", partition_indexes=[0, 2999])
        found = await root("OffsetFetch", 5, group_id="g", topics=[asked])
        assert [part.committed_offset for part in found.topics[0].partitions] == [0, 2999]
        assert set(codes(await alice("OffsetCommit", 8, group_id="other", topics=topics))) == {30}
        lists.replace([acl(READ, GROUP, "g")])
        assert set(codes(await alice("OffsetCommit", 8, group_id="g", topics=topics))) == {29}

    play(story, "theirs")


@pytest.mark.parametrize("version", [1, 5, 8, 9])
def test_positions_are_told_of_groups_and_topics_that_may_be_described(version: int) -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        await settle(root, [], ["g", "other"])
        await root("OffsetCommit", 8, request("OffsetCommit", BOTH, ["g"]))
        lists.replace([acl(DESCRIBE, GROUP, "g"), acl(DESCRIBE, TOPIC, "mine")])
        answer = await alice("OffsetFetch", version, request("OffsetFetch", BOTH, ["g", "other"]))
        if version >= 8:
            g, other = answer.groups
            assert (other.group_id, other.error_code, other.topics) == ("other", 30, [])
        else:
            g = answer
        told = {
            topic.name: (topic.partitions[0].committed_offset, topic.partitions[0].error_code) for topic in g.topics
        }
        assert told == {"mine": (0, 0), "theirs": (-1, 29)}

    play(story)


def fetched(answer: Any) -> dict[str, tuple[int, int]]:
    """Of each topic the code of its first partition, and how many bytes came."""
    first = {topic.topic: topic.partitions[0] for topic in answer.responses}
    return {name: (part.error_code, len(part.records)) for name, part in first.items()}


def test_records_come_for_topics_that_may_be_read_and_a_refusal_waits_with_them() -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        await root("Produce", 9, request("Produce", BOTH, []))
        lists.replace([acl(READ, TOPIC, "mine")])
        answer = await alice("Fetch", 12, request("Fetch", BOTH, []))
        told = {
            topic.topic: (topic.partitions[0].error_code, len(topic.partitions[0].records))
            for topic in answer.responses
        }
        assert told["theirs"] == (29, 0)
        assert told["mine"][0] == 0
        assert told["mine"][1] > 0

    play(story)


@pytest.mark.parametrize("left", [[], ["theirs"]])
def test_who_loses_the_right_while_waiting_gets_no_records(left: list[str]) -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        lists.replace([acl(READ, TOPIC, name) for name in BOTH])
        asked = request("Fetch", BOTH, [])
        asked.max_wait_ms, asked.min_bytes = 60_000, 1
        waiting = asyncio.create_task(alice("Fetch", 12, asked))
        await until(lambda: node.requests.parking.parked > 0)
        lists.replace([acl(READ, TOPIC, name) for name in left])
        await root("Produce", 9, request("Produce", ["mine"], []))
        answer = await waiting
        told = {
            topic.topic: (topic.partitions[0].error_code, len(topic.partitions[0].records))
            for topic in answer.responses
        }
        assert told == {"mine": (29, 0), "theirs": (0 if left else 29, 0)}

    play(story)


@pytest.mark.parametrize("version", [3, 8, 9])
def test_records_go_into_topics_that_may_be_written(version: int) -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        lists.replace([acl(WRITE, TOPIC, "mine")])
        answer = await alice("Produce", version, request("Produce", BOTH, []))
        told = {topic.name: topic.partition_responses[0].error_code for topic in answer.responses}
        assert told == {"mine": 0, "theirs": 29}
        assert [node.broker.end_offset(name, 0) for name in BOTH] == [1, 0]
        (only,) = (await alice("Produce", version, request("Produce", ["theirs"], []))).responses
        assert only.partition_responses[0].error_code == 29
        if version >= 8:
            assert only.partition_responses[0].error_message == "Topic authorization failed."
            lists.replace([acl(DESCRIBE, TOPIC, "theirs")])
            (only,) = (await alice("Produce", version, request("Produce", ["theirs"], []))).responses
            assert only.partition_responses[0].error_message == (
                "Topic authorization failed. User:alice at 10.0.0.1 lacks WRITE on TOPIC 'theirs'; "
                "muster acls add --allow-principal User:alice --operation WRITE --topic theirs"
            )

    play(story)


@pytest.mark.parametrize("topics", [["theirs"], ["mine", "theirs"]])
def test_who_wants_no_answer_is_told_by_the_end_of_the_connection(topics: list[str]) -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        lists.replace([acl(WRITE, TOPIC, "mine")])
        asked = request("Produce", topics, [])
        asked.acks = 0
        assert await alice("Produce", 9, asked) is HUNG_UP
        assert node.broker.end_offset("theirs", 0) == 0

    play(story)


def test_nothing_in_a_transaction_without_its_right_and_without_an_answer() -> None:
    """Found by `make fuzz`: there was no topic to speak of."""

    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        assert await alice("Produce", 9, acks=0, transactional_id="tx", topic_data=[]) is HUNG_UP
        assert (await alice("Produce", 9, acks=1, transactional_id="tx", topic_data=[])).responses == []

    play(story)


def test_records_for_very_many_partitions_are_judged_as_well() -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        node.broker.create_topic("wide", 1500)
        lists.replace([acl(WRITE, TOPIC, "wide")])
        batch = encode_batch([(NOW, None, b"v", ())])
        path = "ProduceRequest.topic_data"
        rows = [one(f"{path}.partition_data", index=n, records=batch) for n in range(1500)]
        data = [one(path, name="theirs", partition_data=rows[:2]), one(path, name="wide", partition_data=rows)]
        answer = await alice("Produce", 9, acks=1, timeout_ms=60_000, topic_data=data)
        told = {topic.name: {part.error_code for part in topic.partition_responses} for topic in answer.responses}
        assert told == {"wide": {0}, "theirs": {29}}

    play(story, "theirs")


def test_a_topic_is_deleted_by_its_id_without_a_word_about_its_name() -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        ids = {name: node.broker.topic(name).id for name in BOTH}
        path = "DeleteTopicsRequest.topics"

        async def deleted(*asked: Any) -> list[tuple[str | None, int]]:
            answer = await alice("DeleteTopics", 6, topics=list(asked), timeout_ms=1000)
            return [(row.name, row.error_code) for row in answer.responses]

        by_id = one(path, name=None, topic_id=ids["theirs"])
        assert await deleted(by_id) == [(None, 29)]
        assert await deleted(one(path, name=None, topic_id=b"x" * 16)) == [(None, 100)]
        lists.replace([acl(DESCRIBE, TOPIC, "theirs")])
        assert await deleted(by_id) == [("theirs", 29)]
        assert await deleted(one(path, name="theirs"), one(path, name="none")) == [("theirs", 29), ("none", 29)]
        lists.replace([acl(DESCRIBE, TOPIC, "none")])
        assert await deleted(one(path, name="none")) == [("none", UNKNOWN_TOPIC)]
        lists.replace([acl(DELETE, TOPIC, "theirs"), acl(DESCRIBE, TOPIC, "theirs", permission=Permission.DENY)])
        assert await deleted(by_id) == [(None, 29)]
        lists.replace([acl(DELETE, TOPIC, "mine")])
        assert sorted(await deleted(one(path, name="mine"), by_id), key=str) == [("mine", 0), (None, 29)]
        assert "mine" not in node.broker.topics()

    play(story)


def test_a_topic_is_looked_at_by_its_id_without_a_word_about_its_name() -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        path = "MetadataRequest.topics"
        asked = [one(path, name=None, topic_id=node.broker.topic(name).id) for name in BOTH]
        lists.replace([acl(DESCRIBE, TOPIC, "mine")])
        answer = await alice("Metadata", 12, topics=[*asked, one(path, name=None, topic_id=b"y" * 16)])
        told = sorted((row.name or "", row.error_code) for row in answer.topics)
        assert told == [("", 29), ("", 100), ("mine", 0)]

    play(story)


def test_topics_are_made_by_asking_for_who_may_make_them() -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        async def told(*names: str, **more: Any) -> dict[str, int]:
            topics = [one("MetadataRequest.topics", name=name) for name in names]
            answer = await alice("Metadata", 8, topics=topics, **more)
            return {topic.name: topic.error_code for topic in answer.topics}

        lists.replace([acl(DESCRIBE, TOPIC, "*"), acl(CREATE, TOPIC, "new")])
        assert await told("mine", "new", "newer") == {"mine": 0, "new": 0, "newer": 29}
        assert "newer" not in node.broker.topics()
        assert await told("newer", allow_auto_topic_creation=False) == {"newer": UNKNOWN_TOPIC}
        lists.replace([acl(DESCRIBE, TOPIC, "*"), acl(CREATE, CLUSTER)])
        assert await told("newer") == {"newer": 0}
        lists.replace([acl(CREATE, CLUSTER)])
        assert await told("newest") == {"newest": 29}
        assert "newest" not in node.broker.topics()

    play(story)


def test_operations_are_those_that_the_caller_really_has() -> None:
    def bits(*operations: Operation) -> int:
        return sum(1 << operation for operation in operations)

    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        await settle(root, [], ["g"])
        await root("OffsetCommit", 8, request("OffsetCommit", ["mine"], ["g"]))
        lists.replace([acl(READ, TOPIC, "mine"), acl(READ, GROUP, "g"), acl(DESCRIBE, CLUSTER), acl(CREATE, CLUSTER)])
        metadata = await alice("Metadata", 8, request("Metadata", ["mine"], []))
        assert metadata.topics[0].topic_authorized_operations == bits(READ, DESCRIBE)
        assert metadata.cluster_authorized_operations == bits(CREATE, DESCRIBE)
        (group,) = (await alice("DescribeGroups", 5, request("DescribeGroups", [], ["g"]))).groups
        assert group.authorized_operations == bits(READ, DESCRIBE)
        lists.replace([acl(READ, TOPIC, "mine")])
        metadata = await alice("Metadata", 8, request("Metadata", ["mine"], []))
        assert metadata.cluster_authorized_operations == 0
        asked = request("Metadata", ["mine"], [])
        asked.include_topic_authorized_operations = asked.include_cluster_authorized_operations = False
        metadata = await alice("Metadata", 8, asked)
        assert metadata.topics[0].topic_authorized_operations == metadata.cluster_authorized_operations == -(1 << 31)
        everything = await root("Metadata", 8, request("Metadata", ["mine"], []))
        assert everything.topics[0].topic_authorized_operations == bits(*range(3, 9), 10, 11)

    play(story)


def test_a_heartbeat_that_names_one_hidden_topic_is_refused_as_a_whole() -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        lists.replace([acl(READ, GROUP, "g"), acl(DESCRIBE, TOPIC, "mine")])
        answer = await alice("ConsumerGroupHeartbeat", 1, request("ConsumerGroupHeartbeat", ["mine", "theirs"], ["g"]))
        assert (answer.error_code, answer.assignment) == (29, None)
        (group,) = (await root("ConsumerGroupDescribe", 1, request("ConsumerGroupDescribe", [], ["g"]))).groups
        assert group.error_code == 69, "no such group was made"
        answer = await alice("ConsumerGroupHeartbeat", 1, request("ConsumerGroupHeartbeat", ["mine"], ["g"]))
        assert answer.error_code == 0

    play(story)


def test_where_all_is_allowed_the_very_same_handler_answers() -> None:
    """Nothing is read or written again."""

    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        sentinel, call = object(), one_call(alice)
        guard = HandlerGuard(lists, NodeTopics(node.broker.topics, auto_create=True))
        lists.replace([acl(Operation.ALL, kind, "*") for kind in (TOPIC, GROUP)] + [acl(Operation.ALL, CLUSTER)])
        seen: list[object] = []

        def immediate(asked: object, called: object) -> object:
            seen.append(asked)
            return sentinel

        for api in ("Heartbeat", "JoinGroup", "SyncGroup", "LeaveGroup", "Fetch"):
            _, now = guard.guarded(api, 4, None, immediate)
            assert now is not None
            asked = request(api, ["mine"], ["g"])
            assert now(asked, call) is sentinel
            assert seen[-1] is asked
        handler = struct  # any callable: an API without rights keeps its own
        assert guard.guarded("ApiVersions", 3, handler, immediate) == (handler, immediate)
        with pytest.raises(LookupError, match="no row in the table of rights"):
            guard.guarded("DescribeQuorum", 0, None, None)

    play(story)


def test_a_request_of_very_many_names_is_judged_as_one_of_few() -> None:
    """What is worked out for all of them at once is the same, and nothing of it is kept by name."""

    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        names = [f"{'mine' if number % 3 else 'theirs'}-{number}" for number in range(2_100)]
        lists.replace(
            [
                acl(DESCRIBE, TOPIC, "mine-", PatternType.PREFIXED),
                acl(DESCRIBE, TOPIC, "theirs-0"),
                acl(DESCRIBE, TOPIC, "mine-7", permission=Permission.DENY),
            ]
        )
        told: list[str] = []
        catalog = NodeTopics(node.broker.topics, auto_create=True)
        may = AccessCheck(lists, catalog, lambda *refusal: told.append(str(refusal[4])))
        right, call = API_RIGHTS["ListOffsets"][0], one_call(alice)
        allowed, refused = may.split_allowed(call, right, names, str, api="ListOffsets")
        assert allowed == [name for name in names if may.is_allowed(call, right, name)]
        assert len(allowed) + len(refused) == len(names)
        assert told == refused[:5]
        for many in (names, names[:10]):
            answer = await alice("ListOffsets", 7, request("ListOffsets", many, []))
            listed = {topic.name: topic.partitions[0].error_code for topic in answer.topics}
            assert listed == {name: UNKNOWN_TOPIC if name in allowed else 29 for name in many}
        made = may.name_filter(call, API_RIGHTS["CreateTopics"][0], 900)
        assert not made("mine-1")
        lists.replace([acl(CREATE, CLUSTER)])
        assert may.name_filter(call, API_RIGHTS["CreateTopics"][0], 900)("mine-1")

    play(story)


@pytest.mark.parametrize("version", range(1, 5))
def test_who_may_not_describe_the_cluster_hears_of_no_directory(version: int) -> None:
    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        answer = await alice("DescribeLogDirs", version, request("DescribeLogDirs", [], []))
        assert answer.results == []
        assert version < 3 or answer.error_code == 31

    play(story)


def test_users_that_may_not_be_described_are_refused_one_by_one() -> None:
    """librdkafka 2.16 dies of a code for the whole answer."""

    async def story(node: MemoryNode, root: Asked, alice: Asked, lists: AclAuthorizer) -> None:
        user = struct("DescribeUserScramCredentialsRequest.users")
        answer = await alice("DescribeUserScramCredentials", 0, users=[user(name="bob"), user(name="eve")])
        assert answer.error_code == 0
        assert [(row.user, row.error_code) for row in answer.results] == [("bob", 31), ("eve", 31)]
        assert all("Cluster authorization failed" in row.error_message for row in answer.results)
        every = await alice("DescribeUserScramCredentials", 0, users=None)
        assert (every.error_code, every.results) == (31, [])

    play(story)
