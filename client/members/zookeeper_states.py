"""Where a consumer of the ZooKeeper era can stand, and which moves are legal."""

from enum import Enum


class ZookeeperState(Enum):
    """Where the consumer stands."""

    IDLE = "idle"
    WAITING = "waits for a session with ZooKeeper"
    REGISTERING = "creates its node in ids"
    READING = "reads members, topics and brokers, and sets the watches anew"
    REVOKING = "waits for callbacks and commits before it releases"
    RELEASING = "deletes its nodes in the owner registry"
    CLAIMING = "creates its nodes in the owner registry"
    BACKING_OFF = "waits before it tries again"
    STABLE = "owns its share"
    GAVE_UP = "ran out of retries; the next watch starts it again"
    EXPIRED = "its application stopped polling"
    CLOSING = "waits for callbacks before it leaves"
    CLOSED = "closed"
    FAILED = "refused for good"


S = ZookeeperState
ENDS = frozenset({S.EXPIRED, S.CLOSING, S.FAILED})
"""From wherever it works, the application or a refusal may end it. (A session that ends leads to WAITING.)"""

MOVES: dict[ZookeeperState, frozenset[ZookeeperState]] = {
    S.IDLE: frozenset({S.WAITING, S.REGISTERING, S.CLOSED}),
    S.WAITING: frozenset({S.REGISTERING}) | ENDS,
    S.REGISTERING: frozenset({S.READING, S.BACKING_OFF, S.WAITING}) | ENDS,
    S.READING: frozenset(
        {S.REVOKING, S.RELEASING, S.CLAIMING, S.STABLE, S.BACKING_OFF, S.GAVE_UP, S.REGISTERING, S.WAITING}
    )
    | ENDS,
    S.REVOKING: frozenset({S.RELEASING, S.BACKING_OFF, S.WAITING}) | ENDS,
    S.RELEASING: frozenset({S.CLAIMING, S.READING, S.REGISTERING, S.BACKING_OFF, S.GAVE_UP, S.STABLE, S.WAITING})
    | ENDS,
    S.CLAIMING: frozenset({S.STABLE, S.RELEASING, S.BACKING_OFF, S.GAVE_UP, S.WAITING}) | ENDS,
    S.BACKING_OFF: frozenset({S.READING, S.REVOKING, S.RELEASING, S.REGISTERING, S.WAITING}) | ENDS,
    S.STABLE: frozenset({S.READING, S.REVOKING, S.REGISTERING, S.WAITING}) | ENDS,
    S.GAVE_UP: frozenset({S.READING, S.REGISTERING, S.WAITING}) | ENDS,
    S.EXPIRED: frozenset({S.WAITING, S.REGISTERING, S.CLOSING}),
    S.CLOSING: frozenset({S.CLOSED}),
    S.FAILED: frozenset({S.CLOSED}),
    S.CLOSED: frozenset(),
}
REBALANCING = frozenset({S.READING, S.REVOKING, S.RELEASING, S.CLAIMING, S.BACKING_OFF})
RESTING = frozenset({S.STABLE, S.GAVE_UP})
"""Where nothing is under way, and a watch starts a rebalance."""
