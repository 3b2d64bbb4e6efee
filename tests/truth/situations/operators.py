"""An operator does something, by the commands."""

from tests.truth.expectation import Expectation, Fact, back, by_operator, joined, left
from tests.truth.scene import Member, Scene
from tests.truth.situations.registry import MUSTER, situation

SETTINGS = by_operator("OPERATOR", required=False, outcome="SETTINGS_CHANGED")
HELD = by_operator("OPERATOR", required=False, outcome="HELD")
TRIAL = by_operator("OPERATOR", "CANARY", required=False, outcome="TRIAL")


def start_planned(scene: Scene) -> list[Member]:
    """Two members whose plans the coordinator makes: what is held of a group needs that."""
    if scene.client.protocol == "classic":
        scene.muster("groups", "set", scene.group, "assignor=range")
    return scene.start("ann", "bob")


@situation(backends=MUSTER)
def member_removed(scene: Scene) -> Expectation:
    """An operator removes a member that runs"""
    scene.start("ann", "bob")
    scene.mark()
    bob = next(member_id for member_id, name in scene.ids.items() if name == "bob")
    scene.muster("groups", "remove-members", scene.group, "--member", bob, "--execute")
    scene.until(lambda: bool(scene.recorded()), "bob was removed")  # a KIP-848 client comes back under its id
    scene.until_members("ann", "bob")
    scene.until_shared()
    removed = by_operator("OPERATOR", others=frozenset({"bob"}))
    return Expectation((removed, back("bob")), late=frozenset({"bob"}))


@situation(backends=MUSTER)
def assignor_set(scene: Scene) -> Expectation:
    """An operator sets another assignor"""
    scene.start("ann", "bob")
    scene.mark()
    scene.muster("groups", "set", scene.group, "assignor=uniform")
    scene.until(lambda: any(each["outcome"] == "COMPLETED" for each in scene.recorded()), "the group was planned anew")
    scene.until_shared()
    return Expectation((by_operator("OPERATOR", "ASSIGNOR_CHANGED", outcome="COMPLETED"), SETTINGS))


@situation(backends=MUSTER)
def drained(scene: Scene) -> Expectation:
    """An operator drains a member"""
    _, bob = start_planned(scene)
    scene.mark()
    scene.muster("groups", "drain", scene.group, "bob", "--by", "client-id")
    scene.until(lambda: bob.assigned == [], "bob has nothing left")
    scene.until(lambda: scene.at_rest(2), "the group is at rest")
    return Expectation((by_operator("DRAINED", others=frozenset({"bob"})), HELD))


@situation(backends=MUSTER)
def canary(scene: Scene) -> Expectation:
    """An operator tries another assignor for a while, and ends it"""
    start_planned(scene)
    scene.mark()
    scene.muster("groups", "canary", scene.group, "--assignor", "uniform", "--for", "10m")
    scene.until(lambda: any(each["outcome"] == "COMPLETED" for each in scene.recorded()), "the canary has planned")
    scene.until_shared()
    scene.muster("groups", "rollback", scene.group)
    scene.until_shared()
    return Expectation((by_operator("CANARY", "ASSIGNOR_CHANGED", outcome="COMPLETED"), TRIAL, SETTINGS))


@situation(backends=MUSTER)
def frozen_and_resumed(scene: Scene) -> Expectation:
    """An operator freezes the group, a member joins, and the freeze ends"""
    start_planned(scene)
    scene.mark()
    scene.muster("groups", "freeze", scene.group)
    cat = scene.begin("cat")
    scene.until_members("ann", "bob", "cat")
    scene.until(lambda: scene.at_rest(3) and not cat.assigned, "cat is there and has nothing")
    scene.muster("groups", "resume", scene.group)
    scene.until_shared()
    return Expectation((joined("cat"), by_operator("THAW"), HELD))


@situation(backends=MUSTER)
def deployed(scene: Scene) -> Expectation:
    """An operator announces a deploy, a member is restarted and gets back what it had"""
    _, bob = start_planned(scene)
    scene.mark()
    scene.muster("groups", "deploy", scene.group, "--expect", "1", "--timeout", "2m")
    bob.close()
    scene.until_gone("bob")
    scene.again(bob)
    scene.until_members("ann", "bob")
    scene.until_shared()
    over = by_operator("DEPLOY_OVER", required=False, others=frozenset({"bob"}))
    return Expectation((left("bob"), back("bob"), over, HELD))


@situation(backends=MUSTER)
def pinned(scene: Scene) -> Expectation:
    """An operator pins a partition to another member"""
    ann, bob = start_planned(scene)
    scene.mark()
    place = next(iter(ann.assigned or ()))
    scene.muster("groups", "pin", scene.group, f"{place[0]}:{place[1]}", "bob")
    scene.until(lambda: place in (bob.assigned or ()), f"bob has {place}")
    scene.until_shared()
    return Expectation((Fact(None, frozenset({"PIN_CHANGED"}), others=frozenset({"bob"})), HELD))
