"""What a group reads changes."""

from dataclasses import replace

from tests.truth.expectation import Expectation, Fact, TopicFact, back, left, left_or_expired, topic_changed
from tests.truth.scene import PARTITIONS, PATIENCE_S, Scene
from tests.truth.situations.registry import situation

SHORT_POLL_MS = 20_000
"""Kafka's own client commits before it joins again, and repeats a commit that names a deleted topic for this long."""

SUBSCRIPTION = frozenset({"SUBSCRIPTION_CHANGED", "MEMBER_METADATA_CHANGED"})

LEADER_LEARNS = Fact("ann", frozenset({"LEADER_REJOINED"}), required=False)
"""Its client did not know a topic that only another member reads, and plans again when it does."""


@situation(needs="missing-topic")
def topic_made(scene: Scene) -> Expectation:
    """A topic is made that the members subscribe to already"""
    clicks = scene.name_of("clicks")
    scene.start("ann", "bob", topics=[scene.topic, clicks])
    scene.mark()
    scene.make_topic("clicks", 4)
    scene.until_shared(topics=[scene.topic, clicks])
    made = Fact(None, frozenset({"PARTITIONS_CHANGED"}), SUBSCRIPTION, says=(clicks,))
    return Expectation((made,), topics=(TopicFact(clicks, "MADE", 0, 4),), incident="topic_change")


@situation()
def topic_grown(scene: Scene) -> Expectation:
    """A topic gets more partitions"""
    scene.start("ann", "bob")
    scene.mark()
    scene.grow_topic(scene.topic, PARTITIONS + 2)
    scene.until_shared()
    grew = TopicFact(scene.topic, "GREW", PARTITIONS, PARTITIONS + 2)
    return Expectation((topic_changed(scene.topic),), topics=(grew,), incident="topic_change")


@situation()
def topic_deleted(scene: Scene) -> Expectation:
    """One of two topics is deleted"""
    clicks = scene.make_topic("clicks", 4)
    both = [scene.topic, clicks]
    for name in ("ann", "bob"):
        scene.begin(name, topics=both, poll_ms=SHORT_POLL_MS)
        scene.until_shared(topics=both)
    scene.mark()
    scene.delete_topic(clicks)
    scene.until_shared(topics=[scene.topic], seconds=2 * PATIENCE_S)  # over a Kafka, it is planned with for a minute
    gone = TopicFact(clicks, "DELETED", 4, 0)
    facts = (topic_changed(clicks), *(held_up("ann", "bob") if scene.watched else ()))
    # A cooperative member that is back first claims the topic still, so one that went had something the plan left out.
    never = () if scene.watched and scene.client.mode == "cooperative" else ("gives it to nobody",)
    return Expectation(facts, topics=(gone,), incident="topic_change", never=never)


def held_up(one: str, other: str) -> tuple[Fact, ...]:
    """One of them begins the round when its commits of the deleted topic have used up its time. The other one's are not
    over in time, and it comes back under a new id."""
    either = frozenset({other})
    return (
        Fact(one, frozenset({"REBALANCE_TIMEOUT"}), required=False, others=either),
        replace(left_or_expired(one), required=False, others=either),
        replace(back(one, required=False), others=either),
    )


@situation()
def topic_remade(scene: Scene) -> Expectation:
    """One of two topics is deleted and made again with fewer partitions"""
    clicks = scene.make_topic("clicks", 6)
    both = [scene.topic, clicks]
    for name in ("ann", "bob"):
        scene.begin(name, topics=both)
        scene.until_shared(topics=both)
    scene.mark()
    scene.delete_topic(clicks)
    scene.make_topic("clicks", 4)
    scene.until(lambda: bool(scene.recorded()), "the group has noticed")
    scene.until_shared(topics=both, more=True)  # librdkafka's cooperative-sticky keeps what it had
    remade = TopicFact(clicks, "REMADE", 6, 4)
    apart = (TopicFact(clicks, "DELETED", 6, 0), TopicFact(clicks, "MADE", 0, 4))
    return Expectation(
        (topic_changed(clicks),),
        topics=(remade,),
        incident="topic_change",
        or_topics=apart,
        never=("gives it to nobody",),
    )


@situation(needs="pattern")
def pattern_matched(scene: Scene) -> Expectation:
    """A topic is made that the members' pattern matches"""
    for name in ("ann", "bob"):
        scene.begin(name, pattern=f"^{scene.group}[.].*")
        scene.until_shared()
    scene.mark()
    clicks = scene.make_topic("clicks", 4)
    scene.until_shared(topics=[scene.topic, clicks])
    matched = Fact(
        None,
        frozenset({"PARTITIONS_CHANGED", "SUBSCRIPTION_CHANGED"}),
        vague=SUBSCRIPTION,
        says=(clicks,),
        others=frozenset({"ann", "bob"}),
    )
    return Expectation((matched,), topics=(TopicFact(clicks, "MADE", 0, 4),), incident="topic_change")


@situation(needs="resubscribe")
def subscription_changed(scene: Scene) -> Expectation:
    """A member subscribes to another topic instead"""
    clicks = scene.make_topic("clicks", 4)
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.subscribe(clicks)
    scene.until_shared(topics=[scene.topic, clicks])
    changed = Fact("bob", frozenset({"SUBSCRIPTION_CHANGED"}), SUBSCRIPTION, says=(f"+{clicks}", f"-{scene.topic}"))
    return Expectation((changed, LEADER_LEARNS))


@situation()
def restarted_with_another_topic(scene: Scene) -> Expectation:
    """A member is restarted and subscribes to another topic than before"""
    clicks = scene.make_topic("clicks", 4)
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.close()
    scene.until_shared()
    scene.again(bob, topics=[clicks])
    scene.until_shared(topics=[scene.topic, clicks])
    return Expectation((left("bob"), back("bob"), Fact("bob", SUBSCRIPTION, required=False), LEADER_LEARNS))
