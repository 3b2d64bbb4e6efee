"""Who may do what, of three nodes and one without a copy: changed on any of them, in force on all."""

import asyncio
import random
from pathlib import Path

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.io import copy_repair
from muster.coordinator.replication.io.replica_logs import verify_log
from muster.coordinator.replication.io.security_log import BEFORE_ALL, PLACE
from muster.coordinator.security.access_model import PatternType, ResourceType
from muster.coordinator.security.acl_entries import AclFilter
from muster.coordinator.security.passwords import SCRAM_NUMBERS
from muster.coordinator.security.state import AclKey, SecurityRecord
from muster.coordinator.server.cluster_backend import shared_security
from muster.coordinator.server.cluster_backend.pending_changes import pending_store, read_pending
from muster.coordinator.server.cluster_backend.shared_security import BEGUN
from muster.coordinator.server.security.accounts import SaltedCredential, UserAccounts
from muster.coordinator.server.security.security_store import SecurityStore, SecurityUnavailable
from muster.storage.broker.broker import Broker
from tests.integration.conftest import Run
from tests.support.secured_sides import SecuredSides, acl
from tests.support.sides import CLUSTER

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
    def salted(mechanism: str) -> SaltedCredential:
        number = SCRAM_NUMBERS[mechanism]
        size = {"SCRAM-SHA-256": 32, "SCRAM-SHA-512": 64}[mechanism]
        return SaltedCredential("alice", number, 4096, b"0123456789ab", bytes(size))

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
    monkeypatch.setattr(shared_security, "DEADLINE_S", 0.5)

    async def story() -> None:
        async with SecuredSides(tmp_path, 4) as nodes:
            await nodes.known()
            await nodes[1].acls.create([acl("orders")])
            for number in (1, 2, 3):
                await nodes.kill(number)
            with pytest.raises(SecurityUnavailable) as refused:
                await nodes[4].acls.create([acl("more")])
            assert ErrorCode(refused.value.code).retriable
            ((code, _),) = (await nodes[4].accounts.alter_users([("bob", "secret", 0)], [])).values()
            assert code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)
            assert nodes[4].names == {"orders"}
            assert not nodes[4].failures

    run(story)


def test_what_a_node_had_for_itself_is_its_cluster_s_once(tmp_path: Path, run: Run) -> None:
    """A single node that becomes one of many: its denials are not lost, nor come again when they were taken back."""
    for node in (2, 3):
        alone = Broker(tmp_path / str(node), node_id=node, cluster_id=CLUSTER)
        store = SecurityStore(alone)
        store.load()
        asyncio.run(store.write([SecurityRecord(AclKey(acl(str(node))), acl(str(node)))]))
        alone.close()

    async def story() -> None:
        async with SecuredSides(tmp_path) as nodes:
            await nodes.known()
            await nodes.sides.until(lambda: BEGUN in nodes[1].store.state.secrets)
            assert nodes[1].names in ({"2"}, {"3"}, {"2", "3"})
            (name, *_) = nodes[1].names
            await nodes[1].acls.delete([of("2"), of("3")])
            await nodes.all_have()
            await nodes.kill(int(name))
            again = await nodes.start(int(name))
            await again.knowing
            await nodes[1].acls.create([acl("more")])
            await nodes.all_have("more")

    run(story)


def test_users_that_wait_in_a_directory_are_known_to_all_once_its_node_is_started(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        with pending_store(tmp_path / "2") as waiting:
            waiting.load()
            await UserAccounts(waiting).alter_users([("admin", "correct horse", 0)], [])
        async with SecuredSides(tmp_path, 4) as nodes:
            await nodes.known()
            await nodes.sides.until(lambda: all("admin" in each.store.state.users for each in nodes.secured.values()))
            assert not read_pending(tmp_path / "2")

    run(story)


def broken(path: Path) -> None:
    """One bit of what is durable is another."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize("while_it_runs", [False, True], ids=["while it was stopped", "under the leader"])
def test_a_copy_with_a_flipped_bit_is_used_by_nobody_and_made_anew(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch, while_it_runs: bool
) -> None:
    monkeypatch.setattr(copy_repair, "SECURITY_AFTER_MS", 0)

    async def story() -> None:
        async with SecuredSides(tmp_path, 4) as nodes:
            await nodes.known()
            for number in range(8):
                await nodes[4].acls.create([acl(str(number))])
            hurt = await nodes.leader()
            path = tmp_path / str(hurt) / "__security-0" / f"{0:020}.log"
            if while_it_runs:
                broken(path)
                nodes[4].following._offset = BEFORE_ALL  # It reads all of it again, from its beginning.
            else:
                await nodes.kill(hurt)
                broken(path)
                assert (await nodes.start(hurt)).node.id == hurt
            await nodes.sides.until(lambda: any(n.id != hurt and n.leads(PLACE) for n in nodes.sides.up))
            await nodes[4].acls.create([acl("more")])
            await nodes.all_have(*map(str, range(8)), "more")
            replicas = nodes[hurt].node.side.replicas

            def whole() -> bool:
                copy = nodes[hurt].node.broker.private_log(*PLACE)
                leads = nodes[hurt].node.leads(PLACE)
                return PLACE not in replicas.offline and copy is not None and (leads or copy.end_offset >= 9)

            await nodes.sides.until(whole)
            verify_log(nodes[hurt].node.broker.held_log(*PLACE))

    run(story)


def test_changes_at_all_nodes_while_nodes_are_killed(tmp_path: Path, run: Run) -> None:
    """What was acknowledged holds on all, and all are of one mind."""
    draw = random.Random(7)

    async def story() -> None:
        async with SecuredSides(tmp_path, 4) as nodes:
            await nodes.known()
            sure: dict[str, bool] = {}
            """Of each name, what was acknowledged last; nothing while it is not known."""

            async def change(number: int, name: str) -> None:
                there = draw.random() < 0.6
                sure.pop(name, None)
                acls = nodes[number].acls
                try:
                    await (acls.create([acl(name)]) if there else acls.delete([of(name)]))
                except SecurityUnavailable:
                    return
                sure[name] = there

            for step in range(40):
                names = draw.sample([str(each) for each in range(9)], 4)
                victim = draw.choice([1, 2, 3]) if step % 10 == 5 else 0
                up = [each for each in nodes.secured if each != victim]
                changes = [asyncio.create_task(change(draw.choice(up), name)) for name in names]
                if victim:
                    await nodes.kill(victim)
                await asyncio.gather(*changes)
                if victim:
                    await (await nodes.start(victim)).knowing
            await nodes[4].acls.create([acl("last")])
            await nodes.sides.until(
                lambda: all("last" in each.names and each.names == nodes[4].names for each in nodes.secured.values())
            )
            for name, there in sure.items():
                assert (name in nodes[4].names) is there, name
            assert len(sure) > 3

    run(story)


def test_what_an_unclean_election_cost_is_in_force_nowhere(tmp_path: Path, run: Run) -> None:
    """By an operator's word a copy leads that lacks the last change: all go by what it has, the former leader too."""

    async def story() -> None:
        async with SecuredSides(tmp_path, 4) as nodes:
            await nodes.known(min_insync_replicas="1", unclean_leader_election_enable="true")
            await nodes[4].acls.create([acl("before")])
            await nodes.all_have("before")
            former = await nodes.leader()
            late = [number for number in (1, 2, 3) if number != former]
            for number in late:
                await nodes.kill(number)
            await nodes[4].acls.create([acl("lost")])
            assert nodes[4].names == {"before", "lost"}
            await nodes.kill(former)
            for number in late:
                await nodes.start(number)
            await nodes.all_have("before")
            await nodes[4].acls.create([acl("after")])
            await nodes.start(former)
            await nodes.all_have("before", "after")

    run(story)


def test_when_all_were_killed_nobody_is_answered_by_less_than_was_acknowledged(tmp_path: Path, run: Run) -> None:
    async def story() -> None:
        async with SecuredSides(tmp_path) as nodes:
            await nodes.known()
            for number in range(5):
                await nodes[1].acls.create([acl(str(number))])
            for number in (1, 2, 3):
                await nodes.kill(number)
            for number in (2, 3, 1):
                again = await nodes.start(number)
                if number == 2:
                    await nodes.sides.leader(PLACE)
                    assert not again.knowing.done() or again.names == set("01234")
            for each in nodes.secured.values():
                await each.knowing
                assert each.names == set("01234")

    run(story)
