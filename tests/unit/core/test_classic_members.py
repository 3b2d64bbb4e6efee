"""The members of a classic group, as a whole: what they say of one protocol."""

from muster.coordinator.core.classic.group import ClassicMember, ClassicMembers
from muster.coordinator.core.model.types import Protocol


def member(name: str, **said: bytes) -> ClassicMember:
    protocols = tuple(Protocol(protocol, metadata) for protocol, metadata in said.items())
    return ClassicMember(
        id=name,
        group_instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=1,
        session_timeout_ms=1,
        protocols=protocols,
    )


def test_what_members_say_is_what_they_say_now() -> None:
    members = ClassicMembers()
    a, b = member("a", range=b"1", sticky=b"2"), member("b", sticky=b"3")
    members.add(a)
    assert members.subscriptions("range") == [b"1"]
    members.add(b)
    assert members.subscriptions("range") == [b"1", b""]
    assert members.subscriptions("sticky") == [b"2", b"3"]
    assert members.subscriptions("range") == [b"1", b""]
    members.offer(b, (Protocol("range", b"4"),))
    assert members.subscriptions("range") == [b"1", b"4"]
    members.rename(b, "c")
    assert members.subscriptions("range") == [b"1", b"4"]
    members.remove(a)
    assert members.subscriptions("range") == [b"4"]
    members.remove(b)
    assert members.subscriptions("range") == []


def test_what_is_said_is_asked_of_the_members_once() -> None:
    members = ClassicMembers()
    members.add(member("a", range=b"1"))
    assert members.subscriptions("range") is members.subscriptions("range")
