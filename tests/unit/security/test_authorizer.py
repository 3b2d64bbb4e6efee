"""Decisions as Kafka's StandardAuthorizer makes them."""

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

ALICE = Identity(Principal("User", "alice"), "10.0.0.1")
READ, WRITE, DESCRIBE, ALL = Operation.READ, Operation.WRITE, Operation.DESCRIBE, Operation.ALL
ALLOW, DENY = Permission.ALLOW, Permission.DENY


def entry(
    operation: Operation,
    permission: Permission = ALLOW,
    name: str = "orders",
    principal: str = "User:alice",
    host: str = "*",
    pattern: PatternType = PatternType.LITERAL,
    kind: ResourceType = ResourceType.TOPIC,
) -> Acl:
    return Acl(kind, pattern, name, principal, host, operation, permission)


def may(*acls: Acl, operation: Operation = READ, name: str = "orders", open_if_none: bool = False) -> bool:
    lists = AclAuthorizer(allow_if_no_acl_found=open_if_none)
    lists.replace(acls)
    return lists.allows(ALICE, operation, ResourceType.TOPIC, name)


def test_what_nobody_allows_is_not_allowed() -> None:
    assert not may()
    assert may(entry(READ))
    assert not may(entry(WRITE))
    assert not may(entry(READ, principal="User:bob"))
    assert not may(entry(READ, host="10.0.0.2"))
    assert not may(entry(READ, kind=ResourceType.GROUP))
    assert may(entry(READ, host="10.0.0.1"))
    assert may(entry(READ, principal="User:*"))


def test_what_is_denied_is_denied_whatever_allows_it() -> None:
    assert not may(entry(READ), entry(READ, DENY))
    assert not may(entry(READ), entry(ALL, DENY, name="ord", pattern=PatternType.PREFIXED))
    assert not may(entry(READ), entry(READ, DENY, name="*", principal="User:*"))
    assert may(entry(READ), entry(WRITE, DENY))


def test_names_are_literal_prefixed_or_any() -> None:
    prefixed = entry(READ, name="ord", pattern=PatternType.PREFIXED)
    assert may(prefixed)
    assert may(prefixed, name="ord")
    assert not may(prefixed, name="or")
    assert not may(entry(READ, name="ord"))
    assert may(entry(READ, name="*"))


def test_an_allowed_operation_implies_describe_and_a_denied_one_nothing() -> None:
    for operation in (READ, WRITE, Operation.DELETE, Operation.ALTER, ALL):
        assert may(entry(operation), operation=DESCRIBE)
    assert not may(entry(Operation.CREATE), operation=DESCRIBE)
    assert may(entry(Operation.ALTER_CONFIGS), operation=Operation.DESCRIBE_CONFIGS)
    assert may(entry(DESCRIBE), entry(READ, DENY), operation=DESCRIBE)


def test_everybody_is_allowed_only_where_no_entry_names_the_resource() -> None:
    assert may(open_if_none=True)
    assert not may(entry(READ, principal="User:bob"), open_if_none=True)
    assert may(entry(READ, principal="User:bob"), name="payments", open_if_none=True)


def test_super_users_may_do_everything_and_decisions_fall_with_the_lists() -> None:
    lists = AclAuthorizer([parse_principal("User:alice")])
    lists.replace([entry(ALL, DENY)])
    assert lists.allows(ALICE, READ, ResourceType.TOPIC, "orders")
    plain = AclAuthorizer()
    assert not plain.allows(ALICE, READ, ResourceType.TOPIC, "orders")
    plain.replace([entry(READ)])
    assert plain.allows(ALICE, READ, ResourceType.TOPIC, "orders")


def test_decisions_about_long_names_are_not_kept() -> None:
    """Names are the caller's: a hundred thousand of 32 KB, which it had no right to, were kept for it."""
    lists = AclAuthorizer()
    lists.replace([entry(READ, name="o", pattern=PatternType.PREFIXED)])
    for number in range(9):
        assert lists.allows(ALICE, READ, ResourceType.TOPIC, f"o{number}" + "x" * 30_000)
        assert not lists.allows(ALICE, READ, ResourceType.TOPIC, f"p{number}" + "x" * 30_000)
    assert lists.allows(ALICE, READ, ResourceType.TOPIC, "orders")
    assert len(lists._lists.kept) == 1
