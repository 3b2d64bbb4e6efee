"""Whether what a node tells of the cluster is how it stands."""

from typing import Any, cast

from muster.coordinator.server.cluster_backend.cluster_description import ControllerContact
from muster.coordinator.zookeeper.session import SessionState, ZooKeeperSession


class At:
    """A session and a clock in the hands of a test."""

    session_timeout_ms = 6_000
    connect = "zk:2181/demo"

    def __init__(self) -> None:
        self.state = SessionState.CONNECTED
        self.now_ms = 1_000_000
        self.controller: Any = (2, ("two", 9394))
        self.touch = ControllerContact(cast(ZooKeeperSession, self), lambda: self.now_ms, lambda: self.controller)


def test_for_as_long_as_a_session_it_counts_as_in_touch_and_says_how_old_it_is() -> None:
    at = At()
    at.now_ms += 5_999
    assert at.touch.describe_contact() == (5_999, "")
    at.touch.heard()
    at.now_ms += 17
    assert at.touch.describe_contact() == (17, "")


def test_then_it_says_since_when_and_what_it_does_not_reach() -> None:
    at = At()
    at.now_ms += 6_000
    told = "this node is not in the cluster: it has heard nothing from the controller for 6 s, "
    after = "; what it tells is as of then. Ask another node"
    assert at.touch.describe_contact() == (
        6_000,
        f"{told}and the controller, node 2 at two:9394, does not answer it{after}",
    )
    at.controller = None
    assert at.touch.describe_contact().cut_off == f"{told}and as far as ZooKeeper says there is no controller{after}"
    at.state = SessionState.SUSPENDED
    assert at.touch.describe_contact().cut_off == f"{told}and ZooKeeper at zk:2181/demo is out of its reach{after}"
