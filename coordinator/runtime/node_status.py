"""The state of this node: conditions that are wrong at the moment, and counters. No clock, no I/O.

A condition has a name, a sentence, a start and a count. A component that finds trouble reports it again as long as it
lasts, and clears it once it is over. The sentence appears in the node's log when it begins and when it is over, in
`muster health`, and in probes. Counters are plain numbers, fed by the engine, shown by an edge, and never reset.
"""

from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from muster.coordinator.core.classic.membership import takeover_sentence
from muster.coordinator.core.model.effects import JoinReply, OffsetCommitReply, Reply
from muster.coordinator.core.model.events import ConsumerHeartbeat, JoinGroup, OffsetCommit
from muster.coordinator.core.model.records import RebalanceDecided, Record
from muster.coordinator.core.model.types import Cause, Outcome
from muster.coordinator.errors import ErrorCode

# Conditions
# ----------

MAX_CONDITIONS = 100
"""Conditions kept by name; what comes beyond that is counted under `MORE`."""

MORE = "more"

GROUPS = "coordinator.rpc.v1.GroupCoordinator"
LOG = "storage.rpc.v1.Broker"
"""Services that a condition can impair, by the names under which probes ask about them."""


@dataclass(frozen=True, slots=True)
class Condition:
    """One trouble. `name` is "<kind>" or "<kind>:<of what>", such as "shard-failed:7".

    `sentence` says what is wrong and what to do. Times are epoch milliseconds; `until_ms` None: until it is cleared.
    """

    name: str
    sentence: str
    since_ms: int
    last_ms: int
    count: int = 1
    impairs: str = ""
    """The service that does not do its work as it should, if there is one."""
    until_ms: int | None = None
    warning: bool = False
    """Nothing is wrong yet: the sentence says what would be, and when. The node is healthy."""


Listener: TypeAlias = Callable[[Condition, bool], None]
"""Gets a condition as it begins (True), and as it ends (False)."""


def ignore_condition(condition: Condition, begins: bool) -> None:
    """The default listener."""


class Conditions:
    """The registry of one node. All methods belong to one thread."""

    def __init__(self, now_ms: Callable[[], int], listener: Listener = ignore_condition) -> None:
        self.now_ms = now_ms
        self._listener = listener
        self._known: dict[str, Condition] = {}
        self._carry: Callable[[], None] | None = None
        self._carrying = False

    def before_each_look(self, carry: Callable[[], None]) -> None:
        """Call it whenever somebody looks: it reports what is known elsewhere and was not carried over yet."""
        self._carry = carry

    def report(
        self, name: str, sentence: str, *, impairs: str = "", lasting_ms: int | None = None, warning: bool = False
    ) -> None:
        """There is trouble: for the first time, or still. The newest sentence counts.

        `lasting_ms`: what nobody will clear (a deadline missed, a stall) is over when it was not reported for so long.
        """
        now_ms = self.now_ms()
        until_ms = None if lasting_ms is None else now_ms + lasting_ms
        if name not in self._known and len(self.current()) >= MAX_CONDITIONS:
            name, until_ms, warning = MORE, None, False
            sentence = f"more than {MAX_CONDITIONS} things are wrong; mend those that are named, and the rest shows"
        before = self._known.get(name)
        if before is None:
            self._known[name] = Condition(name, sentence, now_ms, now_ms, 1, impairs, until_ms, warning)
            self._listener(self._known[name], True)
            return
        count = before.count + 1
        self._known[name] = replace(
            before,
            sentence=sentence,
            last_ms=now_ms,
            count=count,
            impairs=impairs,
            until_ms=until_ms,
            warning=warning,
        )

    def clear(self, name: str) -> None:
        """It is over. What was never reported is no trouble."""
        condition = self._known.pop(name, None)
        if condition is not None:
            self._listener(condition, False)

    def current(self) -> tuple[Condition, ...]:
        """What is wrong now, oldest first. What has run out is over."""
        if self._carry is not None and not self._carrying:
            self._carrying = True
            try:
                self._carry()
            finally:
                self._carrying = False
        now_ms = self.now_ms()
        over = [c.name for c in self._known.values() if c.until_ms is not None and c.until_ms <= now_ms]
        for name in over:
            self.clear(name)
        if MORE in self._known and len(self._known) < MAX_CONDITIONS:
            self.clear(MORE)
        return tuple(sorted(self._known.values(), key=lambda condition: condition.since_ms))

    def sentence(self, name: str) -> str | None:
        """What is told of one condition, while it lasts."""
        known = self._known.get(name)
        return None if known is None else known.sentence

    def impaired(self) -> frozenset[str]:
        """The services that do not do their work as they should."""
        return frozenset(condition.impairs for condition in self.current() if condition.impairs)


# Counters
# --------

FENCING = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)
"""Answers to those who are not, or no longer, who they say."""

MAX_FENCED = 10_000
MAX_REFUSED_COMMITTERS = 10_000
MAX_TAKEN_OVER = 10_000
TIMES_KEPT = 10
"""Of the takeovers of one instance id."""
TAKEOVER_WINDOW_MS = 600_000


class RefusedCommits(NamedTuple):
    """A member's last commits, none of which was taken as a whole: how many in a row, and why the last was not."""

    in_a_row: int
    code: ErrorCode


@dataclass(slots=True)
class Metrics:
    """All times and sizes since the engine was made."""

    requests: Counter[tuple[str, ErrorCode]] = field(default_factory=Counter)
    """Answers released, by (request, code), such as ("Heartbeat", NONE)."""
    refused: int = 0
    """Requests turned away because the inbox was full."""
    rebalances: Counter[Cause] = field(default_factory=Counter)
    """Rebalances decided, by cause."""
    turns: int = 0
    """Turns that had at least one event."""
    events: int = 0
    largest_turn: int = 0
    appends: int = 0
    records: int = 0
    flushes: int = 0
    slow_flushes: int = 0
    """Flushes so slow that deadlines moved by them."""
    loads: int = 0
    failures: int = 0
    """Times that a shard was dropped: a log failure or a bug."""
    stalls: int = 0
    """Times that the node stood still, so that deadlines moved."""
    stalled_ms: int = 0
    """How long, altogether."""
    longest_stall_ms: int = 0
    fenced: dict[tuple[str, ErrorCode], int] = field(default_factory=dict)
    """(group, code) -> requests refused because their sender is not, or no longer, who it says; at most MAX_FENCED."""
    refused_commits: OrderedDict[tuple[str, str], RefusedCommits] = field(default_factory=OrderedDict)
    """(group, member) whose last commit was refused, or a partition of it; of very many those who were refused last."""
    now_ms: int = 0
    """Of the turn that went last."""
    takeovers: OrderedDict[tuple[str, str], deque[int]] = field(default_factory=OrderedDict)
    """(group, instance id) under which a second process came, and when; of very many those that were last."""
    held: int = 0
    """Replies that wait, right now, for their records to be durable."""

    def fence(self, group_id: str, code: ErrorCode) -> None:
        """Count one of these refusals. Groups come and go: beyond so many no more are counted."""
        if (group_id, code) in self.fenced or len(self.fenced) < MAX_FENCED:
            self.fenced[group_id, code] = self.fenced.get((group_id, code), 0) + 1

    def commit_answered(self, request: OffsetCommit, reply: OffsetCommitReply) -> None:
        """Count a commit that a member was refused; one that was taken ends the row."""
        code = reply.code or next((code for code in reply.partitions.values() if code), ErrorCode.NONE)
        key = (request.group_id, request.member_id)
        before = self.refused_commits.pop(key, None) if self.refused_commits else None
        if code and request.member_id:
            self.refused_commits[key] = RefusedCommits(1 + (before.in_a_row if before else 0), code)
            if len(self.refused_commits) > MAX_REFUSED_COMMITTERS:
                self.refused_commits.popitem(last=False)

    def instance_answered(self, request: JoinGroup | ConsumerHeartbeat, reply: Reply) -> None:
        """Count whoever came under an instance id that another process had: it took its place, or was refused.

        A calm takeover is no rebalance and leaves no entry in the ledger, so that nothing else tells of it.
        """
        instance_id = request.group_instance_id
        detail = reply.cause_detail if isinstance(reply, JoinReply) and not request.member_id else ""
        took = takeover_sentence(instance_id or "") in detail
        if instance_id and (took or reply.code is ErrorCode.UNRELEASED_INSTANCE_ID):
            key = (request.group_id, instance_id)
            times = self.takeovers.pop(key, None) or deque(maxlen=TIMES_KEPT)
            times.append(self.now_ms)
            self.takeovers[key] = times
            if len(self.takeovers) > MAX_TAKEN_OVER:
                self.takeovers.popitem(last=False)

    def taken_over(self, group_id: str, instance_id: str) -> int:
        """How often in the last ten minutes another process came under this id; at most TIMES_KEPT are counted."""
        times = self.takeovers.get((group_id, instance_id), ())
        return sum(self.now_ms - at_ms <= TAKEOVER_WINDOW_MS for at_ms in times)

    def decided(self, records: Iterable[Record]) -> None:
        """Count the rebalances among what was written."""
        for record in records:
            if (
                isinstance(record, RebalanceDecided)
                and not record.amends
                and record.entry.outcome is not Outcome.MEMBER_CHANGED
            ):
                self.rebalances[record.entry.cause] += 1

    def stood_still(self, stalled_ms: int) -> None:
        self.stalls += 1
        self.stalled_ms += stalled_ms
        self.longest_stall_ms = max(self.longest_stall_ms, stalled_ms)
