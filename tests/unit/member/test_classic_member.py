"""The classic member as stories: what happens to it, and what it asks for. One group, a virtual clock."""

from collections.abc import Iterable
from typing import TypeVar

import pytest

from assignors.api import RebalanceProtocol
from assignors.user_data import encode_assignment, parse_subscription
from coordinator.core.types import Cause
from coordinator.errors import ErrorCode
from coordinator.member import actions as act
from coordinator.member import events as ev
from coordinator.member.classic import ClassicMember
from coordinator.member.states import MOVES, State
from coordinator.member.subscription import Subscriber
from coordinator.member.types import GroupMember, Leaving, MemberSettings

A = TypeVar("A")


class Named:
    def __init__(self, name: str, protocol: RebalanceProtocol) -> None:
        self.name = name
        self.protocol = protocol


RANGE = Named("range", RebalanceProtocol.EAGER)
STICKY = Named("sticky", RebalanceProtocol.EAGER)
COOPERATIVE = Named("cooperative-sticky", RebalanceProtocol.COOPERATIVE)


class Story:
    """Drives one member by hand and keeps what it asked for last."""

    def __init__(self, *assignors: Named, topics: Iterable[str] = ("t",), instance: str | None = None) -> None:
        settings = MemberSettings("g", "app", instance, session_timeout_ms=10_000, heartbeat_interval_ms=3_000)
        self.member = ClassicMember(settings, Subscriber(topics, assignors or (RANGE,)))
        self.now_ms = 0
        self.asked: list[act.Action] = []

    def on(self, event: ev.Event) -> list[act.Action]:
        self.asked = self.member.step(event, self.now_ms)
        return self.asked

    def wait(self, ms: int) -> list[act.Action]:
        self.now_ms += ms
        return self.on(ev.Tick())

    def the(self, kind: type[A]) -> A:
        found = [action for action in self.asked if isinstance(action, kind)]
        assert len(found) == 1, f"expected one {kind.__name__} in {self.asked}"
        return found[0]

    def has(self, kind: type[act.Action]) -> bool:
        return any(isinstance(action, kind) for action in self.asked)

    def start(self) -> act.SendJoin:
        self.on(ev.Start())
        self.on(ev.CoordinatorFound(self.the(act.FindCoordinator).token))
        return self.the(act.SendJoin)

    def joined(self, generation: int = 1, leader: str = "boss", **more: object) -> None:
        token = self.the(act.SendJoin).token
        self.on(
            ev.JoinAnswered(token, generation=generation, member_id="me", leader=leader, protocol_name="range", **more)
        )  # type: ignore[arg-type]

    def synced(self, *partitions: int, topic: str = "t") -> None:
        share = encode_assignment({topic: partitions} if partitions else {})
        self.on(ev.SyncAnswered(self.the(act.SendSync).token, assignment=share))

    def stable(self, *partitions: int) -> "Story":
        self.start()
        self.joined()
        self.synced(*partitions)
        assert self.member.state is State.STABLE
        return self

    def heartbeat(self, code: ErrorCode) -> list[act.Action]:
        self.wait(3_000)
        return self.on(ev.HeartbeatAnswered(self.the(act.SendHeartbeat).token, code))


def t(*partitions: int) -> tuple[tuple[str, int], ...]:
    return tuple(("t", partition) for partition in partitions)


def claims(join: act.SendJoin) -> tuple[dict[str, list[int]], int]:
    said = parse_subscription(join.protocols[0].metadata)
    return dict(said.owned), said.generation  # type: ignore[arg-type]


# The happy way


def test_a_new_member_is_told_its_id_and_joins_with_it() -> None:
    story = Story()
    assert story.start().member_id == ""
    first = story.the(act.SendJoin)
    story.on(ev.JoinAnswered(first.token, ErrorCode.MEMBER_ID_REQUIRED, member_id="me"))
    again = story.the(act.SendJoin)
    assert (again.member_id, again.reason) == ("me", "need to re-join with the given member-id")


def test_the_reason_of_a_join_survives_the_second_step() -> None:
    story = Story().stable()
    story.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    join = story.the(act.SendJoin)
    assert join.reason == "the group went on without this member: UNKNOWN_MEMBER_ID"
    story.on(ev.JoinAnswered(join.token, ErrorCode.MEMBER_ID_REQUIRED, member_id="me again"))
    assert story.the(act.SendJoin).reason == join.reason


def test_heartbeats_begin_with_the_join_answer_not_with_the_share() -> None:
    story = Story()
    story.start()
    story.joined()
    assert story.member.state is State.SYNCING
    assert story.the(act.WakeAt).at_ms == 3_000
    story.wait(3_000)
    assert story.the(act.SendHeartbeat).generation == 1


def test_a_follower_asks_for_its_share_and_takes_it() -> None:
    story = Story()
    story.start()
    story.joined(cause=Cause.MEMBER_JOINED, cause_detail="me joined", rebalance_number=4)
    assert story.the(act.SendSync).assignments == ()
    story.synced(2, 0)
    told = story.the(act.Assign)
    assert told.added == told.partitions == t(0, 2)
    assert (told.cause, told.rebalance_number, told.generation) == (Cause.MEMBER_JOINED, 4, 1)


def test_assign_is_told_even_when_nothing_was_assigned() -> None:
    story = Story().stable()
    assert story.the(act.Assign).added == ()


def test_the_leader_hands_in_its_plan_with_the_snapshot() -> None:
    story = Story()
    join = story.start()
    everyone = (GroupMember("me", None, join.protocols[0].metadata), GroupMember("you", None, b"?"))
    story.joined(leader="me", members=everyone)
    assert story.the(act.Plan).members == everyone
    story.on(ev.Planned(1, (("me", b"m"), ("you", b"y")), b"{}", {"t": 4}))
    sync = story.the(act.SendSync)
    assert (sync.assignments, sync.snapshot) == ((("me", b"m"), ("you", b"y")), b"{}")


def test_a_plan_for_an_older_generation_is_ignored() -> None:
    story = Story()
    story.start()
    story.joined(generation=5, leader="me")
    assert not [a for a in story.on(ev.Planned(4, ())) if isinstance(a, act.SendSync)]


def test_a_plan_that_could_not_be_made_is_asked_for_again_after_a_back_off() -> None:
    story = Story()
    story.start()
    story.joined(leader="me")
    story.on(ev.PlanFailed(1, "no metadata"))
    assert not story.has(act.Plan)
    story.wait(100)
    assert story.the(act.Plan).generation == 1


def test_a_returning_static_leader_may_not_plan_again() -> None:
    story = Story(instance="i")
    story.start()
    story.joined(leader="me", skip_assignment=True)
    assert not story.has(act.Plan)
    assert story.the(act.SendSync).assignments == ()


# Handing over


def test_an_eager_member_gives_up_everything_before_it_joins_again() -> None:
    story = Story(RANGE).stable(0, 1)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    revoke = story.the(act.Revoke)
    assert revoke.partitions == t(0, 1)
    assert not story.has(act.SendJoin)
    story.on(ev.Revoked(revoke.token))
    assert claims(story.the(act.SendJoin)) == ({}, 1)


def test_what_the_coordinator_says_about_a_rebalance_reaches_the_callback() -> None:
    story = Story().stable(0)
    story.wait(3_000)
    beat = story.the(act.SendHeartbeat)
    why = (Cause.MEMBER_JOINED, "member b joined")
    story.on(ev.HeartbeatAnswered(beat.token, ErrorCode.REBALANCE_IN_PROGRESS, "join again", *why))
    revoke = story.the(act.Revoke)
    assert (revoke.cause, revoke.detail) == why


def test_an_eager_sticky_member_still_says_what_it_had() -> None:
    story = Story(STICKY).stable(0, 1)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    story.on(ev.Revoked(story.the(act.Revoke).token))
    said = parse_subscription(story.the(act.SendJoin).protocols[0].metadata)
    assert said.user_data is not None
    assert said.user_data.endswith((1).to_bytes(4, "big"))


def test_a_cooperative_member_keeps_working_while_it_joins() -> None:
    story = Story(COOPERATIVE).stable(0, 1)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    assert not story.has(act.Revoke)
    assert claims(story.the(act.SendJoin)) == ({"t": [0, 1]}, 1)
    assert story.member.owned == set(t(0, 1))


def test_a_cooperative_member_that_revokes_joins_once_more() -> None:
    story = Story(COOPERATIVE).stable(0, 1)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    story.joined(generation=2)
    story.synced(0, 5)
    revoke = story.the(act.Revoke)
    assert revoke.partitions == t(1)
    assert not story.has(act.Assign)
    story.on(ev.Revoked(revoke.token))
    told = story.the(act.Assign)
    assert (told.added, told.partitions) == (t(5), t(0, 5))
    assert claims(story.the(act.SendJoin)) == ({"t": [0, 5]}, 2)
    assert story.the(act.SendJoin).reason == "need to revoke partitions and re-join"


def test_a_cooperative_member_that_revokes_nothing_does_not_join_again() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    story.joined(generation=2)
    story.synced(0, 1)
    assert story.the(act.Assign).added == t(1)
    assert not story.has(act.SendJoin)


def test_a_list_with_one_eager_assignor_is_eager() -> None:
    assert Subscriber(("t",), (COOPERATIVE, RANGE)).protocol is RebalanceProtocol.EAGER
    assert Subscriber(("t",), (COOPERATIVE,)).protocol is RebalanceProtocol.COOPERATIVE


def test_a_member_without_assignors_is_refused() -> None:
    with pytest.raises(ValueError, match=r"partition\.assignment\.strategy"):
        Subscriber(("t",), ())


def test_a_cooperative_member_gives_up_topics_it_no_longer_subscribes_to_before_joining() -> None:
    story = Story(COOPERATIVE, topics=("s", "t"))
    story.start()
    story.joined()
    story.on(ev.SyncAnswered(story.the(act.SendSync).token, assignment=encode_assignment({"s": [0], "t": [0]})))
    story.on(ev.SubscriptionChanged(("t",)))
    assert story.the(act.Revoke).partitions == (("s", 0),)
    assert story.the(act.Revoke).cause is Cause.SUBSCRIPTION_CHANGED


def test_a_share_with_a_topic_that_is_not_subscribed_to_makes_the_member_join_again() -> None:
    story = Story()
    story.start()
    story.joined()
    story.synced(0, topic="other")
    assert not story.has(act.Assign)
    assert "other" in story.the(act.SendJoin).reason


def test_a_share_that_cannot_be_read_ends_the_membership() -> None:
    story = Story()
    story.start()
    story.joined()
    story.on(ev.SyncAnswered(story.the(act.SendSync).token, assignment=b"\x00"))
    assert story.the(act.Fail).code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


# Changes of subscription and topics


def test_a_subscription_that_changed_while_joining_is_noticed_once_stable() -> None:
    story = Story()
    story.start()
    join = story.asked
    story.on(ev.SubscriptionChanged(("t", "u")))
    story.asked = join
    story.joined()
    story.synced(0)
    assert story.the(act.Assign).added == t(0)
    assert story.the(act.Revoke).partitions == t(0)


def test_only_the_leader_joins_again_when_partitions_are_added() -> None:
    follower = Story().stable(0)
    follower.on(ev.TopicsChanged({"t": 9}))
    assert not follower.has(act.Revoke)

    leader = Story(COOPERATIVE)
    join = leader.start()
    leader.joined(leader="me", members=(GroupMember("me", None, join.protocols[0].metadata),))
    leader.on(ev.Planned(1, (), b"", {"t": 4}))
    leader.synced(0)
    leader.on(ev.TopicsChanged({"t": 4, "unrelated": 7}))
    assert not leader.has(act.SendJoin)
    leader.on(ev.TopicsChanged({"t": 6}))
    assert leader.the(act.SendJoin).reason == "partition counts changed: t 4 -> 6"


def test_counts_older_than_the_plan_are_no_change() -> None:
    leader = Story(COOPERATIVE)
    join = leader.start()
    leader.on(ev.TopicsChanged({"t": 2}))
    leader.asked = [join]
    leader.joined(leader="me", members=(GroupMember("me", None, join.protocols[0].metadata),))
    leader.on(ev.Planned(1, (), b"", {"t": 4}))
    leader.synced(0)
    assert not leader.has(act.SendJoin)


# Refusals


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE])
def test_a_join_sent_to_the_wrong_node_looks_for_the_right_one_after_a_back_off(code: ErrorCode) -> None:
    story = Story()
    join = story.start()
    story.on(ev.JoinAnswered(join.token, code))
    assert not story.has(act.FindCoordinator)
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert story.has(act.SendJoin)


def test_a_loading_coordinator_is_asked_again_without_looking_for_another() -> None:
    story = Story()
    join = story.start()
    story.on(ev.JoinAnswered(join.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
    story.wait(100)
    assert story.has(act.SendJoin)
    assert not story.has(act.FindCoordinator)


def test_the_wait_between_attempts_doubles_up_to_a_limit() -> None:
    story = Story()
    join = story.start()
    waits = []
    for _ in range(6):
        story.on(ev.JoinAnswered(join.token, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS))
        waits.append(story.the(act.WakeAt).at_ms - story.now_ms)
        story.wait(waits[-1])
        join = story.the(act.SendJoin)
    assert waits == [100, 200, 400, 800, 1000, 1000]


def test_a_lost_join_answer_is_asked_for_again_with_the_same_id() -> None:
    story = Story().stable()
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    story.on(ev.RequestFailed(story.the(act.SendJoin).token, retriable=True))
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert story.the(act.SendJoin).member_id == "me"


def test_a_lost_sync_answer_makes_a_cooperative_member_join_again_with_what_it_owns() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    story.joined(generation=2)
    story.on(ev.RequestFailed(story.the(act.SendSync).token, retriable=True))
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert claims(story.the(act.SendJoin)) == ({"t": [0]}, 2)


def test_a_group_that_rebalances_under_the_sync_is_joined_again_at_once() -> None:
    story = Story()
    story.start()
    story.joined()
    story.on(ev.SyncAnswered(story.the(act.SendSync).token, ErrorCode.REBALANCE_IN_PROGRESS))
    assert story.the(act.SendJoin).member_id == "me"


def test_an_old_generation_loses_everything_and_joins_again_under_its_id() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.ILLEGAL_GENERATION)
    lost = story.the(act.Lost)
    assert (lost.partitions, lost.cause) == (t(0), Cause.MEMBER_FENCED)
    story.on(ev.Revoked(lost.token))
    assert story.the(act.SendJoin).member_id == "me"
    assert claims(story.the(act.SendJoin)) == ({}, -1)


def test_a_member_the_group_forgot_joins_as_a_new_one() -> None:
    story = Story(RANGE).stable(0)
    story.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    lost = story.the(act.Lost)
    assert lost.cause is Cause.SESSION_EXPIRED
    story.on(ev.Revoked(lost.token))
    assert story.the(act.SendJoin).member_id == ""


def test_a_member_forgotten_while_it_revokes_has_lost_the_rest() -> None:
    story = Story(COOPERATIVE).stable(0, 1)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    story.joined(generation=2)
    story.synced(0)
    revoke = story.the(act.Revoke)
    story.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    story.on(ev.Revoked(revoke.token))
    assert story.the(act.Lost).partitions == t(0)
    assert not story.has(act.Assign)


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_INSTANCE_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ErrorCode.GROUP_MAX_SIZE_REACHED]
)
def test_some_refusals_end_the_membership(code: ErrorCode) -> None:
    story = Story()
    join = story.start()
    story.on(ev.JoinAnswered(join.token, code, "no"))
    assert story.the(act.Fail) == act.Fail(code, "no")
    assert story.on(ev.Tick()) == []


def test_a_fenced_static_member_loses_its_partitions_and_fails() -> None:
    story = Story(instance="i").stable(3)
    story.heartbeat(ErrorCode.FENCED_INSTANCE_ID)
    assert story.the(act.Lost).partitions == t(3)
    assert story.the(act.Fail).code is ErrorCode.FENCED_INSTANCE_ID
    assert story.on(ev.Close()) == [act.Closed()]


def test_stale_answers_change_nothing() -> None:
    story = Story()
    old = story.start()
    story.on(ev.RequestFailed(old.token, retriable=True))
    assert story.on(ev.JoinAnswered(old.token, generation=9, member_id="me", leader="x"))[:-1] == []
    assert story.member.generation == -1


def test_a_parked_sync_is_abandoned_when_the_group_forgot_the_member() -> None:
    story = Story()
    story.start()
    story.joined()
    sync = story.the(act.SendSync)
    story.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert act.Abandon(sync.token) in story.asked
    assert story.the(act.SendJoin).member_id == ""


def test_a_refused_commit_says_as_much_as_a_refused_heartbeat() -> None:
    story = Story().stable(0)
    story.on(ev.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, "", generation=1))
    assert story.the(act.Lost).partitions == t(0)


def test_a_refused_commit_of_an_older_generation_says_nothing() -> None:
    story = Story().stable(0)
    story.on(ev.CommitRefused(ErrorCode.UNKNOWN_MEMBER_ID, "", generation=0))
    assert not story.has(act.Lost)


def test_a_commit_that_crossed_the_end_of_a_join_phase_says_nothing() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = story.the(act.SendJoin)
    story.on(ev.CommitRefused(ErrorCode.ILLEGAL_GENERATION, "", generation=1))
    story.asked = [join]
    story.joined(generation=2)
    story.synced(0)
    assert story.member.owned == set(t(0))
    assert not story.has(act.Lost)


def test_a_commit_refused_for_its_own_sake_does_not_end_the_membership() -> None:
    story = Story().stable(0)
    story.on(ev.CommitRefused(ErrorCode.OFFSET_METADATA_TOO_LARGE, "", generation=1))
    assert story.member.state is State.STABLE


# Liveness


def test_a_heartbeat_is_not_sent_while_one_is_unanswered() -> None:
    story = Story().stable()
    story.wait(3_000)
    assert story.has(act.SendHeartbeat)
    story.wait(3_000)
    assert not story.has(act.SendHeartbeat)


def test_a_silent_coordinator_is_looked_for_again_after_a_session() -> None:
    story = Story().stable(0)
    story.wait(3_000)
    beat = story.the(act.SendHeartbeat)
    story.wait(7_000)
    assert act.Abandon(beat.token) in story.asked
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert story.the(act.SendHeartbeat).member_id == "me"
    assert story.member.state is State.STABLE


def test_a_coordinator_that_moved_is_followed_without_a_rebalance() -> None:
    story = Story().stable(0)
    story.heartbeat(ErrorCode.NOT_COORDINATOR)
    story.wait(100)
    story.on(ev.CoordinatorFound(story.the(act.FindCoordinator).token))
    assert story.has(act.SendHeartbeat)
    assert story.member.owned == set(t(0))


def test_an_application_that_stops_polling_leaves_and_comes_back_as_new() -> None:
    story = Story().stable(0)
    story.on(ev.PollExpired())
    assert story.the(act.SendLeave).reason == "consumer poll timeout has expired."
    lost = story.the(act.Lost)
    assert lost.cause is Cause.POLL_TIMEOUT
    assert story.wait(60_000) == []
    story.on(ev.Polled())
    assert not story.has(act.SendJoin)
    story.on(ev.Revoked(lost.token))
    assert story.the(act.SendJoin).member_id == ""


def test_a_static_member_that_stops_polling_does_not_leave() -> None:
    story = Story(instance="i").stable(0)
    story.on(ev.PollExpired())
    assert not story.has(act.SendLeave)
    assert story.has(act.Lost)


def test_a_parked_join_is_abandoned_when_the_application_stops_polling() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = story.the(act.SendJoin)
    story.on(ev.PollExpired())
    assert act.Abandon(join.token) in story.asked


# The end


def test_closing_revokes_then_leaves() -> None:
    story = Story().stable(0)
    story.on(ev.Close())
    revoke = story.the(act.Revoke)
    assert not story.has(act.SendLeave)
    story.on(ev.Revoked(revoke.token))
    assert story.the(act.SendLeave) == act.SendLeave("me", "the consumer is being closed")
    assert story.has(act.Closed)
    assert story.on(ev.Tick()) == []


def test_closing_during_a_rebalance_loses() -> None:
    story = Story(COOPERATIVE).stable(0)
    story.heartbeat(ErrorCode.REBALANCE_IN_PROGRESS)
    join = story.the(act.SendJoin)
    story.on(ev.Close())
    assert act.Abandon(join.token) in story.asked
    assert story.the(act.Lost).partitions == t(0)


def test_a_static_member_does_not_leave_when_it_closes() -> None:
    story = Story(instance="i").stable()
    story.on(ev.Close())
    assert not story.has(act.SendLeave)
    assert story.has(act.Closed)


@pytest.mark.parametrize(("instance", "leaving", "leaves"), [("i", Leaving.LEAVE, True), (None, Leaving.REMAIN, False)])
def test_closing_can_be_told_to_leave_or_to_remain(instance: str | None, leaving: Leaving, leaves: bool) -> None:
    story = Story(instance=instance).stable()
    story.on(ev.Close(leaving))
    assert story.has(act.SendLeave) is leaves


def test_a_member_that_never_started_closes_silently() -> None:
    assert Story().on(ev.Close()) == [act.Closed()]


def test_reasons_are_cut_to_255_characters() -> None:
    story = Story().stable()
    story.on(ev.SubscriptionChanged(tuple(f"topic-with-a-long-name-{n}" for n in range(40))))
    assert len(story.the(act.SendJoin).reason) == 255


def test_every_state_can_be_left_except_closed() -> None:
    assert set(MOVES) == set(State)
    assert [state for state, targets in MOVES.items() if not targets] == [State.CLOSED]
