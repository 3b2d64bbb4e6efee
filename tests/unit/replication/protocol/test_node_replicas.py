"""The replicas of a node, and what a simulated cluster found about them."""

from collections.abc import Iterable

from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import (
    NO_EPOCH,
    ClusterImage,
    ClusterNodeStatus,
    ClusterState,
    NodeView,
    PartitionView,
    TopicPartition,
    TopicView,
)
from muster.coordinator.replication.protocol.follower import TruncatedRecords
from muster.coordinator.replication.protocol.hosted_copies import LOOK_AGAIN_MS, SHOWN_PATIENCE_MS
from muster.coordinator.replication.protocol.node_replicas import NodeReplicas, ReplicaSettings
from muster.coordinator.replication.protocol.replica_fetch import NO_SUCH_SESSION, FetchAnswer, FetchRequest
from tests.sim.replication.disk import Disk, SimLog

PLACE = TopicPartition("orders", 0)
ID, OTHER_ID = b"i" * 16, b"j" * 16
HERE, THERE = 1, 2


class Pair:
    """A node under test, told of the cluster by hand."""

    def __init__(self, me: int) -> None:
        self.disk = Disk(f"d{me}")
        self.image = ClusterImage()
        self.replicas = NodeReplicas(me, self.disk, ReplicaSettings(lag_time_ms=1_000), 0)
        self.replicas.registered(10 * me)
        self.sequence = 0

    def hears(self, *topics: TopicView, nodes: Iterable[NodeView] = (), full: bool = False) -> None:
        self.sequence += 1
        answer = ClusterState(
            epoch=1, sequence=self.sequence, full=full or self.sequence == 1, nodes=tuple(nodes), topics=topics
        )
        changes = self.image.apply(answer)
        assert changes is not None
        self.replicas.learn(self.image, changes, 0)

    def log(self, place: TopicPartition = PLACE) -> SimLog:
        return self.disk.logs[place]

    def writes(self, count: int) -> None:
        self.log().append(self.replicas.led[PLACE].leader.epoch, [f"v{self.log().end + each}" for each in range(count)])
        self.replicas.appended(PLACE)

    def flushes(self, places: Iterable[TopicPartition] = (PLACE,)) -> None:
        for place in places:
            self.log(place).flush(self.log(place).end)
        self.replicas.flushed(places, 0)

    def serves(self, request: FetchRequest, now_ms: int = 0) -> list[FetchAnswer]:
        answers: list[FetchAnswer] = []
        self.replicas.fetch(request, answers.append, 0, now_ms)
        return answers


def node(node_id: int, epoch: int | None = None, status: ClusterNodeStatus = ClusterNodeStatus.LIVE) -> NodeView:
    return NodeView(node_id, 10 * node_id if epoch is None else epoch, status)


def orders(leader: int, epoch: int, isr: tuple[int, ...] = (HERE, THERE), topic_id: bytes = ID) -> TopicView:
    view = PartitionView(leader, epoch, epoch, isr, (), (HERE, THERE))
    return TopicView(topic_id, "orders", {"min.insync.replicas": "1"}, {0: view})


def copy_once(leader: Pair, follower: Pair, now_ms: int = 0) -> FetchRequest:
    """One fetch, from asking to flushing."""
    [(_, request)] = follower.replicas.requests(now_ms)
    [answer] = leader.serves(request, now_ms)
    follower.replicas.answered(HERE, request, answer, now_ms)
    follower.flushes(follower.replicas.unkept())
    return request


def two() -> tuple[Pair, Pair]:
    leader, follower = Pair(HERE), Pair(THERE)
    for each in (leader, follower):
        each.hears(orders(HERE, 1), nodes=(node(HERE), node(THERE)))
    return leader, follower


def test_what_a_leader_writes_is_copied_and_then_committed() -> None:
    leader, follower = two()
    leader.writes(3)
    leader.flushes()
    copy_once(leader, follower)
    assert (follower.log().end, leader.log().high_watermark) == (3, 0)
    copy_once(leader, follower)
    assert leader.log().high_watermark == 3
    copy_once(leader, follower)
    assert follower.log().high_watermark == 3


def test_a_request_names_what_has_changed_and_nothing_else() -> None:
    """CL-F1: sessions as KIP-227."""
    leader, follower = two()
    first = copy_once(leader, follower)
    second = copy_once(leader, follower)
    leader.writes(1)
    leader.flushes()
    copy_once(leader, follower)
    fourth = copy_once(leader, follower)
    assert [len(each.items) for each in (first, second, fourth)] == [1, 0, 1]
    assert (first.session_epoch, second.session_epoch) == (0, 1)


def test_a_session_that_the_leader_does_not_know_is_begun_anew() -> None:
    leader, follower = two()
    copy_once(leader, follower)
    reborn = Pair(HERE)
    reborn.hears(orders(HERE, 1), nodes=(node(HERE), node(THERE)))
    [(_, request)] = follower.replicas.requests(0)
    [answer] = reborn.serves(request)
    assert answer.code == NO_SUCH_SESSION
    follower.replicas.answered(HERE, request, answer, 0)
    assert copy_once(reborn, follower).session_epoch == 0


def test_after_a_request_without_an_answer_all_is_asked_for_anew_once_the_pause_is_over() -> None:
    leader, follower = two()
    first = copy_once(leader, follower)
    [(_, request)] = follower.replicas.requests(0)
    follower.replicas.failed(HERE, first, 0)
    assert follower.replicas.requests(1_000) == [], "what failed was answered before"
    follower.replicas.failed(HERE, request, 1_000)
    over_ms = 1_000 + ReplicaSettings().backoff_ms
    assert follower.replicas.requests(over_ms - 1) == []
    assert copy_once(leader, follower, over_ms).session_epoch == 0


def test_who_registers_anew_names_everything_again() -> None:
    """A leader takes in the node epoch of a request for what the request names: who had come back with another one was
    never in sync again where nothing was written."""
    leader, follower = two()
    copy_once(leader, follower)
    follower.replicas.registered(77)
    leader.hears(nodes=(node(THERE, 77),))
    assert len(copy_once(leader, follower).items) == 1
    assert leader.replicas.led[PLACE].leader.halves[0].seen[THERE].node_epoch == 77


def test_a_fetch_that_comes_before_the_image_knows_its_registration_counts_once_it_does() -> None:
    """What nothing changes about is not said again; so it must not be forgotten that it was said."""
    leader, follower = two()
    leader.hears(nodes=(node(THERE, status=ClusterNodeStatus.GONE),))
    follower.replicas.registered(77)
    copy_once(leader, follower)
    seen = leader.replicas.led[PLACE].leader.halves[0].seen[THERE]
    assert seen.end == -1
    leader.hears(nodes=(node(THERE, 77),))
    assert (seen.end, seen.node_epoch) == (0, 77)


def test_a_former_leader_flushes_all_it_wrote_before_it_asks_for_more() -> None:
    """CL-F3: a flush that began earlier does not cover what was written since."""
    follower = Pair(THERE)
    follower.hears(orders(THERE, 1), nodes=(node(HERE), node(THERE)))
    follower.writes(2)
    begun = follower.log().end
    follower.writes(1)
    follower.hears(orders(HERE, 2))
    follower.log().flush(begun)
    follower.replicas.flushed([PLACE], 0)
    assert follower.replicas.requests(0) == []
    assert follower.replicas.unkept() == [PLACE]
    follower.flushes()
    [(_, request)] = follower.replicas.requests(0)
    assert request.items[0].offset == 3


def test_a_flush_by_which_nothing_is_committed_and_nobody_may_ask_changes_nothing() -> None:
    """A leader's own flush comes before those of its followers, mostly."""
    leader, follower = two()
    for _ in range(3):
        copy_once(leader, follower)
    leader.writes(1)
    leader.log().flush(leader.log().end)
    assert not leader.replicas.flushed([PLACE], 0)
    [(_, request)] = follower.replicas.requests(0)
    [answer] = leader.serves(request, 0)
    follower.replicas.answered(HERE, request, answer, 0)
    follower.log().flush(follower.log().end)
    assert follower.replicas.flushed([PLACE], 0), "its leader may be asked again"
    leader.writes(1)
    [(_, request)] = follower.replicas.requests(0)
    leader.serves(request, 0)
    assert leader.log().high_watermark == 1
    leader.replicas.moved.clear()  # as whoever performs it does
    leader.log().flush(leader.log().end)
    assert not leader.replicas.flushed([PLACE], 0)


def test_a_leaders_flush_that_comes_last_commits() -> None:
    leader, follower = two()
    for _ in range(3):
        copy_once(leader, follower)
    leader.writes(1)
    for _ in range(2):
        copy_once(leader, follower)
    leader.log().flush(leader.log().end)
    assert leader.replicas.flushed([PLACE], 0)
    assert leader.log().high_watermark == 1


def test_the_next_moment_is_that_of_whoever_waits_least() -> None:
    leader, follower = two()
    assert leader.replicas.next_ms(0) is None
    for _ in range(3):
        copy_once(leader, follower)
    [(_, request)] = follower.replicas.requests(0)
    leader.replicas.fetch(request, lambda answer: None, 500, 7)
    assert leader.replicas.next_ms(7) == 507
    follower.replicas.failed(HERE, request, 7)
    assert follower.replicas.next_ms(7) == 7 + ReplicaSettings().backoff_ms


def test_a_topic_that_is_made_again_begins_with_epochs_of_its_own() -> None:
    leader = Pair(HERE)
    leader.hears(orders(HERE, 5), nodes=(node(HERE), node(THERE)))
    leader.hears(orders(-1, 6))
    leader.hears(orders(HERE, 0, topic_id=OTHER_ID))
    assert leader.replicas.led[PLACE].topic_id == OTHER_ID
    assert leader.replicas.leaders[PLACE].epoch == 0


def test_who_asks_for_a_former_topic_of_the_name_is_told_so() -> None:
    leader, follower = two()
    leader.hears(orders(HERE, 0, topic_id=OTHER_ID))
    [(_, request)] = follower.replicas.requests(0)
    [answer] = leader.serves(request)
    assert [part.code for part in answer.parts] == [ErrorCode.UNKNOWN_TOPIC_ID]


def test_a_leader_that_is_shown_a_later_epoch_leads_no_more_until_an_image_says_so() -> None:
    """CL-L9."""
    leader, _ = two()
    leader.replicas.shown(PLACE, 2)
    assert PLACE not in leader.replicas.led
    leader.hears(orders(HERE, 1, isr=(HERE,)))
    assert PLACE not in leader.replicas.led
    leader.hears(orders(HERE, 3))
    assert leader.replicas.leaders[PLACE].epoch == 3


def silenced() -> Pair:
    """A leader of epoch 1 that somebody, not the controller, told of epoch 2 at time 0."""
    leader, _ = two()
    leader.replicas.shown(PLACE, 2)
    leader.replicas.check_replicas(0)
    return leader


def test_a_leader_that_is_silenced_by_an_epoch_that_never_comes_has_the_controller_elect_anew() -> None:
    """CL-L9: one request at the door between nodes would silence a partition for good, and nobody would say so."""
    leader = silenced()
    leader.replicas.check_replicas(SHOWN_PATIENCE_MS - 1)
    assert leader.replicas.offline == {}
    leader.replicas.check_replicas(SHOWN_PATIENCE_MS)
    [(topic_id, why)] = leader.replicas.offline.values()
    assert topic_id == ID
    assert "leader epoch 2" in why
    leader.hears(orders(-1, 2))  # the controller takes it away, for it is offline here
    leader.replicas.check_replicas(SHOWN_PATIENCE_MS + 1)
    leader.replicas.check_replicas(SHOWN_PATIENCE_MS + LOOK_AGAIN_MS + 1)
    assert leader.replicas.offline == {}
    leader.hears(orders(HERE, 3))
    assert leader.replicas.leaders[PLACE].epoch == 3


def test_another_replica_leads_after_a_leader_was_silenced() -> None:
    leader = silenced()
    leader.replicas.check_replicas(SHOWN_PATIENCE_MS)
    assert leader.replicas.offline
    leader.hears(orders(THERE, 2))
    assert leader.replicas.offline == {}
    assert leader.replicas.copies[PLACE].follower.epoch == 2


def test_an_epoch_that_comes_in_time_is_no_outage() -> None:
    leader = silenced()
    leader.hears(orders(THERE, 2))
    leader.replicas.check_replicas(10 * SHOWN_PATIENCE_MS)
    assert leader.replicas.offline == {}
    again = silenced()
    again.hears(orders(HERE, 3))
    again.replicas.check_replicas(10 * SHOWN_PATIENCE_MS)
    assert again.replicas.offline == {}


def test_a_copy_that_is_assigned_to_others_goes_once_enough_of_them_are_in_sync() -> None:
    """CL-F11."""
    follower = Pair(THERE)
    follower.hears(orders(HERE, 1), nodes=(node(HERE), node(THERE)))
    view = PartitionView(HERE, 2, 2, (HERE,), (), (HERE, 3))
    waits = TopicView(ID, "orders", {"min.insync.replicas": "2"}, {0: view})
    follower.hears(waits)
    assert follower.disk.topic_id(PLACE) == ID
    done = view._replace(isr=(HERE, 3), partition_epoch=3)
    follower.hears(TopicView(ID, "orders", waits.configs, {0: done}))
    assert follower.disk.topic_id(PLACE) is None


def test_a_copy_that_the_cluster_does_not_know_is_kept_and_named() -> None:
    """CL-F11: nothing is deleted that was not called deleted."""
    follower = Pair(THERE)
    follower.hears(orders(HERE, 1), nodes=(node(HERE), node(THERE)))
    follower.hears(nodes=(node(HERE), node(THERE)), full=True)
    assert follower.disk.topic_id(PLACE) == ID
    assert follower.replicas.strays == {PLACE: ID}


def test_a_log_that_fails_is_offline_and_the_others_go_on() -> None:
    """CL-F9."""
    leader, follower = two()
    leader.writes(1)
    leader.flushes()
    follower.disk.failing.add(PLACE)
    [(_, request)] = follower.replicas.requests(0)
    [answer] = leader.serves(request)
    follower.replicas.answered(HERE, request, answer, 0)
    assert follower.replicas.offline == {PLACE: (ID, "orders-0: the disk says EIO")}


def test_a_parked_fetch_is_answered_when_records_come_or_it_has_waited() -> None:
    """CL-L7."""
    leader, follower = two()
    copy_once(leader, follower)
    answers: list[FetchAnswer] = []
    [(_, request)] = follower.replicas.requests(0)
    leader.replicas.fetch(request, answers.append, 500, 0)
    leader.replicas.serving.wake(499)
    assert not answers
    leader.writes(1)
    leader.replicas.serving.wake(499)
    assert len(answers) == 1
    follower.replicas.answered(HERE, request, answers[0], 499)
    follower.flushes()
    copy_once(leader, follower, 499)
    [(_, request)] = follower.replicas.requests(499)
    leader.replicas.fetch(request, answers.append, 500, 499)
    assert leader.replicas.serving.next_ms(499) == 999
    leader.replicas.serving.wake(999)
    assert len(answers) == 2


def test_what_an_unclean_election_cost_a_copy_is_told_once() -> None:
    """docs/design/cluster.md, "What the ledger of elections keeps": the ledger counts it. What is cut without one was
    never promised to anybody."""
    leader, follower = two()
    leader.writes(3)
    leader.flushes()
    copy_once(leader, follower)
    leader.writes(4)
    comes_back_as_a_follower(leader, follower, epoch=2, unclean_epoch=NO_EPOCH)
    assert leader.replicas.undone == []
    leader.hears(orders(HERE, 3))
    leader.writes(2)
    comes_back_as_a_follower(leader, follower, epoch=4, unclean_epoch=4)
    assert leader.replicas.undone == [TruncatedRecords(PLACE, 3, 5, (3,), 4)]


def comes_back_as_a_follower(former: Pair, leader: Pair, *, epoch: int, unclean_epoch: int) -> None:
    former.flushes()
    topic = orders(THERE, epoch)
    view = topic.partitions[0]._replace(unclean_epoch=unclean_epoch)
    for each in (leader, former):
        each.hears(TopicView(ID, topic.name, topic.configs, {0: view}))
    for _ in range(3):
        [(_, request)] = former.replicas.requests(0)
        [answer] = leader.serves(request)
        former.replicas.answered(THERE, request, answer, 0)
        former.flushes(former.replicas.unkept())
    assert former.log().end == 3


def test_a_log_that_begins_later_is_looked_at_and_its_followers_are_told() -> None:
    """CL-F8, CL-A3b: whatever moved its start; a leader's machine that was never told waited for nobody, and gave
    followers below it no word."""
    leader, follower = two()
    leader.writes(4)
    leader.flushes()
    for _ in range(3):
        copy_once(leader, follower)
    half = leader.replicas.led[PLACE].leader.halves[0]
    copy_once(leader, follower)
    leader.log().advance_start(3)
    leader.replicas.check_replicas(0)
    assert (half.start, half.seen[THERE].start) == (3, 0)
    assert leader.replicas.led[PLACE].leader.low_watermark(0) == 0
    copy_once(leader, follower)
    assert follower.log().start == 3
    copy_once(leader, follower)
    assert leader.replicas.led[PLACE].leader.low_watermark(0) == 3


def test_a_log_that_begins_where_it_began_is_no_news() -> None:
    leader, follower = two()
    copy_once(leader, follower)
    leader.replicas.check_replicas(0)
    leader.replicas.begins(TopicPartition("strange", 0))
    answers: list[FetchAnswer] = []
    [(_, request)] = follower.replicas.requests(0)
    leader.replicas.fetch(request, answers.append, 100, 0)
    leader.replicas.begins(PLACE)
    leader.replicas.serving.wake(1)
    assert answers == []
    leader.writes(1)
    leader.flushes()
    leader.replicas.serving.wake(2)
    assert len(answers) == 1


def test_g5_whoever_copies_a_shard_knows_by_how_long_a_session_its_leader_leads() -> None:
    """One that comes back with a longer one is waited for as long; with a shorter one it may have led by the former."""
    follower = Pair(THERE)
    for epoch, (session_ms, longest_ms) in enumerate(((6_000, 6_000), (9_000, 9_000), (3_000, 9_000)), 1):
        led = tuple(half_of_shard(name, epoch) for name in ("__consumer_offsets", "__rebalances"))
        follower.hears(*led, nodes=(node(HERE, epoch)._replace(session_ms=session_ms), node(THERE)))
        source = follower.replicas.promise(TopicPartition("__consumer_offsets", 0)).source
        assert source is not None
        assert (source.id, source.session_ms) == (HERE, longest_ms)


def half_of_shard(name: str, epoch: int) -> TopicView:
    view = PartitionView(HERE, epoch, epoch, (HERE, THERE), (), (HERE, THERE))
    return TopicView(name.encode().ljust(16), name, {}, {0: view})
