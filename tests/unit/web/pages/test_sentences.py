"""A rebalance in one sentence, and members by names that people know."""

import pytest

from muster.coordinator.observability.views.member_names import KnownMember, Names, names_of
from muster.coordinator.observability.views.sentences import CAUSES, cause_kind, sentence
from muster.coordinator.rpc.v1 import ledger_pb2
from muster.coordinator.rpc.v1.ledger_pb2 import MemberPlan, PartitionMove, Rebalance

COMPLETED = ledger_pb2.REBALANCE_OUTCOME_COMPLETED


def moves(*pairs: tuple[str, str]) -> list[PartitionMove]:
    return [
        PartitionMove(topic="t", partition=at, source=source, target=target)
        for at, (source, target) in enumerate(pairs)
    ]


def told(cause: int, culprit: str, *pairs: tuple[str, str], outcome: int = COMPLETED) -> str:
    entry = Rebalance(cause=cause, culprit=culprit, moves=moves(*pairs), outcome=outcome)
    return sentence(entry, names_of([entry]))


def test_who_fell_silent_and_where_its_partitions_went() -> None:
    assert told(ledger_pb2.REBALANCE_CAUSE_SESSION_EXPIRED, "c3", ("c3", "c1"), ("c3", "c2"), ("c3", "c1")) == (
        "c3 stopped answering; its 3 partitions went to c1 and c2."
    )


def test_who_joined_and_what_it_took() -> None:
    joined = ledger_pb2.REBALANCE_CAUSE_MEMBER_JOINED
    assert told(joined, "b", ("", "b")) == "b joined; it took 1 partition that nobody had."
    assert told(joined, "b", ("a", "b"), ("a", "b"), ("a", "c")) == (
        "b joined; it took 2 partitions from a; 1 more moved between the others."
    )
    assert told(joined, "b") == "b joined; nothing moved."


def test_partitions_that_nobody_has_afterwards_are_named_so() -> None:
    left, emptied = ledger_pb2.REBALANCE_CAUSE_MEMBER_LEFT, ledger_pb2.REBALANCE_OUTCOME_EMPTIED
    assert told(left, "a", ("a", ""), ("a", ""), outcome=emptied) == (
        "a left; its 2 partitions are without an owner; nobody is left."
    )


def test_nobody_s_fault_begins_with_a_capital() -> None:
    changed = ledger_pb2.REBALANCE_CAUSE_PARTITIONS_CHANGED
    assert told(changed, "", ("", "a"), ("", "b")) == (
        "Topics or partitions changed; 2 partitions that nobody had went to a and b."
    )


def test_who_gave_and_took_alike_exchanged() -> None:
    """Not "6 partitions went to a and b, from a and b"."""
    changed = ledger_pb2.REBALANCE_CAUSE_ASSIGNOR_CHANGED
    assert told(changed, "", ("a", "b"), ("b", "a")) == (
        "The assignor was changed; 2 partitions changed hands between a and b."
    )


def test_a_canary_says_what_it_tries() -> None:
    entry = Rebalance(
        cause=ledger_pb2.REBALANCE_CAUSE_CANARY,
        outcome=COMPLETED,
        moves=moves(("a", "b")),
        detail="a canary began: lag in place of uniform",
    )
    assert sentence(entry, names_of([entry])) == (
        "A canary began: lag in place of uniform; 1 partition went to b, from a."
    )


def test_what_was_held_calls_members_by_the_names_that_the_map_has() -> None:
    member = "shop-3-4abb223b-4475-48eb-8550-7cb2b7c8a01a"
    entry = Rebalance(outcome=ledger_pb2.REBALANCE_OUTCOME_HELD, culprit=member, detail=f"member {member} left")
    assert sentence(entry, names_of([entry])) == "Member shop-3 left."


@pytest.mark.parametrize("cause", sorted(set(ledger_pb2.RebalanceCause.keys()) - {"REBALANCE_CAUSE_UNSPECIFIED"}))
def test_every_cause_has_words_and_a_colour(cause: str) -> None:
    short = cause.removeprefix("REBALANCE_CAUSE_")
    assert short in CAUSES
    assert cause_kind(short) in ("trouble", "change", "operator", "followup")
    assert told(ledger_pb2.RebalanceCause.Value(cause), "who").endswith(".")


def test_a_member_that_came_back_has_the_plain_name_and_the_one_before_a_bit_of_its_id() -> None:
    old, new = ("worker-1-aaaa0000-0000-4000-8000-000000000000", "worker-1-bbbb0000-0000-4000-8000-000000000000")
    names = Names({old: KnownMember(), new: KnownMember()}, [new])
    assert names[new] == "worker-1"
    assert names[old].startswith("worker-1-")
    assert names[old] != names[new]


def test_a_member_that_is_a_bare_uuid_goes_by_its_client_id() -> None:
    uuid = "d3d15202-ead7-4551-9a0c-86d24397f16b"
    entry = Rebalance(
        culprit=uuid, culprit_client_id="fraud-a", members=[MemberPlan(member_id=uuid, client_id="fraud-a")]
    )
    assert names_of([entry])[uuid] == "fraud-a"
    assert Names.of_ids([uuid])[uuid] == "d3d15202"
    two = Names({uuid: KnownMember("x"), uuid[::-1]: KnownMember("x")}, [uuid, uuid[::-1]])
    assert two[uuid] != two[uuid[::-1]]


def test_an_operator_whose_name_and_reason_are_as_long_as_a_uuid_keeps_both() -> None:
    operator = "operator at 127.0.0.1 (tried enough)"
    assert len(operator) == len("4abb223b-4475-48eb-8550-7cb2b7c8a01a")
    assert Names.of_ids([operator])[operator] == operator
