"""What the wire says to classic members whose coordinator plans by the setting `assignor`, byte for byte."""

import pytest

from muster.assignors.data.consumer_protocol import Subscription, encode_subscription, parse_assignment
from muster.coordinator.core.model.effects import JoinReply, SyncReply
from muster.coordinator.core.model.events import AlterSettings, JoinGroup, SyncGroup, TimerFired, TopicsChanged
from muster.coordinator.core.model.types import Limits, Protocol
from muster.coordinator.core.shard import Shard

DELAY_MS = 3_000


class Group:
    """Members that join together, each with a subscription of its own version; the setting is there before them."""

    def __init__(self, partitions: int = 1) -> None:
        self.shard = Shard(Limits(initial_rebalance_delay_ms=DELAY_MS), 0)
        self.step = self.shard.step
        ids = {"t": bytes(15) + b"\1"}
        self.step(TopicsChanged({"t": partitions}, (), ids), 0)
        self.step(AlterSettings(1, "g", {"assignor": "uniform"}, (), None, False, operator="op"), 0)

    def join(self, *versions: int) -> list[JoinReply]:
        for number, version in enumerate(versions):
            self.step(request(10 + number, f"m{number}", version), 0)
        answers: list[JoinReply] = []
        while not answers and ("join", "g") in self.shard.deadlines:
            at_ms = self.shard.deadlines["join", "g"]
            replies = self.step(TimerFired(("join", "g"), at_ms), at_ms).replies
            answers = [reply for _, reply in replies if isinstance(reply, JoinReply)]
        return answers

    def sync(self, joined: JoinReply) -> SyncReply:
        event = SyncGroup(99, "g", joined.member_id, None, joined.generation, "consumer", joined.protocol_name, ())
        _, reply = self.step(event, 2 * DELAY_MS).replies[0]
        assert isinstance(reply, SyncReply)
        return reply


def request(request_id: int, name: str, version: int, **more: object) -> JoinGroup:
    said = encode_subscription(Subscription(version=version, topics=("t",)))
    told = {
        "request_id": request_id,
        "group_id": "g",
        "member_id": "",
        "group_instance_id": name,
        "client_id": name,
        "client_host": "here",
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "protocol_type": "consumer",
        "protocols": (Protocol("range", said),),
        "fresh_id": str(request_id),
        "require_known_member_id": True,
        "supports_skip_assignment": True,
        **more,
    }
    return JoinGroup(**told)  # type: ignore[arg-type]


def test_every_answer_to_a_join_names_no_leader_and_the_voted_protocol():
    for joined in Group().join(1, 1):
        assert (joined.leader, joined.members, joined.skip_assignment) == ("", (), False)
        assert (joined.protocol_type, joined.protocol_name) == ("consumer", "range")


def test_a_static_member_that_comes_back_quietly_is_no_leader_either():
    group = Group()
    first, _ = group.join(1, 1)
    for joined in (first,):
        group.sync(joined)
    (_, back), *_ = group.step(request(50, "m0", 1), 2 * DELAY_MS).replies
    assert isinstance(back, JoinReply)
    assert back.generation == first.generation
    assert (back.leader, back.members, back.skip_assignment) == ("", (), False)


def test_nothing_is_an_empty_list_and_never_no_bytes():
    group = Group(partitions=1)
    shares = [group.sync(joined).assignment for joined in group.join(1, 1)]
    assert all(len(share) == 10 for share in shares if not parse_assignment(share).partitions)
    assert [parse_assignment(share).partitions for share in shares] in ([{"t": [0]}, {}], [{}, {"t": [0]}])
    assert all(parse_assignment(share).user_data is None for share in shares)


@pytest.mark.parametrize(("versions", "lowest"), [((3, 3), 3), ((3, 1), 1), ((0, 2, 3), 0), ((7,), 3)])
def test_shares_are_in_the_lowest_version_of_the_subscriptions(versions, lowest):
    def of(version: int) -> int:
        return min(version, 3)

    group = Group(partitions=3)
    newer = [version for version in versions if version > 3]
    joined = group.join(*map(of, versions)) if not newer else group_of_the_future(group, newer[0])
    for answer in joined:
        share = group.sync(answer)
        assert parse_assignment(share.assignment).version == lowest
        assert (share.protocol_type, share.protocol_name) == ("consumer", "range")


def group_of_the_future(group: Group, version: int) -> list[JoinReply]:
    """One member, whose subscription is of a version that nobody here knows."""
    said = encode_subscription(Subscription(version=3, topics=("t",)))
    future = version.to_bytes(2, "big") + said[2:]
    group.step(request(10, "m0", 3, protocols=(Protocol("range", future),)), 0)
    return group.join()
