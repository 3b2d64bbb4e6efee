"""What members are called, the same in one whole answer."""

import pytest

from muster.coordinator.observability.views.member_names import KnownMember, Names, names_of
from muster.coordinator.rpc.v1.ledger_pb2 import Incarnation, MemberPlan, Rebalance
from tests.support.ledger_entries import ledger_entry, member_id

JAVA_ID = "XmH9xK4VQ1u0aYw2Zq8j3A"
"""As a KIP-848 member of Java chooses it."""


def test_a_kip_848_member_goes_by_its_client_id() -> None:
    entry = Rebalance(number=1, members=[MemberPlan(member_id=JAVA_ID, client_id="billing", client_host="h")])
    assert names_of([entry])[JAVA_ID] == "billing"


@pytest.mark.parametrize(
    ("members", "called"),
    [
        ([("a", "", "h1"), ("b", "", "h1")], ["a", "b"]),
        ([("c", "pod-1", "h1"), ("c", "pod-2", "h1")], ["pod-1", "pod-2"]),
        ([("c", "", "h1"), ("c", "", "h2")], ["c@h1", "c@h2"]),
        ([("c", "", "h1"), ("c", "", "h1")], ["c-0000", "c-0001"]),
        ([("c", "pod-1", "h1"), ("c", "", "h1")], ["c-0000", "c-0001"]),
    ],
)
def test_namesakes_are_told_apart_by_instance_host_or_letters(
    members: list[tuple[str, str, str]], called: list[str]
) -> None:
    known = {f"c-{at:04d}0000-0000-4000-8000-000000000000": KnownMember(*each) for at, each in enumerate(members)}
    names = Names(known)
    assert [names[member] for member in known] == called


def test_no_two_members_have_one_name() -> None:
    known = {
        "c-00001111-0000-4000-8000-000000000000": KnownMember("c"),
        "c-00002222-0000-4000-8000-000000000000": KnownMember("c"),
        "x": KnownMember("c-00001"),
    }
    names = Names(known)
    assert len({names[member] for member in known}) == 3


def test_who_is_in_the_group_has_the_plain_name_and_who_was_a_few_letters_more() -> None:
    entries = [ledger_entry(2, "MEMBER_JOINED", 5, ["a2", "b"]), ledger_entry(1, "MEMBER_JOINED", 0, ["a", "b"])]
    names = names_of(entries)
    assert [names[member_id(each)] for each in ("a2", "b", "a")] == ["a", "b", "a-0000"]


def test_who_came_back_brings_the_name_of_its_old_id() -> None:
    entry = Rebalance(
        number=1,
        members=[MemberPlan(member_id=JAVA_ID, client_id="billing")],
        incarnations=[Incarnation(member_id=JAVA_ID, previous_id="other-random-id")],
    )
    assert names_of([entry])["other-random-id"] == "billing-othe"


@pytest.mark.parametrize(
    ("told", "read"),
    [
        ("member {} (a, librdkafka 2.3 at 10.0.0.1) left", "a (librdkafka 2.3 at 10.0.0.1) left"),
        ("member {} (a at 10.0.0.1) left", "a at 10.0.0.1 left"),
        ("member {} left", "member a left"),
        ("{}2 is somebody else", "{}2 is somebody else"),
        ("the leader {} (of three)", "the leader a (of three)"),
    ],
)
def test_sentences_say_a_name_once(told: str, read: str) -> None:
    member = member_id("a")
    names = Names({member: KnownMember("a", "", "10.0.0.1")})
    assert names.in_text(told.format(member)) == read.format(member)
