"""Who may do what at nodes over a Kafka: it says who clients are, and lists in a topic there what they may (KB-X10)."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient

from muster.client import Admin
from muster.client.errors import ClientError
from muster.coordinator.security.access_model import Acl, Operation, ResourceType
from muster.coordinator.security.acl_entries import AclFilter
from tests.integration.kafka_backend.conftest import PASSWORD, RealKafka
from tests.support.kafka_backend.secured import BY_NAME, Member, SecuredNode, allow, login, make_scram_users, until
from tests.support.kafka_backend.served import make_topics

pytestmark = [pytest.mark.integration, pytest.mark.timeout(240)]

READ, DESCRIBE = Operation.READ, Operation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP


@pytest.fixture(scope="module")
def nodes(real_kafka: RealKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[int, SecuredNode]]:
    make_topics(real_kafka.address, {"guarded": 2})
    make_scram_users(real_kafka.address, ["alice", "bob"], PASSWORD)
    place: Path = tmp_path_factory.mktemp("rights")
    both = {number: SecuredNode(real_kafka.asking, "rights", number, place, PASSWORD) for number in (1, 2)}
    with ExitStack() as stack:
        for node in both.values():
            stack.callback(node.stop)
            node.start()
        with both[1].admin() as root:
            root.create_acls(
                [
                    allow("alice", READ, TOPIC, "guarded"),
                    allow("alice", READ, GROUP, "of-alice"),
                    # He may look for its coordinator, so that what he is refused is the rest.
                    allow("bob", DESCRIBE, GROUP, "of-alice"),
                    allow("bob", READ, TOPIC, "guarded"),
                ]
            )
        yield both


def servers(nodes: dict[int, SecuredNode]) -> str:
    return ",".join(node.kafka_address for node in nodes.values())


@pytest.mark.parametrize("mechanism", ["PLAIN", *BY_NAME])
def test_who_the_broker_says_it_is_joins_by_its_rights(nodes: dict[int, SecuredNode], mechanism: str) -> None:
    alice = Member(login(servers(nodes), "alice", PASSWORD, mechanism), "of-alice", "guarded")
    bob = Member(login(servers(nodes), "bob", PASSWORD, mechanism), "of-alice", "guarded")
    try:
        until(lambda: alice.joined, "alice is in", *nodes.values())
        until(lambda: bob.refused, "bob is refused", *nodes.values())
        assert not alice.refused
        until(lambda: alice.commits("guarded"), "alice commits", *nodes.values())
        with pytest.raises(KafkaException) as refused:
            bob.consumer.commit(offsets=[TopicPartition("guarded", 0, 1)], asynchronous=False)
        assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        with nodes[1].admin() as root:
            assert {each.client_host for each in root.describe_group("of-alice").members} == {"127.0.0.1"}
    finally:
        alice.close()
        bob.close()


def test_a_right_that_is_taken_away_ends_a_member_at_whatever_node_it_is(nodes: dict[int, SecuredNode]) -> None:
    right = allow("bob", READ, GROUP, "of-bob")
    with nodes[1].admin() as one, nodes[2].admin() as two:
        two.create_acls([right])
        member = Member(login(servers(nodes), "bob", PASSWORD), "of-bob", "guarded")
        try:
            until(lambda: member.joined, "bob is in", *nodes.values())
            one.delete_acls([AclFilter(*right)])
            until(lambda: member.refused, "bob hears that he may no longer", *nodes.values())
            assert right not in two.acls()
        finally:
            member.close()


def test_what_two_nodes_change_at_once_is_all_there_also_behind_a_restart(nodes: dict[int, SecuredNode]) -> None:
    made = [[allow(f"user-{number}", READ, GROUP, f"n{node}") for number in range(10)] for node in nodes]
    with nodes[1].admin() as one, nodes[2].admin() as two:

        def change(of: tuple[Admin, list[Acl]]) -> None:
            for acl in of[1]:
                of[0].create_acls([acl])

        with ThreadPoolExecutor(2) as both:
            list(both.map(change, zip((one, two), made, strict=True)))
        wanted = {acl for of_one in made for acl in of_one}
        until(lambda: wanted <= {*one.acls()}, "node 1 has all", *nodes.values())
        until(lambda: wanted <= {*two.acls()}, "node 2 has all", *nodes.values())
    nodes[2].kill()
    nodes[2].start()
    with nodes[2].admin() as two:
        assert wanted <= {*two.acls()}, "before it answers it knows all"


def test_what_one_may_not_see_of_groups_does_not_exist(nodes: dict[int, SecuredNode]) -> None:
    """Requests that name several groups are cut apart: of those that are Muster's its lists say who may."""
    bob = AdminClient(login(nodes[1].kafka_address, "bob", PASSWORD))
    alice = Member(login(servers(nodes), "alice", PASSWORD), "of-alice", "guarded")
    try:
        until(lambda: alice.joined, "alice is in", *nodes.values())
        listed = bob.list_consumer_groups().result(30).valid
        assert {each.group_id for each in listed} <= {"of-alice"}
        told = bob.describe_consumer_groups(["of-alice", "hidden"])
        assert told["of-alice"].result(30).group_id == "of-alice"
        with pytest.raises(KafkaException) as refused:
            told["hidden"].result(30)
        assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
        with pytest.raises(KafkaException) as refused:
            bob.delete_consumer_groups(["of-alice"])["of-alice"].result(30)
        assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    finally:
        alice.close()


def test_whom_the_broker_does_not_know_nobody_serves(nodes: dict[int, SecuredNode]) -> None:
    failed: list[int] = []
    given = login(servers(nodes), "alice", "wrong", "SCRAM-SHA-256")
    member = Member({**given, "error_cb": lambda error: failed.append(error.code())}, "of-alice", "guarded")
    try:
        until(lambda: bool(member.poll() or failed), "the login fails", *nodes.values())
        assert KafkaError._AUTHENTICATION in failed
        assert not member.consumer.assignment()
    finally:
        member.close()


def test_passwords_are_changed_at_the_brokers(nodes: dict[int, SecuredNode]) -> None:
    with nodes[1].admin() as root, pytest.raises(ClientError, match="at the brokers of the Kafka"):
        root.put_users({"carol": "secret"})


def test_a_quota_of_what_does_not_pass_here_is_refused_in_words(nodes: dict[int, SecuredNode]) -> None:
    with nodes[1].admin() as root:
        with pytest.raises(ClientError, match="producer_byte_rate is kept by the brokers"):
            root.alter_quotas({"user": "bob"}, {"producer_byte_rate": 1000.0})
        root.alter_quotas({"user": "bob"}, {"group_count": 9.0})
