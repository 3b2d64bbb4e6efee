"""Members with a group.instance.id."""

from tests.truth.expectation import Expectation, Fact, back, expired
from tests.truth.scene import Scene
from tests.truth.situations.registry import situation

LONG_SESSION_MS = 20_000
"""A new process has the time to come back, on a busy machine too."""

CHANGED = "MEMBER_CHANGED"


def started(scene: Scene, *names: str, **more: object) -> None:
    for name in names:
        scene.begin(name, instance=f"i-{name}", **more)
        scene.until_shared()


@situation(needs="static")
def static_restart_within(scene: Scene) -> Expectation:
    """A static member is restarted within its session, and keeps its partitions"""
    started(scene, "ann", "bob", session_ms=LONG_SESSION_MS)
    scene.mark()
    bob = scene.members["bob"]
    bob.close()
    again = scene.again(bob)
    scene.until(lambda: bool(again.assigned), "bob has its partitions")
    scene.until_shared()
    return Expectation(
        (Fact("bob", frozenset({"STATIC_MEMBER_REPLACED", "MEMBER_RESTARTED"}), outcome=CHANGED),), outage=False
    )


@situation(needs="static", modes="eager cooperative")
def static_killed_and_restarted(scene: Scene) -> Expectation:
    """kill -9 of a static member, which is started again within its session"""
    started(scene, "ann", "bob", session_ms=LONG_SESSION_MS)
    scene.mark()
    bob = scene.members["bob"]
    bob.kill()
    again = scene.again(bob)
    scene.until(lambda: bool(again.assigned), "bob has its partitions")
    scene.until_shared()
    return Expectation((Fact("bob", frozenset({"STATIC_MEMBER_REPLACED", "MEMBER_RESTARTED"}), outcome=CHANGED),))


@situation(needs="static")
def static_restart_beyond(scene: Scene) -> Expectation:
    """A static member comes back after its session has ended"""
    started(scene, "ann", "bob")
    scene.mark()
    bob = scene.members["bob"]
    bob.kill()
    scene.until_gone("bob")
    scene.until_shared()
    scene.again(bob)
    scene.until_shared()
    return Expectation((expired("bob"), back("bob")))


@situation(needs="static")
def static_twins(scene: Scene) -> Expectation:
    """A second process starts with the group.instance.id of one that runs"""
    started(scene, "ann", "bob", session_ms=LONG_SESSION_MS)
    scene.mark()
    cat = scene.begin("cat", instance="i-bob", session_ms=LONG_SESSION_MS)
    if scene.client.mode == "kip848":
        scene.hold(4.0)  # it is refused, and may try again
    else:
        scene.until(lambda: bool(cat.assigned), "cat has the partitions of bob")
    if scene.watched:  # no record tells that both run
        taken = Fact("cat", frozenset({"STATIC_MEMBER_REPLACED"}), others=frozenset({"bob"}))
        return Expectation((taken,), moves=False, quiet=scene.client.mode == "kip848")
    shared = Fact("cat", frozenset({"INSTANCE_ID_SHARED"}), others=frozenset({"bob"}))
    replaced = Fact("cat", frozenset({"STATIC_MEMBER_REPLACED"}), required=False, others=frozenset({"bob"}))
    return Expectation((shared, replaced), moves=False, incident="instance_id_shared")
