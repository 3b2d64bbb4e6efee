"""DescribeAcls, CreateAcls, DeleteAcls: Kafka's filters and checks, and lists that are in force at once."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from muster.coordinator.edge.request_limits import max_entries
from muster.coordinator.kafka.authorization import table_judges
from muster.coordinator.kafka.codec import codec
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka.handlers.acls import AclHandlers
from muster.coordinator.security.access_model import CLUSTER_NAME, Acl, Operation, PatternType, Permission, ResourceType
from muster.coordinator.security.acl_entries import find_entries
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.security.state import AclKey, SecurityRecord
from muster.coordinator.server.security import acl_service as lists_of_node
from muster.coordinator.server.security.acl_service import NodeAcls
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker
from tests.support.kafka.asked import Asked
from tests.support.kafka.memory_node import MemoryNode
from tests.support.kafka.rights import ALICE, ROOT, authorizer, request

READ, ALLOW, LITERAL, PREFIXED = 3, 3, 3, 4
ANY, MATCH = 1, 2
TOPIC, GROUP, CLUSTER = 2, 3, 4
VERSIONS = (1, 2, 3)

Story = Callable[[Asked, Asked, SecurityStore], Awaitable[None]]


def play(story: Story) -> None:
    async def run() -> None:
        lists = authorizer()
        stores: list[SecurityStore] = []

        def acls(broker: Broker) -> AclHandlers:
            store = SecurityStore(broker)
            store.load()
            store.on_change(lambda: lists.replace(store.state.acls))
            stores.append(store)
            return AclHandlers(NodeAcls(store))

        node = MemoryNode({"orders": 1}, lists)
        node.acls = acls
        async with node:
            await story(Asked(node.dispatch, ROOT), Asked(node.dispatch, ALICE), stores[0])

    asyncio.run(run())


def row(**more: Any) -> Any:
    usual = {
        "resource_type": TOPIC,
        "resource_name": "orders",
        "resource_pattern_type": LITERAL,
        "principal": ALICE,
        "host": "*",
        "operation": READ,
        "permission_type": ALLOW,
    }
    return struct("CreateAclsRequest.creations")(**usual | more)


def filter_fields(**more: Any) -> dict[str, Any]:
    usual = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return usual | more


async def created(root: Asked, *rows: Any, version: int = 3) -> list[tuple[int, str | None]]:
    answer = await root("CreateAcls", version, creations=list(rows))
    return [(each.error_code, each.error_message) for each in answer.results]


async def described(root: Asked, version: int = 3, **more: Any) -> list[tuple[Any, ...]]:
    answer = await root("DescribeAcls", version, **filter_fields(**more))
    assert answer.error_code == 0, answer
    return [
        (
            of.resource_type,
            of.pattern_type,
            of.resource_name,
            entry.principal,
            entry.operation,
            entry.permission_type,
        )
        for of in answer.resources
        for entry in of.acls
    ]


@pytest.mark.parametrize("version", VERSIONS)
def test_what_is_made_is_in_force_at_once_is_told_and_goes_again(version: int) -> None:
    async def story(root: Asked, alice: Asked, store: SecurityStore) -> None:
        assert (await alice("Fetch", 12, request("Fetch", ["orders"], []))).responses[0].partitions[0].error_code == 29
        assert await created(root, row(), row(), version=version) == [(0, None), (0, None)]
        assert (await alice("Fetch", 12, request("Fetch", ["orders"], []))).responses[0].partitions[0].error_code == 0
        assert await described(root, version) == [(TOPIC, LITERAL, "orders", ALICE, READ, ALLOW)]
        wanted = struct("DeleteAclsRequest.filters")(**filter_fields(resource_name_filter="orders"))
        (gone,) = (await root("DeleteAcls", version, filters=[wanted])).filter_results
        (taken,) = gone.matching_acls
        assert (taken.resource_name, taken.principal, taken.error_code, gone.error_code) == ("orders", ALICE, 0, 0)
        assert await described(root, version) == []
        assert (await alice("Fetch", 12, request("Fetch", ["orders"], []))).responses[0].partitions[0].error_code == 29
        assert store.state.acls == set()

    play(story)


def test_filters_mean_what_they_mean_to_kafka() -> None:
    async def story(root: Asked, alice: Asked, store: SecurityStore) -> None:
        rows = [
            row(),
            row(resource_name="*"),
            row(resource_name="or", resource_pattern_type=PREFIXED),
            row(resource_name="orders", resource_pattern_type=PREFIXED, permission_type=2),
            row(resource_name="other"),
            row(resource_type=GROUP, principal="User:bob", host="10.0.0.7"),
            row(resource_type=CLUSTER, resource_name=CLUSTER_NAME, operation=8),
        ]
        assert await created(root, *rows) == [(0, None)] * 7

        async def names(**more: Any) -> list[tuple[Any, ...]]:
            return [(kind, pattern, name) for kind, pattern, name, *_ in await described(root, **more)]

        assert len(await names()) == 7
        assert await names(resource_type_filter=TOPIC, resource_name_filter="orders", pattern_type_filter=MATCH) == [
            (TOPIC, LITERAL, "*"),
            (TOPIC, LITERAL, "orders"),
            (TOPIC, PREFIXED, "or"),
            (TOPIC, PREFIXED, "orders"),
        ]
        assert await names(resource_type_filter=TOPIC, resource_name_filter="orders") == [
            (TOPIC, LITERAL, "orders"),
            (TOPIC, PREFIXED, "orders"),
        ]
        assert await names(resource_name_filter="orders", pattern_type_filter=LITERAL) == [
            (TOPIC, LITERAL, "orders"),
            (GROUP, LITERAL, "orders"),
        ]
        assert await names(principal_filter="User:bob") == [(GROUP, LITERAL, "orders")]
        assert await names(host_filter="10.0.0.7") == [(GROUP, LITERAL, "orders")]
        assert await names(host_filter="*", permission_type=2) == [(TOPIC, PREFIXED, "orders")]
        assert await names(operation=8) == [(CLUSTER, LITERAL, CLUSTER_NAME)]
        assert await names(resource_name_filter="*", pattern_type_filter=LITERAL) == [(TOPIC, LITERAL, "*")]
        assert await names(resource_name_filter="ord", pattern_type_filter=MATCH, resource_type_filter=TOPIC) == [
            (TOPIC, LITERAL, "*"),
            (TOPIC, PREFIXED, "or"),
        ]

    play(story)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ({"resource_type": 0}, "resource type 0; expected one of"),
        ({"resource_type": ANY}, "resource type 1"),
        ({"resource_type": 99}, "resource type 99"),
        ({"resource_pattern_type": MATCH}, "pattern type 2; expected 3"),
        ({"resource_pattern_type": ANY}, "pattern type 1"),
        ({"resource_name": ""}, "has no name"),
        ({"resource_name": "x" * 5000}, "5000 characters; expected at most 4096"),
        ({"principal": "alice"}, "'alice' is not a principal; expected KIND:NAME"),
        ({"principal": "user:alice"}, "'user:alice' names nobody"),
        ({"principal": "User: alice"}, "names nobody: expected no spaces"),
        ({"principal": "User:" + "x" * 5000}, "principal has 5005 characters"),
        ({"host": "db.example.com"}, "'db.example.com'; expected an IP address"),
        ({"host": ""}, "expected an IP address"),
        ({"operation": ANY}, "operation ANY; on TOPIC there are ALL"),
        ({"operation": 12}, "operation IDEMPOTENT_WRITE; on TOPIC"),
        ({"operation": 99}, "operation 99; on TOPIC"),
        ({"resource_type": GROUP, "operation": 4}, "operation WRITE; on GROUP"),
        ({"permission_type": ANY}, "permission 1; expected 3"),
        ({"resource_type": CLUSTER, "operation": 8, "resource_name": "orders"}, "only valid name for the CLUSTER"),
    ],
)
def test_what_can_be_no_entry_is_refused_and_hurts_no_other(wrong: dict[str, Any], why: str) -> None:
    async def story(root: Asked, alice: Asked, store: SecurityStore) -> None:
        (code, told), good = await created(root, row(**wrong), row())
        assert code == 42
        assert why in str(told)
        assert good == (0, None)
        assert len(store.state.acls) == 1

    play(story)


def test_addresses_are_kept_as_connections_write_them() -> None:
    async def story(root: Asked, alice: Asked, store: SecurityStore) -> None:
        assert await created(root, row(host="0:0:0:0:0:0:0:1")) == [(0, None)]
        assert {each.host for each in store.state.acls} == {"::1"}

    play(story)


@pytest.mark.parametrize(
    "unknown", [{"resource_type_filter": 0}, {"pattern_type_filter": 0}, {"operation": 99}, {"permission_type": 0}]
)
def test_a_filter_with_unknown_elements_is_refused(unknown: dict[str, int]) -> None:
    async def story(root: Asked, alice: Asked, store: SecurityStore) -> None:
        assert (await root("DescribeAcls", 3, **filter_fields(**unknown))).error_code == 42
        made = struct("DeleteAclsRequest.filters")
        await created(root, row())
        rows = [made(**filter_fields(**unknown)), made(**filter_fields(operation=READ))]
        bad, good = (await root("DeleteAcls", 3, filters=rows)).filter_results
        assert (bad.error_code, len(bad.matching_acls)) == (42, 0)
        assert (good.error_code, len(good.matching_acls)) == (0, 1)

    play(story)


def test_there_is_an_end_to_how_many_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(root: Asked, alice: Asked, store: SecurityStore) -> None:
        monkeypatch.setattr(lists_of_node, "MOST_ACLS", 2)
        assert await created(root, row(), row(operation=4)) == [(0, None)] * 2
        ((code, why),) = await created(root, row(operation=8))
        assert (code, why) == (44, "2 entries are there, and 1 to come; expected at most 2")
        assert await created(root, row()) == [(0, None)]  # which is there

    play(story)


def test_very_many_are_made_looked_for_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(root: Asked, alice: Asked, store: SecurityStore) -> None:
        monkeypatch.setattr(lists_of_node, "MOST_COMPARED", 10)
        rows = [row(resource_name=f"topic-{number}") for number in range(450)]
        assert {code for code, _ in await created(root, *rows)} == {0}
        assert len(await described(root)) == 450
        made = struct("DeleteAclsRequest.filters")
        filters = [made(**filter_fields(resource_name_filter=f"topic-{number}")) for number in range(2)]
        results = (await root("DeleteAcls", 3, filters=filters)).filter_results
        assert [len(each.matching_acls) for each in results] == [1, 1]
        assert len(store.state.acls) == 448

    play(story)


def test_a_long_list_is_made_in_a_thread_once_for_all_who_ask_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """Up to 100,000 entries were compared on the loop, for each of those who asked."""
    found_by: list[int] = []

    def find(*given: Any) -> Any:
        found_by.append(threading.get_ident())
        return find_entries(*given)

    monkeypatch.setattr(lists_of_node, "find_entries", find)

    async def story(root: Asked, alice: Asked, store: SecurityStore) -> None:
        for first in range(0, 2_500, 500):
            await created(root, *[row(resource_name=f"topic-{number}") for number in range(first, first + 500)])
        found_by.clear()
        lists = await asyncio.gather(*(described(root) for _ in range(20)))
        assert {len(each) for each in lists} == {2_500}
        assert 1 <= len(found_by) <= 2
        assert threading.get_ident() not in found_by

    play(story)


def test_who_may_not_is_refused_many_entries_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """100,000 rows that said no to somebody without any right held the others up for 150 to 540 ms."""
    written_by: list[int] = []

    def encode(*given: Any) -> Any:
        written_by.append(threading.get_ident())
        return codec.encode(*given)

    monkeypatch.setattr(table_judges, "encode", encode)

    async def story(root: Asked, alice: Asked, store: SecurityStore) -> None:
        assert await created(alice, *[row()] * 300) == [(31, "Cluster authorization failed.")] * 300
        assert await created(alice, row()) == [(31, "Cluster authorization failed.")]
        assert [each == threading.get_ident() for each in written_by] == [False, True]

    play(story)


@pytest.mark.parametrize("path", ["CreateAclsRequest.creations", "AlterClientQuotasRequest.entries"])
def test_no_more_than_kafka_takes_are_set_at_once(path: str) -> None:
    assert max_entries(path) == 10_000


def test_without_an_authorizer_there_are_no_lists() -> None:
    async def story() -> None:
        async with MemoryNode({"orders": 1}) as node:
            anybody = Asked(node.dispatch, ALICE)
            assert (await anybody("DescribeAcls", 3, **filter_fields())).error_code == 54
            assert [code for code, _ in await created(anybody, row(), row())] == [54, 54]
            wanted = struct("DeleteAclsRequest.filters")(**filter_fields())
            assert [each.error_code for each in (await anybody("DeleteAcls", 3, filters=[wanted])).filter_results] == [
                54
            ]

    asyncio.run(story())


def test_whoever_may_not_alter_the_cluster_is_refused_in_every_row() -> None:
    async def story(root: Asked, alice: Asked, store: SecurityStore) -> None:
        answer = await alice("CreateAcls", 3, creations=[row(), row()])
        assert [each.error_code for each in answer.results] == [31, 31]
        assert answer.results[0].error_message == "Cluster authorization failed."
        told = await alice("DescribeAcls", 3, **filter_fields())
        assert (told.error_code, told.resources) == (31, [])
        wanted = struct("DeleteAclsRequest.filters")(**filter_fields())
        assert [each.error_code for each in (await alice("DeleteAcls", 3, filters=[wanted])).filter_results] == [31]
        assert not store.state.acls
        acl = Acl(
            ResourceType.CLUSTER, PatternType.LITERAL, CLUSTER_NAME, ALICE, "*", Operation.ALTER, Permission.ALLOW
        )
        await store.write([SecurityRecord(AclKey(acl), acl)])
        assert [each.error_code for each in (await alice("CreateAcls", 3, creations=[row()])).results] == [0]
        assert len(await described(alice)) == 2  # ALTER stands for DESCRIBE

    play(story)


def test_lists_that_change_bit_by_bit_are_those_that_were_made_at_once() -> None:
    entries = [
        Acl(kind, pattern, name, who, host, operation, permission)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP)
        for pattern, name in ((PatternType.LITERAL, "ab"), (PatternType.PREFIXED, "a"), (PatternType.LITERAL, "*"))
        for who in (ALICE, "User:*")
        for host in ("*", "10.0.0.9")
        for operation in (Operation.READ, Operation.ALL)
        for permission in (Permission.ALLOW, Permission.DENY)
    ]
    who = Asked.identity(ALICE)
    there: set[Acl] = set()
    bit_by_bit = AclAuthorizer()
    for turn in range(100):
        gone = {each for at, each in enumerate(entries) if (at * 7 + turn * 13) % 11 == 0}
        come = {each for at, each in enumerate(entries) if (at * 5 + turn * 3) % 29 == 0} - gone
        there = (there - gone) | come
        bit_by_bit.change(gone, come)
        at_once = AclAuthorizer()
        at_once.replace(there)
        for kind in (ResourceType.TOPIC, ResourceType.GROUP):
            for operation in (Operation.READ, Operation.WRITE, Operation.DESCRIBE):
                for name in ("ab", "abc", "a", "b"):
                    asked = (who, operation, kind, name)
                    assert bit_by_bit.allows(*asked) == at_once.allows(*asked), (turn, asked)
                    assert bit_by_bit.allowed_names(who, operation, kind)(name) == at_once.allows(*asked), (turn, asked)
                assert bit_by_bit.allows_any(who, operation, kind) == at_once.allows_any(who, operation, kind)
