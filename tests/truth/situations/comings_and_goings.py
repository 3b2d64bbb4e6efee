"""Members come, go, die and come back."""

from tests.truth.expectation import (
    GONE,
    Expectation,
    Fact,
    back,
    expired,
    gave_up,
    joined,
    left,
    left_or_expired,
    poll_exceeded,
)
from tests.truth.nodes import SESSION_MS
from tests.truth.scene import NEVER, Scene
from tests.truth.situations.registry import MUSTER, WATCHED, situation


@situation(settings={"group.initial.rebalance.delay.ms": "3000"}, modes="eager cooperative", backends=MUSTER)
def initial_start(scene: Scene) -> Expectation:
    """A group's first member starts, with an initial delay of 3 s"""
    scene.mark()
    scene.start("ann")
    return Expectation((joined("ann"),), phases=("initial delay",), outage=False)


@situation()
def join(scene: Scene) -> Expectation:
    """A second member joins"""
    scene.start("ann")
    scene.mark()
    scene.start("bob")
    return Expectation((joined("bob"),))


@situation()
def leave_with_close(scene: Scene) -> Expectation:
    """A member closes"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.close()
    scene.until_shared()
    return Expectation((left("bob"),))


@situation(needs="read-on", own=True, backends="node")  # other groups' members go by the same names
def leave_and_read_on(scene: Scene) -> Expectation:
    """A member leaves the group, and its program goes on reading what it had"""
    ann, bob = scene.start("ann", "bob")
    scene.mark()
    bob.tell("read-on")
    scene.until_gone("bob")
    scene.until_shared(ann)
    scene.hold(4.0)
    return Expectation((left("bob"),), moves=False, reads_on="bob")


@situation()
def leave_without_close(scene: Scene) -> Expectation:
    """A member's program ends without close()"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.exit()
    scene.until_shared()
    return Expectation((expired("bob"),))


@situation(backends=WATCHED)
def leave_without_commits(scene: Scene) -> Expectation:
    """A member closes that commits nothing"""
    _, bob = scene.start("ann", "bob", commit_ms=NEVER)
    scene.mark()
    scene.hold(SESSION_MS / 1000)
    bob.close()
    scene.until_shared()
    return Expectation((left_or_expired("bob"),))


@situation(backends=WATCHED)
def killed_without_commits(scene: Scene) -> Expectation:
    """kill -9 of a member that commits nothing"""
    _, bob = scene.start("ann", "bob", commit_ms=NEVER)
    scene.mark()
    bob.kill()
    scene.until_shared()
    return Expectation((left_or_expired("bob"),))


@situation()
def killed(scene: Scene) -> Expectation:
    """kill -9 of a member"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.kill()
    scene.until_shared()
    return Expectation((expired("bob"),))


@situation()
def first_killed(scene: Scene) -> Expectation:
    """kill -9 of the first member, which made the plans"""
    ann, _ = scene.start("ann", "bob")
    scene.mark()
    ann.kill()
    scene.until_shared()
    return Expectation((expired("ann"),))


@situation()
def killed_and_join(scene: Scene) -> Expectation:
    """kill -9 of a member, another one joins at once"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.kill()
    scene.begin("cat")
    scene.until_gone("bob")
    scene.until_shared()
    waited = {} if scene.client.mode == "kip848" else {"bob": GONE}
    return Expectation((joined("cat"), expired("bob")), waited=waited)


@situation()
def killed_and_restarted(scene: Scene) -> Expectation:
    """kill -9 of a member, which is started again at once"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.kill()
    scene.again(bob)
    scene.until_members("ann", "bob")
    scene.until_shared()
    waited = {} if scene.client.mode == "kip848" else {"bob": GONE}
    return Expectation((back("bob"), expired("bob", required=False)), waited=waited)


@situation()
def three_killed(scene: Scene) -> Expectation:
    """kill -9 of three of four"""
    _, *others = scene.start("ann", "bob", "cat", "dan")
    scene.mark()
    for each in others:
        each.kill()
    scene.until_shared()
    return Expectation(tuple(expired(each.name) for each in others))


@situation(needs="poll-interval")
def poll_exceeded_and_back(scene: Scene) -> Expectation:
    """A member does not poll for longer than max.poll.interval.ms, and goes on"""
    _, bob = scene.start("ann", "bob", poll_ms=SESSION_MS + 2_000)
    scene.mark()
    bob.stop_polling()
    scene.until_gone("bob")
    bob.resume()
    scene.until_members("ann", "bob")
    scene.until_shared()
    again = back("bob", required=not scene.watched)  # both may be one round on record, and one sentence
    return Expectation((poll_exceeded("bob", silent=scene.client.mode == "kip848"), again))


@situation()
def member_frozen(scene: Scene) -> Expectation:
    """SIGSTOP of a member for longer than its session, then SIGCONT"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.freeze()
    scene.until_gone("bob")
    bob.thaw()
    scene.until_members("ann", "bob")
    scene.until_shared()
    return Expectation((expired("bob"), back("bob")))


@situation(modes="eager cooperative")
def late_for_a_join(scene: Scene) -> Expectation:
    """A member stands still for 3 s while another one joins"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.freeze()
    scene.begin("cat")
    scene.until(lambda: "cat" in scene.members_of_group(), "cat has come")
    scene.hold(3.0)
    bob.thaw()
    scene.until_shared()
    return Expectation((joined("cat"),), waited={"bob": frozenset({"JOINED"})})


@situation()
def all_stopped_and_started(scene: Scene) -> Expectation:
    """All three close and are started again"""
    everybody = scene.start("ann", "bob", "cat")
    scene.mark()
    for each in everybody:
        each.close()
    scene.until(lambda: not scene.members_of_group(), "nobody is left")
    for each in everybody:
        scene.again(each)
    scene.until_shared()
    names = ("ann", "bob", "cat")
    facts = (*(left(name) for name in names), *(back(name) for name in names))
    return Expectation(facts, incident="stop_and_start", moves=False)


@situation()
def rolling_restart(scene: Scene) -> Expectation:
    """Six members are restarted, one after the other"""
    everybody = scene.start("ann", "bob", "cat", "dan", "eve", "fay")
    scene.mark()
    for each in everybody:
        each.close()
        scene.until_shared()
        scene.again(each)
        scene.until_shared()
    names = [each.name for each in everybody]
    facts = (*(left(name) for name in names), *(back(name) for name in names))
    return Expectation(facts, incident="rolling_restart")


@situation()
def crash_loop(scene: Scene) -> Expectation:
    """A member is killed and started again three times, faster than its session ends"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    for _ in range(3):
        before = scene.ids_of("bob")
        bob.kill()
        bob = scene.again(bob)
        scene.until(lambda before=before: scene.ids_of("bob") > before, "bob is back")
    scene.until_members("ann", "bob")
    scene.until_shared()
    return Expectation((back("bob"), expired("bob", required=False)), incident="crash_loop")


@situation()
def restarted(scene: Scene) -> Expectation:
    """A member closes and is started again"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.close()
    scene.until_shared()
    scene.again(bob)
    scene.until_shared()
    return Expectation((left("bob"), back("bob")))


@situation()
def first_closes(scene: Scene) -> Expectation:
    """The first member closes, which made the plans"""
    ann, _ = scene.start("ann", "bob")
    scene.mark()
    ann.close()
    scene.until_shared()
    return Expectation((left("ann"),))


@situation()
def scaled_out(scene: Scene) -> Expectation:
    """Three more members start at once"""
    scene.start("ann")
    scene.mark()
    names = ("bob", "cat", "dan")
    for name in names:
        scene.begin(name)
    scene.until_shared()
    return Expectation(tuple(joined(name) for name in names), late=frozenset(names))


@situation(modes="cooperative")
def second_round(scene: Scene) -> Expectation:
    """The second round of a cooperative rebalance"""
    scene.start("ann")
    scene.mark()
    scene.start("bob")
    return Expectation((joined("bob"), gave_up("ann", required=True)))


@situation(modes="eager", needs="two-assignors")
def assignor_rolled_out(scene: Scene) -> Expectation:
    """Three members are restarted, one after the other, with another assignor before the old one"""
    everybody = scene.start("ann", "bob", "cat")
    scene.mark()
    for each in everybody:
        each.close()
        scene.until_shared()
        scene.again(each, assignors=["roundrobin", "range"])
        scene.until_shared()
    names = [each.name for each in everybody]
    went = tuple(left(name) for name in names)
    came = tuple(back(name, says=("roundrobin",)) for name in names)
    offers = tuple(Fact(name, frozenset({"PROTOCOLS_CHANGED", "PROTOCOL_CHANGED"}), required=False) for name in names)
    if scene.watched:  # a record has the assignor that was chosen, and no others
        chosen = Fact(None, frozenset({"PROTOCOL_CHANGED"}), says=("roundrobin",))
        return Expectation((*went, *(back(name) for name in names), chosen), incident="rolling_restart")
    return Expectation((*went, *came, *offers), incident="assignor_rollout")


@situation()
def two_at_once(scene: Scene) -> Expectation:
    """A member closes while another one joins"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    scene.begin("cat")
    bob.close()
    scene.until_members("ann", "cat")
    scene.until_shared()
    return Expectation((left("bob"), joined("cat")))
