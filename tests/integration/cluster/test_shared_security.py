"""Who may do what, of three nodes and one without a copy: changed on any of them, in force on all."""

import asyncio
from pathlib import Path

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.security.acl.filters import AclFilter
from muster.coordinator.security.acl.model import PatternType, ResourceType
from muster.coordinator.security.login.scram import NUMBERS
from muster.coordinator.server.clustered import shared_store
from muster.coordinator.server.security.accounts import Salted
from muster.coordinator.server.security.store import Unavailable
from tests.integration.conftest import Run
from tests.support.secured_sides import SecuredSides, acl

pytestmark = pytest.mark.integration

EACH = (1, 2, 3, 4)


def of(name: str) -> AclFilter:
    return AclFilter(ResourceType.TOPIC, PatternType.LITERAL, name)


def test_what_one_node_is_told_is_in_force_on_all(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with SecuredSides(tmp_path, 4) as nodes:
            assert not nodes[1].knowing.done(), "nobody knows anything before there is the topic"
            await nodes.known()
            for number in EACH:
                await nodes[number].acls.create([acl(str(number))])
                assert str(number) in nodes[number].names, "on the node that was asked it is when it is answered"
            await nodes.all_have(*map(str, EACH))
            await nodes[4].acls.delete([of("1"), of("2")])
            await nodes.all_have("3", "4")

    run(story)


def test_two_nodes_that_change_one_user_at_once_both_have_their_way(tmp_path: Path, run: Run) -> None:
    def salted(mechanism: str) -> Salted:
        number = NUMBERS[mechanism]
        size = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}[mechanism]
        return Salted("alice", number, 4096, b"0123456789ab", bytes(size))

    mechanisms = {"SCRAM-SHA-256", "SCRAM-SHA-512"}

    async def story() -> None:
        async with SecuredSides(tmp_path, 4) as nodes:
            await nodes.known()
            for _ in range(5):
                one, two, _ = await asyncio.gather(
                    nodes[4].accounts.alter_scram([salted("SCRAM-SHA-256")], []),
                    nodes[2].accounts.alter_scram([salted("SCRAM-SHA-512")], []),
                    nodes[3].acls.create([acl("orders")]),
                )
                assert one["alice"][0] == two["alice"][0] == 0, (one, two)
                await nodes.sides.until(
                    lambda: all(
                        "alice" in each.store.state.users and set(each.store.state.users["alice"].scram) == mechanisms
                        for each in nodes.secured.values()
                    )
                )
                ((code, _),) = (await nodes[1].accounts.alter_users([], ["alice"])).values()
                assert code == 0
                assert "alice" not in nodes[1].store.state.users

    run(story)


def test_what_was_taken_from_somebody_stays_so_when_the_leader_dies(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with SecuredSides(tmp_path, 4) as nodes:
            await nodes.known()
            await nodes[4].acls.create([acl("orders")])
            former = await nodes.leader()
            await nodes.kill(former)
            assert all("orders" in each.names for number, each in nodes.secured.items() if number == 4)
            await nodes[4].acls.create([acl("more")])
            await nodes.all_have("orders", "more")
            again = await nodes.start(former)
            assert not again.names
            await again.knowing
            assert again.names == {"orders", "more"}, "it knows all before anybody is answered"

    run(story)


def test_while_nobody_leads_rights_stand_and_changes_are_refused_for_now(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shared_store, "DEADLINE_S", 0.5)

    async def story() -> None:
        async with SecuredSides(tmp_path, 4) as nodes:
            await nodes.known()
            await nodes[1].acls.create([acl("orders")])
            for number in (1, 2, 3):
                await nodes.kill(number)
            with pytest.raises(Unavailable) as refused:
                await nodes[4].acls.create([acl("more")])
            assert ErrorCode(refused.value.code).retriable
            ((code, _),) = (await nodes[4].accounts.alter_users([("bob", "secret", 0)], [])).values()
            assert code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
            assert nodes[4].names == {"orders"}
            assert not nodes[4].failures

    run(story)
