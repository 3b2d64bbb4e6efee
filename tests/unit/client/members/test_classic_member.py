"""The classic member's rounds as stories: what happens to it, and what it asks for, when all goes well."""

import pytest

from muster.assignors.api import RebalanceProtocol
from muster.assignors.data.consumer_protocol import encode_assignment, parse_subscription
from muster.client.members import actions as act
from muster.client.members import events as ev
from muster.client.members.member_types import GroupMember, MembershipState
from muster.client.members.subscription import Subscriber
from muster.coordinator.core.model.types import Cause
from muster.coordinator.errors import ErrorCode
from tests.support.stories.classic_story import COOPERATIVE, RANGE, STICKY, Story, claims
from tests.support.stories.member_story import t

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
    assert story.member.state is MembershipState.SYNCING
    assert story.the(act.WakeMemberAt).at_ms == 3_000
    story.wait(3_000)
    assert story.the(act.SendHeartbeat).generation == 1


def test_a_member_with_a_stream_says_that_it_lives_as_seldom_as_it_was_told_until_the_stream_is_lost() -> None:
    story = Story().stable()
    story.on(ev.SessionOpened(9_000))
    story.wait(3_000)  # One was due already.
    story.on(ev.ClassicHeartbeatAnswered(story.the(act.SendHeartbeat).token, ErrorCode.NONE))
    story.wait(8_999)
    assert not story.has(act.SendHeartbeat)
    story.wait(1)
    story.on(ev.ClassicHeartbeatAnswered(story.the(act.SendHeartbeat).token, ErrorCode.NONE))
    story.on(ev.SessionLost())
    story.wait(3_000)
    story.on(ev.ClassicHeartbeatAnswered(story.the(act.SendHeartbeat).token, ErrorCode.NONE))
    story.wait(3_000)
    assert story.has(act.SendHeartbeat)


def test_members_of_a_stream_beat_in_step_and_none_of_them_late() -> None:
    story = Story().stable()
    story.on(ev.SessionOpened(9_000, in_step_ms=story.now_ms - 8_000))
    story.wait(3_000)  # One was due already.
    story.on(ev.ClassicHeartbeatAnswered(story.the(act.SendHeartbeat).token, ErrorCode.NONE))
    story.wait(6_999)
    assert not story.has(act.SendHeartbeat)
    story.wait(1)
    story.on(ev.ClassicHeartbeatAnswered(story.the(act.SendHeartbeat).token, ErrorCode.NONE))
    story.wait(8_999)
    assert not story.has(act.SendHeartbeat)
    story.wait(1)
    assert story.has(act.SendHeartbeat)


def test_a_stream_that_says_nothing_of_heartbeats_changes_nothing() -> None:
    story = Story().stable()
    story.on(ev.SessionOpened())
    for _ in range(2):
        story.wait(3_000)
        story.on(ev.ClassicHeartbeatAnswered(story.the(act.SendHeartbeat).token, ErrorCode.NONE))


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
    assert story.the(act.MakePlan).members == everyone
    story.on(ev.PlanMade(1, (("me", b"m"), ("you", b"y")), b"{}", {"t": 4}))
    sync = story.the(act.SendSync)
    assert (sync.assignments, sync.snapshot) == ((("me", b"m"), ("you", b"y")), b"{}")


def test_a_plan_for_an_older_generation_is_ignored() -> None:
    story = Story()
    story.start()
    story.joined(generation=5, leader="me")
    assert not [a for a in story.on(ev.PlanMade(4, ())) if isinstance(a, act.SendSync)]


def test_a_plan_for_a_generation_that_never_came_to_be_is_ignored() -> None:
    """Its coordinator could not write it down, and counts to the same number again, perhaps with other members."""
    story = Story()
    story.start()
    story.joined(generation=5, leader="me")
    lost = story.the(act.MakePlan)
    story.heartbeat(ErrorCode.UNKNOWN_MEMBER_ID)
    story.joined(generation=5, leader="me")
    asked = story.the(act.MakePlan)
    late = ev.PlanMade(5, (("me", b"all"),), question=lost.question)
    assert not [a for a in story.on(late) if isinstance(a, act.SendSync)]
    story.on(ev.PlanMade(5, (("me", b"share"),), question=asked.question))
    assert story.the(act.SendSync).assignments == (("me", b"share"),)


def test_a_plan_that_could_not_be_made_is_asked_for_again_after_a_back_off() -> None:
    story = Story()
    story.start()
    story.joined(leader="me")
    story.on(ev.PlanFailed(1, "no metadata"))
    assert not story.has(act.MakePlan)
    story.wait(100)
    assert story.the(act.MakePlan).generation == 1


def test_a_returning_static_leader_may_not_plan_again() -> None:
    story = Story(instance="i")
    story.start()
    story.joined(leader="me", skip_assignment=True)
    assert not story.has(act.MakePlan)
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
    story.on(ev.ClassicHeartbeatAnswered(beat.token, ErrorCode.REBALANCE_IN_PROGRESS, "join again", *why))
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
    follower.on(ev.PartitionCountsChanged({"t": 9}))
    assert not follower.has(act.Revoke)

    leader = Story(COOPERATIVE)
    join = leader.start()
    leader.joined(leader="me", members=(GroupMember("me", None, join.protocols[0].metadata),))
    leader.on(ev.PlanMade(1, (), b"", {"t": 4}))
    leader.synced(0)
    leader.on(ev.PartitionCountsChanged({"t": 4, "unrelated": 7}))
    assert not leader.has(act.SendJoin)
    leader.on(ev.PartitionCountsChanged({"t": 6}))
    assert leader.the(act.SendJoin).reason == "partition counts changed: t 4 -> 6"


def test_counts_older_than_the_plan_are_no_change() -> None:
    leader = Story(COOPERATIVE)
    join = leader.start()
    leader.on(ev.PartitionCountsChanged({"t": 2}))
    leader.asked = [join]
    leader.joined(leader="me", members=(GroupMember("me", None, join.protocols[0].metadata),))
    leader.on(ev.PlanMade(1, (), b"", {"t": 4}))
    leader.synced(0)
    assert not leader.has(act.SendJoin)
