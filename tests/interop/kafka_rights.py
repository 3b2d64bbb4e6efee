"""What a Kafka broker with StandardAuthorizer and a node answer to the same requests under the same lists.

Each case has a user, a topic and a group of its own, so that all lists can be made first, and both are asked after.
"""

import asyncio
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.codec.messages import MessageStruct
from muster.coordinator.kafka.handlers.acls import AclHandlers
from muster.coordinator.security.access_model import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Acl,
    Operation,
    PatternType,
    Permission,
)
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.security.rights import API_RIGHTS
from muster.coordinator.server.security.acl_service import NodeAcls
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from tests.support.kafka.asked import HUNG_UP, Asked
from tests.support.kafka.client import KafkaClient
from tests.support.kafka.memory_node import MemoryNode
from tests.support.kafka.rights import (
    CLUSTER,
    GROUP,
    ROOT,
    TOPIC,
    TRANSACTIONAL_ID,
    authorizer,
    codes,
    request,
    settle,
    subscribe,
)
from tests.support.kafka.rights_cells import HOW, MADE_BY_ASKING, SERVED, beside, cells, everything, given

OLDEST: Final = {"Fetch": 4, "ListOffsets": 1, "JoinGroup": 2}
"""Kafka 4 has no older ones."""

PATIENCE_S: Final = 10.0

NAMES: Final = ("name", "topic", "group_id", "key", "resource_name", "topic_name")

STAYS: Final = {
    r"Produce \d+, WRITE on TRANSACTIONAL_ID": "Kafka looks at the id where records are of a transaction",
    r"(FindCoordinator|InitProducerId) \d+, \w+ on TRANSACTIONAL_ID .*: (allowed|prefixed)": "no transactions here",
    r"Metadata \d+, CREATE on TOPIC .*: (allowed|prefixed)": "a topic that is made by asking is there at once",
    r"(Describe|Alter)ClientQuotas \d, .*: (allowed|prefixed)": "the node of this test keeps no quotas",
    r"ListConfigResources 1, DESCRIBE": "no topic or group that the caller may not know of is listed",
}
"""Differences on purpose, by what the labels of such cases begin with."""

LOADING: Final = {14, 15}
"""A fresh broker asks to come again."""


@dataclass(frozen=True)
class Case:
    number: int
    api: str
    version: int
    place: int
    how: str

    @property
    def user(self) -> str:
        return f"c{self.number}"

    @property
    def topic(self) -> str:
        return f"orders-{self.number}"

    @property
    def group(self) -> str:
        return f"readers-{self.number}"

    @property
    def label(self) -> str:
        right = API_RIGHTS[self.api][self.place]
        tried = f"{right.operation.name} on {right.resource_type.name}"
        return f"{self.api} {self.version}, {tried} ({self.place}): {self.how}"

    @property
    def new(self) -> bool:
        """Whether the topic is to be missing."""
        return self.api == "CreateTopics" or API_RIGHTS[self.api][self.place].when == MADE_BY_ASKING

    def acls(self) -> list[Acl]:
        txn = f"tx-{self.number}"
        names = {TOPIC: self.topic, GROUP: self.group, CLUSTER: CLUSTER_NAME, TRANSACTIONAL_ID: txn}
        rights = API_RIGHTS[self.api]
        tried = rights[self.place]
        found = given(tried, names[tried.resource_type], self.how)
        for place, other in enumerate(rights):
            if place != self.place:
                found += beside(tried, other, names[other.resource_type])
        return [acl._replace(principal=f"User:{self.user}") for acl in found]

    def asked(self) -> Any:
        right = API_RIGHTS[self.api][self.place]
        transactional = f"tx-{self.number}" if right.resource_type is TRANSACTIONAL_ID else None
        made = request(self.api, [self.topic], [self.group], transactional)
        if right.of.startswith("->"):
            everything(self.api, self.version, made)
        return made


def cases() -> list[Case]:
    def every() -> Iterator[tuple[str, int, int, str]]:
        for api, place in cells():
            served = SERVED[api]
            for version in sorted({max(served.first, OLDEST.get(api, 0)), served.last}):
                for how in HOW:
                    yield api, version, place, how

    return [Case(number, *each) for number, each in enumerate(every())]


def creations(acls: list[Acl]) -> list[Any]:
    made = struct("CreateAclsRequest.creations")
    return [
        made(
            resource_type=acl.resource_type,
            resource_name=acl.name,
            resource_pattern_type=acl.pattern,
            principal=acl.principal,
            host=acl.host,
            operation=acl.operation,
            permission_type=acl.permission,
        )
        for acl in acls
    ]


def told(answer: Any, path: str = "") -> list[tuple[str, ...]]:
    """Of an answer what is about rights: codes, and what they are about, as rows in order."""
    rows: list[tuple[str, ...]] = []
    if isinstance(answer, MessageStruct):
        about = [str(getattr(answer, name)) for name in answer._defaults if name in NAMES]
        rows += [(path, *about)] if about and not path.endswith("/configs") else []
        for name in answer._defaults:
            value = getattr(answer, name)
            if name.endswith(("error_code", "authorized_operations")):
                rows.append((path, *about, f"{name}={value}"))
            elif isinstance(value, list | tuple | MessageStruct):
                rows += told(value, f"{path}{about}/{name}")
    elif isinstance(answer, list | tuple):
        for each in answer:
            rows += told(each, path)
    elif answer is HUNG_UP:
        rows.append((HUNG_UP,))
    return sorted(rows)


async def of_kafka(admin: str, users: str, every: list[Case]) -> dict[str, Any]:
    host, _, port = admin.rpartition(":")
    async with KafkaClient(host, int(port)) as root:
        await prepare(root, every)
        await until_known(root, every)
    place = users.rpartition(":")
    return {case.label: told(await as_user((place[0], int(place[2])), case)) for case in every}


async def prepare(root: Any, every: list[Case]) -> None:
    """Make all topics, groups and lists."""
    ask = root if isinstance(root, Asked) else root.ask
    await until_coordinating(ask)
    topics = [case.topic for case in every if not case.new]
    for begin in range(0, len(topics), 50):
        await settle(Root(ask), topics[begin : begin + 50], [])
    await asyncio.sleep(0)
    for case in every:
        await committed(ask, request("OffsetCommit", [] if case.new else [case.topic], [case.group]))
        if case.api == "ConsumerGroupDescribe":
            await assigned(ask, case)
    acls = [acl for case in every for acl in case.acls()]
    for begin in range(0, len(acls), 100):
        answer = await ask("CreateAcls", 3, creations=creations(acls[begin : begin + 100]))
        assert {each.error_code for each in answer.results} <= {0}, answer


class Root:
    """Somebody who asks with a message that is made, as `Asked` does."""

    def __init__(self, ask: Any) -> None:
        self._ask = ask

    async def __call__(self, api: str, version: int, message: Any = None, **fields: Any) -> Any:
        if message is not None:
            fields = {name: getattr(message, name) for name in message._defaults}
        return await self._ask(api, version, **fields)


async def until_coordinating(ask: Any) -> None:
    """A fresh broker makes its topic of groups first, and then loads it."""
    for _ in range(200):
        answer = await ask("FindCoordinator", 3, key="g", key_type=0)
        beat = await ask("Heartbeat", 4, group_id="g", generation_id=1, member_id="m")
        if answer.error_code == 0 and beat.error_code == 25:
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(str(answer))


async def committed(ask: Any, message: Any) -> None:
    """Give a group positions; a broker knows of a topic only a little later."""
    for _ in range(100):
        answer = await Root(ask)("OffsetCommit", 8, message)
        if all(part.error_code == 0 for topic in answer.topics for part in topic.partitions):
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(str(answer))


async def assigned(ask: Any, case: Case) -> None:
    """A group whose member has a partition."""
    await subscribe(Root(ask), case.group, [case.topic])
    for _ in range(100):
        (group,) = (await ask("ConsumerGroupDescribe", 1, group_ids=[case.group])).groups
        if any(member.target_assignment.topic_partitions for member in group.members):
            return
        await asyncio.sleep(0.1)
        beat = request("ConsumerGroupHeartbeat", [case.topic], [case.group])
        beat.member_id, beat.member_epoch = group.members[0].member_id, group.members[0].member_epoch
        beat.subscribed_topic_names = beat.topic_partitions = None
        await Root(ask)("ConsumerGroupHeartbeat", 1, beat)
    raise TimeoutError(str(group))


async def until_known(root: KafkaClient, every: list[Case]) -> None:
    """A broker follows its own controller a little later."""
    last = every[-1].acls()
    for _ in range(100):
        answer = await root.ask(
            "DescribeAcls",
            3,
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=last[-1].principal if last else None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        if answer.resources:
            await asyncio.sleep(1)
            return
        await asyncio.sleep(0.1)
    raise TimeoutError(str(answer))


async def as_user(place: tuple[str, int], case: Case) -> Any:
    return await logged_in(place, case.user, case.api, case.version, case.asked())


async def logged_in(place: tuple[str, int], user: str, api: str, version: int, asked: Any) -> Any:
    """What somebody is answered, by a connection of its own."""
    async with KafkaClient(*place) as client:
        try:
            async with asyncio.timeout(PATIENCE_S):
                await client.ask("SaslHandshake", 1, mechanism="PLAIN")
                answer = await client.ask("SaslAuthenticate", 2, auth_bytes=f"\0{user}\0{user}".encode())
                assert answer.error_code == 0, answer
                while True:
                    client.send(api, version, asked)
                    answer = await client.receive()
                    if not LOADING & set(codes(answer)):
                        return answer
                    await asyncio.sleep(0.1)
        except (asyncio.IncompleteReadError, ConnectionError):
            return HUNG_UP
        except TimeoutError:
            return [HUNG_UP, "never answered"]


def node_with_lists() -> tuple[MemoryNode, AclAuthorizer]:
    """A node whose lists are kept, and changed, as a real one's."""
    lists = authorizer()

    def keeping(broker: Broker) -> AclHandlers:
        store = SecurityStore(broker)
        store.load()
        store.on_change(lambda: lists.replace(store.state.acls))
        return AclHandlers(NodeAcls(store))

    node = MemoryNode({}, lists)
    node.acls = keeping
    return node, lists


async def of_node(every: list[Case]) -> dict[str, Any]:
    node, _ = node_with_lists()
    async with node:
        await prepare(Asked(node.dispatch, ROOT), every)
        found = {}
        for case in every:
            asker = Asked(node.dispatch, f"User:{case.user}", "127.0.0.1")
            found[case.label] = told(await asker(case.api, case.version, case.asked()))
        assert not node.bugs
        return found


async def differences(admin: str, users: str, every: list[Case]) -> dict[str, tuple[Any, Any]]:
    """Kafka's answer and the node's, where they are not the same."""
    kafka, node = await of_kafka(admin, users, every), await of_node(every)
    return {
        label: (kafka[label], node[label]) for label in kafka if comparable(kafka[label]) != comparable(node[label])
    }


def comparable(rows: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """But for what a node says of its own settings: it reads them when it starts, and changes none."""
    return [row for row in rows if row[1:] not in {("1", "error_code=0"), ("1", "error_code=42")}]


DRAWN: Final = 80
"""Users whose entries are drawn."""

DRAWN_NAMES: Final = ["a", "ab", "abc", "b"]


def drawn_acls() -> list[Acl]:
    """Some for each user, a few for everybody, with all that entries may differ in."""
    rng = random.Random(7)

    def entry(principal: str) -> Acl:
        kind = rng.choice([TOPIC, TOPIC, GROUP, CLUSTER])
        literal = kind is CLUSTER or rng.random() < 0.6
        names = [CLUSTER_NAME] if kind is CLUSTER else [*DRAWN_NAMES, *(["*"] if literal else [])]
        return Acl(
            kind,
            PatternType.LITERAL if literal else PatternType.PREFIXED,
            rng.choice(names),
            principal,
            rng.choice(["*", "127.0.0.1", "10.9.9.9"]),
            rng.choice([Operation.ALL, *sorted(SUPPORTED_OPERATIONS[kind])]),
            rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
        )

    acls = [entry(f"User:d{number}") for number in range(DRAWN) for _ in range(rng.randrange(1, 8))]
    return list(dict.fromkeys(acls + [entry("User:*") for _ in range(4)]))


def questions() -> list[tuple[str, int, Any]]:
    """What tells every operation that somebody has with names and cluster, and whether any topic can be written."""
    return [
        ("Metadata", 8, request("Metadata", DRAWN_NAMES, [])),
        ("DescribeGroups", 5, request("DescribeGroups", [], DRAWN_NAMES)),
        ("InitProducerId", 4, request("InitProducerId", [], [])),
    ]


async def decisions(admin: str, users: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """What Kafka and a node tell each drawn user."""
    acls = drawn_acls()
    host, _, port = admin.rpartition(":")
    async with KafkaClient(host, int(port)) as root:
        await drawn(root.ask, acls)
        await asyncio.sleep(2)
    place = users.rpartition(":")
    theirs: dict[str, Any] = {}
    for number in range(DRAWN):
        for api, version, message in questions():
            answer = await logged_in((place[0], int(place[2])), f"d{number}", api, version, message)
            theirs[f"d{number} {api}"] = told(answer)
    ours: dict[str, Any] = {}
    node, _ = node_with_lists()
    async with node:
        await drawn(Asked(node.dispatch, ROOT), acls)
        for number in range(DRAWN):
            asker = Asked(node.dispatch, f"User:d{number}", "127.0.0.1")
            for api, version, message in questions():
                ours[f"d{number} {api}"] = told(await asker(api, version, message))
    return theirs, ours


async def drawn(ask: Any, acls: list[Acl]) -> None:
    await until_coordinating(ask)
    await settle(Root(ask), DRAWN_NAMES, [])
    for name in DRAWN_NAMES:
        await committed(ask, request("OffsetCommit", DRAWN_NAMES, [name]))
    answer = await ask("CreateAcls", 3, creations=creations(acls))
    assert {each.error_code for each in answer.results} == {0}, answer
