"""CL-A9: replicas that are not in sync are copied at a rate; those that are, never. And `replica.fetch.min.bytes`."""

import pytest

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import PartitionView, TopicView
from muster.coordinator.replication.protocol.replica_fetch import (
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_REPLICAS,
    FetchAnswer,
    FetchRequest,
    ThrottleBucket,
    is_throttled_replica,
)
from tests.unit.replication.protocol.test_node_replicas import HERE, ID, PLACE, THERE, Pair, node


def test_a_bucket_gives_a_second_at_once_and_then_as_it_fills() -> None:
    bucket = ThrottleBucket()
    assert (bucket.is_limited, bucket.may(0), bucket.ready_ms(0)) == (False, True, 0)
    bucket.limit(100, 0)
    assert bucket.ready_ms(0) == 0
    bucket.charge_bytes(130, 0)
    assert (bucket.may(300), bucket.ready_ms(0), bucket.may(301)) == (False, 301, True)
    bucket.charge_bytes(0, 100_000)
    bucket.charge_bytes(100, 100_000)
    assert not bucket.may(100_000)


def test_a_new_rate_takes_over_what_is_owed_but_for_more_than_a_second() -> None:
    bucket = ThrottleBucket()
    bucket.limit(1_000_000, 0)
    bucket.charge_bytes(3_000_000, 0)
    bucket.limit(10, 0)
    assert bucket.ready_ms(0) == 1_001
    bucket.limit(0, 0)
    assert bucket.ready_ms(0) == 1_000
    bucket.limit(0, 5_000)
    assert not bucket.may(5_000)


@pytest.mark.parametrize(
    ("text", "listed"),
    [("*", True), ("", False), ("0:2", True), ("0:1,1:2", False), ("1:1, 0:2", True), ("a:b", False)],
)
def test_a_topic_lists_which_of_its_replicas_are_held_to_the_rate(text: str, listed: bool) -> None:
    assert is_throttled_replica(text, PLACE, 2) is listed


def throttled(epoch: int, isr: tuple[int, ...] = (HERE,), **listed: str) -> TopicView:
    view = PartitionView(HERE, 1, epoch, isr, (), (HERE, THERE))
    configs = {
        "min.insync.replicas": "1",
        **{
            LEADER_THROTTLED_REPLICAS if key == "leaders" else FOLLOWER_THROTTLED_REPLICAS: listed[key]
            for key in listed
        },
    }
    return TopicView(ID, "orders", configs, {0: view})


def apart(**listed: str) -> tuple[Pair, Pair]:
    """A leader with 5 records, flushed, and a follower that is not in sync and has none."""
    leader, follower = Pair(HERE), Pair(THERE)
    for each in (leader, follower):
        each.hears(throttled(1, **listed), nodes=(node(HERE), node(THERE)))
    leader.writes(5)
    leader.flushes()
    return leader, follower


class Copying:
    """Fetches of two records each, which wait for 10 s."""

    def __init__(self, leader: Pair, follower: Pair) -> None:
        self.leader, self.follower = leader, follower
        self.answers: list[FetchAnswer] = []
        self.request: FetchRequest | None = None

    def asks(self, now_ms: int, *, min_bytes: int = 1) -> None:
        [(_, request)] = self.follower.replicas.requests(now_ms)
        self.request = request._replace(part_bytes=2 << 14)
        self.answers.clear()
        self.leader.replicas.fetch(self.request, self.answers.append, 10_000, now_ms, min_bytes=min_bytes)

    def gets(self, now_ms: int) -> int | None:
        """How many records, once it is answered."""
        self.leader.replicas.serving.wake(now_ms)
        if not self.answers:
            return None
        [answer] = self.answers
        self.follower.replicas.answered(HERE, self.follower.replicas.fetchers[HERE]._under_way, answer, now_ms)
        self.follower.flushes(self.follower.replicas.unkept())
        return sum(len(part.records) for part in answer.parts)

    def copies(self, now_ms: int) -> int | None:
        self.asks(now_ms)
        return self.gets(now_ms)


def test_a_leader_withholds_records_until_its_bucket_fills() -> None:
    leader, follower = apart(leaders="0:1")
    leader.replicas.set_rates(leader=1, follower=None, now_ms=0)
    copying = Copying(leader, follower)
    assert [copying.copies(0) for _ in range(2)] == [2, None]
    assert leader.replicas.serving.next_ms(0) == 1_001
    assert copying.gets(1_000) is None
    assert copying.gets(1_001) == 2


def test_what_was_withheld_comes_with_a_later_request_as_well() -> None:
    leader, follower = apart(leaders="*")
    leader.replicas.set_rates(leader=1, follower=None, now_ms=0)
    copying = Copying(leader, follower)
    assert [copying.copies(0) for _ in range(2)] == [2, None]
    assert copying.gets(10_000) == 2  # it waited, and the bucket has filled meanwhile
    leader.replicas.set_rates(leader=0, follower=None, now_ms=10_000)
    assert copying.copies(10_000) is None
    assert copying.gets(20_000) == 0
    leader.replicas.set_rates(leader=None, follower=None, now_ms=20_000)
    assert copying.copies(20_000) == 1


@pytest.mark.parametrize("topic", [throttled(1, leaders="0:2"), throttled(1), throttled(1, followers="*")])
def test_what_the_leaders_list_does_not_name_is_not_held_up(topic: TopicView) -> None:
    leader, follower = apart()
    leader.hears(topic)
    leader.replicas.set_rates(leader=0, follower=None, now_ms=0)
    copying = Copying(leader, follower)
    assert [copying.copies(0) for _ in range(3)] == [2, 2, 1]


def test_a_replica_in_sync_is_never_held_up_by_either_side() -> None:
    leader, follower = Pair(HERE), Pair(THERE)
    for each in (leader, follower):
        each.hears(throttled(1, (HERE, THERE), leaders="*", followers="*"), nodes=(node(HERE), node(THERE)))
        each.replicas.set_rates(leader=0, follower=0, now_ms=0)
    leader.writes(4)
    leader.flushes()
    copying = Copying(leader, follower)
    assert [copying.copies(0) for _ in range(2)] == [2, 2]


def test_who_has_reached_the_end_and_is_waited_for_is_not_held_up() -> None:
    """A leader commits nothing past a follower that is about to join: a rate would be one for producers."""
    leader, follower = apart(leaders="*")
    copying = Copying(leader, follower)
    assert [copying.copies(0) for _ in range(4)] == [2, 2, 1, None]
    leader.replicas.set_rates(leader=0, follower=None, now_ms=0)
    leader.writes(2)
    leader.flushes()
    assert copying.gets(0) == 2


def test_a_follower_asks_for_less_until_its_bucket_fills() -> None:
    leader, follower = apart(followers="0:2")
    follower.replicas.set_rates(leader=None, follower=1, now_ms=0)
    copying = Copying(leader, follower)
    assert copying.copies(0) == 2
    [(_, request)] = follower.replicas.requests(0)
    assert [each.place for each in request.forgotten] == [PLACE]
    [answer] = leader.serves(request)
    follower.replicas.answered(HERE, request, answer, 0)
    assert follower.replicas.requests(1_000) == []
    assert follower.replicas.fetchers[HERE].next_ms() == 1_001
    assert copying.copies(1_001) == 2


def test_a_follower_that_is_in_sync_by_now_asks_again() -> None:
    leader, follower = apart(followers="*")
    follower.replicas.set_rates(leader=None, follower=0, now_ms=0)
    assert follower.replicas.requests(0) == []
    follower.hears(throttled(2, (HERE, THERE), followers="*"))
    assert Copying(leader, follower).copies(1_000) == 2


def test_a_fetch_is_held_while_there_are_fewer_bytes_than_it_wants() -> None:
    leader, follower = apart()
    copying = Copying(leader, follower)
    copying.copies(0)
    copying.asks(0, min_bytes=3)
    assert copying.gets(9_999) is None  # two are all that it takes at once
    assert copying.gets(10_000) == 2
    copying.asks(10_000, min_bytes=2)
    assert copying.gets(10_000) is None
    leader.writes(1)
    assert copying.gets(10_000) == 2


def test_what_is_no_record_is_told_however_few_bytes_there_are() -> None:
    """CL-L7: the high watermark, and that somebody else leads."""
    leader, follower = Pair(HERE), Pair(THERE)
    for each in (leader, follower):
        each.hears(throttled(1, (HERE, THERE)), nodes=(node(HERE), node(THERE)))
    copying = Copying(leader, follower)
    copying.copies(0)
    leader.writes(1)
    leader.flushes()
    copying.copies(0)
    leader.writes(1)
    copying.asks(0, min_bytes=1_000)
    assert leader.log().high_watermark == 1
    assert copying.gets(0) == 1
    copying.asks(0, min_bytes=1_000)
    leader.hears(TopicView(ID, "orders", {}, {0: PartitionView(THERE, 2, 2, (HERE, THERE), (), (HERE, THERE))}))
    leader.replicas.serving.wake(0)
    assert [part.code for part in copying.answers[0].parts] == [ErrorCode.NOT_LEADER_OR_FOLLOWER]


def test_who_wants_no_bytes_at_all_is_answered_at_once() -> None:
    leader, follower = apart()
    copying = Copying(leader, follower)
    assert [copying.copies(0) for _ in range(3)] == [2, 2, 1]
    copying.asks(0, min_bytes=0)
    assert len(copying.answers) == 1
