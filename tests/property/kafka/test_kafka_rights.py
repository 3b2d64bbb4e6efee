"""Whatever the lists say: no answer names what the caller may not describe, or shows whether it is there."""

import asyncio
from typing import Any

from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from muster.coordinator.kafka.protocol import APIS
from muster.coordinator.security.access_model import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Acl,
    Operation,
    PatternType,
    Permission,
    ResourceType,
)
from muster.coordinator.security.authorizer import AclAuthorizer
from tests.support.kafka.asked import HUNG_UP, Asked
from tests.support.kafka.memory_node import MemoryNode
from tests.support.kafka.rights import (
    ALICE,
    CLUSTER,
    FIELDS,
    GROUP,
    ROOT,
    TOPIC,
    authorizer,
    request,
    settle,
    subscribe,
    words,
)

TOPICS = ["a", "ab", "b", "ba"]
GROUPS = ["g", "gh", "h"]
VERSIONS = {api.name: (api.first, api.last) for api in APIS}
DESTROYING = ("DeleteTopics", "DeleteGroups")

NAMES = {TOPIC: [*TOPICS, "*"], GROUP: [*GROUPS, "*"], CLUSTER: [CLUSTER_NAME]}


@st.composite
def entry(draw: st.DrawFn) -> Acl:
    kind = draw(st.sampled_from([TOPIC, TOPIC, GROUP, GROUP, CLUSTER]))
    name = draw(st.sampled_from(NAMES[kind]))
    literal = kind is CLUSTER or name == "*" or draw(st.booleans())
    return Acl(
        kind,
        PatternType.LITERAL if literal else PatternType.PREFIXED,
        name,
        draw(st.sampled_from([ALICE, "User:*", "User:bob"])),
        draw(st.sampled_from(["*", "10.0.0.1", "10.9.9.9"])),
        draw(st.sampled_from([Operation.ALL, *sorted(SUPPORTED_OPERATIONS[kind])])),
        draw(st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY])),
    )


@st.composite
def requests(draw: st.DrawFn) -> list[tuple[str, int, Any]]:
    """One of every API; those that take things away come last."""
    order = sorted(draw(st.permutations(sorted(FIELDS.keys() & VERSIONS.keys()))), key=DESTROYING.__contains__)
    asked = []
    for api in order:
        topics = draw(st.lists(st.sampled_from(TOPICS), min_size=1, max_size=3, unique=True))
        groups = draw(st.lists(st.sampled_from(GROUPS), min_size=1, max_size=2, unique=True))
        version = draw(st.integers(*VERSIONS[api]))
        made = request(api, topics, groups)
        if api in ("Metadata", "OffsetFetch") and version > 1 and draw(st.booleans()):
            made.topics = None
            for group in getattr(made, "groups", ()):
                group.topics = None
        asked.append((api, version, made))
    return asked


@settings(max_examples=15, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.lists(entry(), max_size=8), requests())
def test_no_answer_names_what_the_caller_did_not_name_and_may_not_describe(
    acls: list[Acl], asked: list[tuple[str, int, Any]]
) -> None:
    async def story() -> None:
        lists = authorizer(acls)
        async with MemoryNode(dict.fromkeys(TOPICS, 1), lists) as node:
            root, alice = Asked(node.dispatch, ROOT), Asked(node.dispatch, ALICE)
            await settle(root, TOPICS, GROUPS)
            await subscribe(root, "consumers", TOPICS)
            who = alice.peer.identity
            for api, version, made in asked:
                answer = await alice(api, version, made)
                said = set(words(answer)) - set(words(made))
                everything = api == "ListGroups" and lists.allows(who, Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
                for kind, names in ((TOPIC, TOPICS), (GROUP, [*GROUPS, "consumers"])):
                    hidden = {name for name in names if not sees(lists, alice, kind, name)}
                    assert everything or not hidden & said, (api, version, hidden & said, answer)
            assert not node.bugs

    asyncio.run(story())


def sees(lists: AclAuthorizer, alice: Asked, kind: ResourceType, name: str) -> bool:
    """Who may look at a topic's settings knows it."""
    configs = (Operation.DESCRIBE, Operation.DESCRIBE_CONFIGS)
    return any(lists.allows(alice.peer.identity, operation, kind, name) for operation in configs)


@settings(max_examples=20, deadline=None, phases=[Phase.explicit, Phase.generate])
@given(st.lists(entry(), max_size=8), requests())
def test_nobody_learns_whether_there_is_a_topic_or_a_group_that_they_have_no_right_to(
    acls: list[Acl], asked: list[tuple[str, int, Any]]
) -> None:
    """Two nodes: one has `ab` and the group `gh`, the other has not."""
    lists = authorizer(acls)

    async def answers(topics: list[str], groups: list[str]) -> list[Any]:
        async with MemoryNode(dict.fromkeys(topics, 1), lists) as node:
            root, alice = Asked(node.dispatch, ROOT), Asked(node.dispatch, ALICE)
            await settle(root, ["a"], groups)
            found = []
            for api, version, made in asked:
                answer = await alice(api, version, made)
                for topic in (*getattr(answer, "topics", ()), *getattr(answer, "responses", ())):
                    if hasattr(topic, "topic_id"):
                        topic.topic_id = b""  # drawn, as the cluster's
                if api == "Metadata":
                    answer.cluster_id = ""
                found.append((api, version, answer))
            return found

    who = Asked.identity(ALICE)
    creates = lists.allows(who, Operation.CREATE, CLUSTER, CLUSTER_NAME)
    sees_all = lists.allows(who, Operation.DESCRIBE, CLUSTER, CLUSTER_NAME)
    # Other nodes (CLUSTER_ACTION) may ask for any partition's epochs, as in Kafka.
    is_node = lists.allows(who, Operation.CLUSTER_ACTION, CLUSTER, CLUSTER_NAME)
    if (
        creates
        or sees_all
        or is_node
        or any(lists.allows(who, one, TOPIC, "ab") for one in SUPPORTED_OPERATIONS[TOPIC])
    ):
        return
    if any(lists.allows(who, one, GROUP, "gh") for one in SUPPORTED_OPERATIONS[GROUP]):
        return
    there = asyncio.run(answers(TOPICS, GROUPS))
    gone = asyncio.run(answers([name for name in TOPICS if name != "ab"], [name for name in GROUPS if name != "gh"]))
    for one, other in zip(there, gone, strict=True):
        assert one == other
    assert all(answer is not HUNG_UP for _, _, answer in there)
