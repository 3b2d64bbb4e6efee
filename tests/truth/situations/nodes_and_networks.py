"""The node stands still or dies; the network does."""

from dataclasses import replace

from tests.truth.expectation import Expectation, Fact, back, expired, joined, left, left_or_expired
from tests.truth.nodes import SESSION_MS
from tests.truth.scene import Scene
from tests.truth.situations.registry import MUSTER, WATCHED, situation

FAILOVER = Fact(None, frozenset({"COORDINATOR_FAILOVER"}), required=False)
STALLED = Fact(None, frozenset({"NODE_STALLED"}))


@situation(own=True)
def node_frozen(scene: Scene) -> Expectation:
    """SIGSTOP of the node for 10 s, with sessions of 6 s"""
    scene.start("ann", "bob", "cat")
    scene.mark()
    scene.node.freeze(scene.group)
    scene.hold(10.0)
    scene.node.thaw()
    scene.until_shared()
    scene.hold(2.0)
    scene.until_shared()
    names = ("ann", "bob", "cat")
    returns = tuple(joined(name, required=False) for name in names)  # no process has restarted
    if scene.watched:  # no record tells whether they were started anew, or heard of nobody
        common = Fact(None, frozenset({"UNSPECIFIED"}), required=False, unsure=True)
        returns = tuple(back(name, required=False) for name in names)
        went = tuple(replace(left_or_expired(name), required=False) for name in names)
        ended = tuple(expired(name, required=False) for name in names)
        return Expectation((common, FAILOVER, *went, *ended, *returns), quiet=True)
    return Expectation((STALLED, FAILOVER, *returns), quiet=True, late=frozenset(names), never=("was not heard of",))


@situation(own=True)
def node_frozen_briefly(scene: Scene) -> Expectation:
    """SIGSTOP of the node for 3 s, with sessions of 6 s"""
    scene.start("ann", "bob")
    scene.mark()
    scene.node.freeze(scene.group)
    scene.hold(3.0)
    scene.node.thaw()
    scene.hold(2.0)
    scene.until_shared()
    return Expectation((STALLED, FAILOVER), quiet=True)


@situation(own=True, backends=MUSTER)
def node_killed(scene: Scene) -> Expectation:
    """kill -9 of the node, which is started again"""
    scene.start("ann", "bob")
    scene.mark()
    scene.node.kill(scene.group)
    scene.node.start()
    scene.hold(2.0)
    scene.until_shared()
    names = ("ann", "bob")
    returns = tuple(back(name, required=False) for name in names)
    failover = Fact(None, frozenset({"COORDINATOR_FAILOVER"}), required=False, others=frozenset(names))
    return Expectation((failover, *returns), quiet=True, late=frozenset(names))


@situation(own=True, backends=WATCHED, brokers=3)
def coordinator_moved(scene: Scene) -> Expectation:
    """kill -9 of the broker that coordinates the group, one of three; later a member closes"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    scene.node.kill(scene.group)
    scene.until(lambda: scene.at_rest(2), "another broker coordinates the group")
    scene.hold(SESSION_MS / 1000)
    scene.until_shared()
    bob.close()
    scene.until_shared()
    returns = tuple(back(name, required=False) for name in ("ann", "bob"))
    return Expectation((left("bob"), FAILOVER, *returns), late=frozenset({"ann", "bob"}))


@situation(own=True, modes="eager cooperative")
def node_killed_in_a_join(scene: Scene) -> Expectation:
    """kill -9 of the node while a member joins and another one stands still"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    bob.freeze()
    scene.begin("cat")
    scene.until(lambda: "cat" in scene.members_of_group(), "cat has come")
    scene.node.kill(scene.group)
    scene.node.start()
    bob.thaw()
    scene.until_members("ann", "bob", "cat")
    scene.until_shared()
    names = frozenset({"ann", "bob", "cat"})
    returns = tuple(back(name, required=False) for name in ("ann", "bob"))
    failover = Fact(None, frozenset({"COORDINATOR_FAILOVER"}), required=False, others=names)
    return Expectation((joined("cat"), failover, expired("bob", required=False), *returns), late=names)


@situation(own=True, backends="node", proxied=True)
def network_cut(scene: Scene) -> Expectation:
    """The network of a member is cut, and its connections stay half open"""
    ann, bob = scene.start("ann", "bob")
    scene.mark()
    scene.cut(bob)
    scene.until_gone("bob")
    scene.until_shared(ann)
    return Expectation((expired("bob"),), moves=False)


@situation(own=True, backends="node", proxied=True)
def connections_lost(scene: Scene) -> Expectation:
    """All connections of a member break, and it connects anew"""
    _, bob = scene.start("ann", "bob")
    scene.mark()
    scene.reset(bob)
    scene.hold(3.0)
    scene.until_shared()
    return Expectation((), quiet=True)
