"""What goes with a join says the same as the lists would, and changes are told to the groups."""

from dataclasses import replace
from itertools import product
from typing import Final

import pytest

from muster.coordinator.core.model.rights import RightsAnew
from muster.coordinator.security.access_model import (
    Acl,
    Identity,
    Operation,
    PatternType,
    Permission,
    Principal,
    ResourceType,
    parse_principal,
)
from muster.coordinator.security.authorizer import AclAuthorizer
from muster.coordinator.server.security.acl_service import PrincipalTopicRights

BOB: Final = Identity(Principal("User", "bob"), "10.0.0.7")
EVE: Final = Identity(Principal("User", "eve"), "10.0.0.9")
ROOT: Final = Identity(Principal("User", "root"), "10.0.0.1")
TOPICS: Final = ("orders", "orders.eu", "secret", "or", "x")
ENTRIES: Final = [
    Acl(ResourceType.TOPIC, pattern, name, principal, host, operation, permission)
    for pattern, name in (
        (PatternType.LITERAL, "orders"),
        (PatternType.LITERAL, "*"),
        (PatternType.PREFIXED, "orders."),
        (PatternType.PREFIXED, "or"),
    )
    for principal, host in (("User:bob", "*"), ("User:*", "10.0.0.7"), ("User:eve", "*"))
    for operation in (Operation.READ, Operation.DESCRIBE, Operation.ALTER, Operation.ALL)
    for permission in (Permission.ALLOW, Permission.DENY)
]


@pytest.mark.parametrize("allow_if_none", [False, True])
def test_the_same_is_decided_as_by_the_lists(allow_if_none: bool) -> None:
    for pair in product(ENTRIES[::3], ENTRIES):
        judge = AclAuthorizer({parse_principal("User:root")}, allow_if_no_acl_found=allow_if_none)
        judge.replace(pair)
        rights = PrincipalTopicRights(judge.is_super, allow_if_no_acl_found=allow_if_none)
        rights.replace(pair)
        for who in (BOB, EVE, ROOT):
            may = rights.of(who)
            for topic in TOPICS:
                asked = who, pair, topic
                assert may.may_read(topic) is judge.allows(who, Operation.READ, ResourceType.TOPIC, topic), asked
                known = judge.allows(who, Operation.DESCRIBE, ResourceType.TOPIC, topic)
                assert may.may_describe(topic) is known, asked


def test_a_change_is_as_if_all_were_read_anew() -> None:
    rights, fresh = (PrincipalTopicRights(lambda who: False) for _ in range(2))
    kept: list[Acl] = []
    for at, acl in enumerate(ENTRIES * 2):
        rights.of(BOB), rights.of(EVE)
        gone = [kept.pop(at % len(kept))] if at % 3 == 2 else []
        if acl not in kept:
            kept.append(acl)
        rights.change(gone, [acl])
        fresh.replace(kept)
        assert (rights.of(BOB), rights.of(EVE)) == (fresh.of(BOB), fresh.of(EVE))
    rights.replace([])
    fresh.replace([])
    assert rights.of(BOB) == fresh.of(BOB)
    assert not rights._acls


def test_only_who_may_something_else_is_told() -> None:
    told: list[RightsAnew] = []
    rights = PrincipalTopicRights(lambda who: False)
    rights.tell = told.append
    before = rights.of(BOB), rights.of(EVE)
    entry = Acl(ResourceType.TOPIC, PatternType.LITERAL, "t", "User:bob", "*", Operation.READ, Permission.ALLOW)
    rights.replace([entry])
    assert [list(event.rights) for event in told] == [["User:bob@10.0.0.7"]]
    assert rights.of(EVE) is before[1]
    assert rights.of(BOB).may_read("t")
    rights.replace([entry, entry._replace(resource_type=ResourceType.GROUP)])
    assert len(told) == 1


def test_who_logs_in_again_is_nobody_new() -> None:
    """Each login that ends is another Identity: one member that logs in every minute was kept thousands of times."""
    rights = PrincipalTopicRights(lambda who: False)
    first = rights.of(BOB)
    assert all(rights.of(replace(BOB, until_s=float(number), token_id=str(number))) is first for number in range(9))
    assert len(rights._kept) == 1


def test_what_was_told_counts_for_its_moment_and_for_this_one_only() -> None:
    rights = PrincipalTopicRights(lambda who: False)
    who = replace(BOB)
    before = rights.of(who)
    assert (who.told.moment, who.told.rights) == (rights.moment, before)
    assert replace(who, principal=EVE.principal).told.moment is None
    entry = Acl(ResourceType.TOPIC, PatternType.LITERAL, "t", "User:bob", "*", Operation.READ, Permission.ALLOW)
    for change in (lambda: rights.change([], [entry]), lambda: rights.replace([])):
        change()
        assert who.told.moment is not rights.moment
        assert rights.of(who) == who.told.rights != before
        before = who.told.rights


def test_who_is_forgotten_is_met_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a change would not be told of them, though they go on."""
    monkeypatch.setattr("muster.coordinator.server.security.acl_service.MOST_KEPT", 1)
    rights = PrincipalTopicRights(lambda who: False)
    bob = replace(BOB)
    rights.of(bob)
    rights.of(EVE)
    assert bob.told.moment is not rights.moment
