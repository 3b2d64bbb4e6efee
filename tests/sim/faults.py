"""How bad the weather is. All rates are drawn from the seed; the liveness phase has none of it."""

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

REQUEST_TIMEOUT_MS = 8_000
JOIN_GRACE_MS = 5_000
"""How much longer than the rebalance timeout a member waits for the answer to its join."""
FULL_MS = 60_000
DEAF_MS = 40_000
"""Beyond the shorter rebalance timeouts, while the session is renewed by what is heard of the member."""


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities per message or call, and mean times (ms) between things that just happen; 0 means never."""

    loss: float = 0.0
    duplicate: float = 0.0
    slow: float = 0.0
    """Messages that take up to `slow_ms` instead of a few milliseconds; later ones overtake them."""
    slow_ms: int = 0
    append_fails: float = 0.0
    flush_fails: float = 0.0
    read_fails: float = 0.0
    fence: float = 0.0
    """A flush that failed leaves the log of its shard fenced: nothing goes in or out until the process is new."""
    full_every_ms: int = 0
    """The disk has no room for up to FULL_MS, or for little only."""
    damage: float = 0.0
    """A shard that is loaded finds a part of its ledger spoilt, for good."""
    harm: float = 0.0
    """A shard that is loaded finds a record of one of its groups that says nothing, for good."""
    bulk_every_ms: int = 0
    """Somebody sends what would become a record larger than the log takes, at once or together with others."""
    flush_ms: int = 20
    """A flush takes up to this long."""
    kill_every_ms: int = 0
    """The node's process dies; what it appended is safe with the operating system."""
    power_loss_every_ms: int = 0
    """The node's machine dies; what it did not flush may be gone, in whole batches from the end."""
    node_stall_every_ms: int = 0
    """The node stands still, for up to a minute: nothing is read, no timer fires, no flush ends."""
    last_moment_every_ms: int = 0
    """What a member says comes just before its session ends, while the node is busy for a moment."""
    deaf_every_ms: int = 0
    """A member hears nothing for up to DEAF_MS, though what it says arrives."""
    clock_set_back: float = 0.0
    """While the node is down its machine's clock is set back."""
    unload_every_ms: int = 0
    partition_every_ms: int = 0
    member_pause_every_ms: int = 0
    """A member's process stands still (long GC): no heartbeats, no timers, and answers are read late."""
    stall_every_ms: int = 0
    """A member's application does not poll; its heartbeats go on."""
    churn_every_ms: int = 0
    """A member's process crashes, closes, is replaced, or a new one comes."""
    topics_every_ms: int = 0
    operator_every_ms: int = 0
    settings_every_ms: int = 0
    """An operator sets or unsets who plans for a group."""
    tuning_every_ms: int = 0
    """An operator sets or unsets something for a group."""
    verbs_every_ms: int = 0
    """An operator freezes a group, deploys, drains, pins, or resumes."""
    trials_every_ms: int = 0
    """An operator begins or ends a canary, or sets shadows."""
    balance_every_ms: int = 0
    """An operator has a group balanced, watched, or left alone."""
    migrate_every_ms: int = 0
    """A place in a group on the move gets a process of the other protocol."""
    bad_leader: float = 0.0
    """A leader that is slow to plan, or cannot at first."""
    rights_every_ms: int = 0
    """Members come with rights to some topics only, and the lists change. Not drawn: runs of their own have it."""
    slow_work: float = 0.0
    """What the coordinator has computed off its loop takes seconds, or overruns its deadline."""
    failed_work: float = 0.0
    """An assignor of the coordinator, or a topic pattern, fails."""


CALM = Faults()

HARD_ON_MEMBERS: Mapping[str, float] = {
    **dict.fromkeys(("append_fails", "flush_fails", "read_fails", "fence", "damage", "harm"), 0),
    **dict.fromkeys(
        ("kill_every_ms", "power_loss_every_ms", "node_stall_every_ms", "unload_every_ms", "full_every_ms"), 0
    ),
    "flush_ms": 20,
    "loss": 0.08,
    "slow": 0.1,
    "slow_ms": 5_000,
    "bulk_every_ms": 0,
    "operator_every_ms": 0,
    "settings_every_ms": 0,
    "tuning_every_ms": 0,
    "deaf_every_ms": 5_000,
    "stall_every_ms": 15_000,
    "member_pause_every_ms": 15_000,
    "churn_every_ms": 8_000,
    "migrate_every_ms": 10_000,
    "topics_every_ms": 20_000,
}
"""The node is well, and its members are not: what happens between the two that drawn weather rarely brings about."""


HELD_BY_OPERATORS: Mapping[str, int] = {"verbs_every_ms": 5_000, "migrate_every_ms": 20_000}
"""Drawn weather, and an operator who never rests; groups on their way change their protocol meanwhile."""

ROLLED_BY_OPERATORS: Mapping[str, int] = {"verbs_every_ms": 2_500, "migrate_every_ms": 7_000}
"""The same, with more of both."""


LOOKED_AT: Mapping[str, int] = {"rights_every_ms": 6_000}
"""The same drawn weather, and members that may not read everything."""

LOOKED_AT_WITHOUT_ROOM: Mapping[str, int] = {**LOOKED_AT, "full_every_ms": 15_000}
"""The same, and disks that fill up all the time: what members may is heard anew after each reload."""


def draw(rng: Random) -> Faults:
    """Each seed has weather of its own: most kinds of fault in most seeds, rarely all of them at full strength."""

    def often(share: float, low: int, high: int) -> int:
        return rng.randint(low, high) if rng.random() < share else 0

    def rate(share: float, high: float) -> float:
        return rng.random() * high if rng.random() < share else 0.0

    return Faults(
        loss=rate(0.5, 0.04),
        duplicate=rate(0.5, 0.05),
        slow=rate(0.6, 0.1),
        slow_ms=rng.choice((200, 1_000, 5_000, 12_000)),
        append_fails=rate(0.3, 0.04),
        flush_fails=rate(0.3, 0.04),
        read_fails=rate(0.2, 0.3),
        flush_ms=rng.choice((0, 20, 20, 300, 3_000)),
        kill_every_ms=often(0.3, 20_000, 200_000),
        power_loss_every_ms=often(0.5, 10_000, 150_000),
        node_stall_every_ms=often(0.4, 15_000, 100_000),
        unload_every_ms=often(0.3, 20_000, 150_000),
        partition_every_ms=often(0.4, 10_000, 100_000),
        member_pause_every_ms=often(0.5, 10_000, 100_000),
        stall_every_ms=often(0.5, 10_000, 60_000),
        churn_every_ms=often(0.8, 4_000, 60_000),
        topics_every_ms=often(0.4, 20_000, 100_000),
        operator_every_ms=often(0.6, 5_000, 60_000),
        bad_leader=rate(0.4, 0.3),
        slow_work=rate(0.4, 0.3),
        failed_work=rate(0.3, 0.3),
        migrate_every_ms=often(0.7, 8_000, 60_000),
        last_moment_every_ms=often(0.5, 3_000, 20_000),
        deaf_every_ms=often(0.5, 8_000, 60_000),
        fence=rate(0.7, 0.9),
        damage=rate(0.5, 0.7),
        bulk_every_ms=often(0.4, 5_000, 40_000),
        full_every_ms=often(0.4, 10_000, 90_000),
        harm=rate(0.4, 0.7),
        settings_every_ms=often(0.5, 6_000, 60_000),
        tuning_every_ms=often(0.6, 3_000, 30_000),
        trials_every_ms=often(0.6, 3_000, 40_000),
        balance_every_ms=often(0.5, 8_000, 60_000),
        clock_set_back=rate(0.4, 0.8),
        verbs_every_ms=often(0.3, 5_000, 40_000),
    )
