"""What is known of a group: its state, members, lags, and what operators do with it. Plain and immutable.

`muster.client.described` has these values for programs. `import muster` comes by here: neither protobuf nor pydantic.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

# Positions
# ---------


class TopicPartition(NamedTuple):
    """One partition. Equal to the plain tuple.

    >>> TopicPartition("orders", 3) == ("orders", 3)
    True
    """

    topic: str
    partition: int


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """`committed` is None when nothing is. `lag` is what can still be read (`readable_lag`). No owner is empty.

    `log_start` and `log_end` are -1 where they are not known, and `lag` is 0 then.
    """

    partition: TopicPartition
    committed: int | None
    log_start: int
    log_end: int
    lag: int
    owner: str = ""
    committed_at_ms: int | None = None
    """Epoch milliseconds; None where nothing is committed, or ZooKeeper keeps it."""

    @property
    def end_known(self) -> bool:
        return self.log_end >= 0

    @property
    def removed(self) -> int:
        """Records that retention removed before the group read them. No member can read them any more."""
        return 0 if self.committed is None else max(0, min(self.log_start, self.log_end) - self.committed)

    @property
    def kafka_lag(self) -> int:
        """The figure of Kafka's tools: the distance to the log's end, which counts removed records as well."""
        return self.lag + self.removed


# A group and its members
# -----------------------


@dataclass(frozen=True, slots=True)
class GroupProgress:
    """How a group gets on, as its node saw it at `sampled_ms` (epoch milliseconds).

    `trend` is by how many records a second the lag grows (below 0: shrinks), None while rates are not known. `eta_s` is
    None when nothing points to an end. `health` is OK, WARN or ERR by Burrow's rules, or IDLE, `reason` a sentence.
    """

    sampled_ms: int
    lag: int
    trend: float | None
    eta_s: float | None
    health: str
    reason: str
    idle_since_ms: int | None = None
    """When an IDLE group was last seen with members, or committed (epoch milliseconds); None: it is not IDLE."""
    trend_window_ms: int = 0
    """How far back the trend looks; 0: there is none."""


MEMBERLESS = frozenset({"Empty", "Dead"})
"""States of groups without members, of every type."""


@dataclass(frozen=True, slots=True)
class GroupListing:
    """One group of the node. `state`, `protocol_type` and `group_type` are in Kafka's words."""

    group_id: str
    state: str
    protocol_type: str
    group_type: str
    progress: GroupProgress | None = None
    """How it gets on; None of a node that does not sample its groups, or has not seen this one yet."""

    @property
    def has_members(self) -> bool:
        return self.state not in MEMBERLESS


@dataclass(frozen=True, slots=True)
class MemberDescription:
    """`assignment` and `topics` are empty while the group is not stable.

    `client_software` is what the member's client runs, such as `librdkafka 2.16.0`: empty until it has said so to the
    node's present process, and for members that ZooKeeper holds.
    """

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    topics: tuple[str, ...]
    assignment: tuple[TopicPartition, ...]
    client_software: str = ""
    session_timeout_ms: int | None = None
    rebalance_timeout_ms: int | None = None
    heartbeat_interval_ms: int | None = None
    """None where members keep theirs to themselves: in classic groups."""
    offered_assignors: tuple[str, ...] = ()
    last_heard_ms: int | None = None
    refused_commits: int = 0
    """How many of its commits were refused, or a partition of them, since the last that was taken as a whole."""
    refused_commit_code: str = ""
    """Kafka's word for why the last of them was; empty when none was."""
    taken_over: int = 0
    """How often in the last ten minutes another process came under its group.instance.id; at most ten are counted."""


# What operators control
# ----------------------


@dataclass(frozen=True, slots=True)
class CanaryGuardStatus:
    """`idle`: why it does not count. `baseline`: what it compares with; `figure`: the group's since it began."""

    guard: str
    idle: str
    baseline: float | None
    figure: float | None


@dataclass(frozen=True, slots=True)
class ForecastMove:
    """A partition that changes hands when a plan is made. `source` and `target` are member ids; None: nobody."""

    topic: str
    partition: int
    source: str | None
    target: str | None


@dataclass(frozen=True, slots=True)
class Canary:
    """An assignor on trial. `state`: canary, waiting, promoted or rolled back. Times are epoch milliseconds."""

    state: str
    assignor: str
    former: str
    operator: str
    began_at_ms: int
    until_ms: int
    promotes: bool
    guards: tuple[CanaryGuardStatus, ...]
    lag_floor: int
    rebalances: int
    """Since its own round."""
    ended: str
    """Why it is over."""
    moves: tuple[ForecastMove, ...] | None = None
    """What changes hands for its start; None where that is not known, as of one that runs."""

    @property
    def goes_on(self) -> bool:
        return self.state in ("canary", "waiting")


@dataclass(frozen=True, slots=True)
class GroupBalance:
    """A balance that is on (`mode`: watch or act).

    `idle`: why nothing is measured, judged or done at the moment; empty: it is. `heaviest` carried `ratio` times the
    mean when the group was judged last (empty and None: it has not been). Moves would have paid in `paid` evaluations
    in a row, of the `rounds` that it takes; `resting` partitions moved too recently to move again.
    """

    mode: str
    idle: str
    heaviest: str
    ratio: float | None
    paid: int
    rounds: int
    resting: int


@dataclass(frozen=True, slots=True)
class GroupFence:
    """The newest ownership of a partition, and whoever claimed it (epoch milliseconds). `generation`: in which that
    member had gained the partition.
    """

    topic: str
    partition: int
    member_id: str
    generation: int
    producer_id: int
    producer_epoch: int
    claimed_at_ms: int


@dataclass(frozen=True, slots=True)
class GroupControls:
    """What goes on in a group at an operator's word, beside what is held of it: None and nothing where nothing does.

    `canary`: only one that runs. `fences`: how many partitions have been claimed; `newest_fences`: at most 20 of them,
    those first that were claimed last.
    """

    canary: Canary | None = None
    balance: GroupBalance | None = None
    fences: int = 0
    newest_fences: tuple[GroupFence, ...] = ()


@dataclass(frozen=True, slots=True)
class HeldDrain:
    """`by`: member-id, client-id, instance or host. `left`: partitions that are still to be moved."""

    by: str
    name: str
    until_ms: int | None
    left: int


@dataclass(frozen=True, slots=True)
class HeldPin:
    """A partition that belongs to whoever is named so."""

    topic: str
    partition: int
    name: str
    until_ms: int | None


@dataclass(frozen=True, slots=True)
class ReservedShare:
    """So many partitions that a member left, and that wait for a replacement until then."""

    member_id: str
    client_id: str
    partitions: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class GroupHolds:
    """What operators hold of a group. Times are epoch milliseconds, None where nothing ends by itself.

    `version` is the ledger's number of the last change, 0 when nothing is held. `orphans` (give, keep) is None unless
    the group is frozen, `expect` unless a deploy is on.
    """

    version: int = 0
    orphans: str | None = None
    freeze_until_ms: int | None = None
    expect: int | None = None
    deploy_until_ms: int | None = None
    back: int = 0
    hold_ms: int = 0
    drains: tuple[HeldDrain, ...] = ()
    pins: tuple[HeldPin, ...] = ()
    shares: tuple[ReservedShare, ...] = ()


# All of a group
# --------------


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """`waiting_for` names whom a rebalance waits for, until `waiting_until_ms` (epoch milliseconds, 0: nobody)."""

    group_id: str
    state: str
    protocol_type: str
    assignor: str
    generation: int
    leader: str
    coordinator: str
    members: tuple[MemberDescription, ...]
    waiting_for: tuple[str, ...] = ()
    waiting_until_ms: int = 0
    progress: GroupProgress | None = None
    """None from a node that does not sample its groups, or has not seen this one yet."""
    planned_there: str = ""
    """The assignor that the coordinator runs; empty: a member leads, or there is nobody."""
    assignor_is_set: bool = False
    """An operator wants it so; else the members ask for it."""
    kept_out: str = ""
    """Why an assignor that is set does not count, and because of whom."""
    controls: GroupControls = field(default_factory=GroupControls)
    hidden_topics: int = 0
    """How many of its topics the caller may not describe: they are left out, and so is the group's progress."""
    watched: str = ""
    """What coordinates a group that the node only watches, such as `the Kafka at b1:9092`; empty: Muster does."""

    def owners(self) -> dict[TopicPartition, str]:
        """The member that owns each partition."""
        return {tp: member.member_id for member in self.members for tp in member.assignment}
