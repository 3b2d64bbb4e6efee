"""What an operator learns of a node: conditions, failures, rebalances, operators' actions and starts.

A condition is one sentence, what is wrong and what to do; it has a line as it begins and one as it ends, and gRPC's
health service hears of it. An impaired part is NOT_SERVING under its own name; the node as a whole (the empty name)
stays SERVING: probes restart a node, or route around it, because of that name, and what still works must not go
down with what does not. Troubles of the log (a damaged segment, a full disk) are carried over on the loop.

A failure gets a line, and a condition for as long as it lasts: a shard that failed or could not read some records, a
stall of the event loop, an assignor that does not do its work, and the event that broke a shard, as a line that a
test can repeat. Each rebalance gets one line: when it has settled, or immediately when nothing is open.
"""

import re
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Protocol, TypeAlias

import structlog

from muster.coordinator.config import Address, Settings, known_settings
from muster.coordinator.config.listener_security import find_open_listeners
from muster.coordinator.config.values import format_address
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.events import Planned
from muster.coordinator.core.model.types import AUDIT_OUTCOMES, Outcome, RebalanceEntry, RebalanceSource
from muster.coordinator.core.requests.shard_diary import WORTH_A_NOTE_MS
from muster.coordinator.edge.background_tasks import SupervisedTasks
from muster.coordinator.edge.listener_base import ACTIONS, OperatorAction, ReportAction, report_actions
from muster.coordinator.runtime.node_status import GROUPS, LOG, Condition, Conditions
from muster.coordinator.runtime.replay import LoadReport
from muster.coordinator.runtime.shards import ShardStatus, not_served_sentence
from muster.coordinator.server.driver.clock import NodeClock
from muster.coordinator.server.rpc_dispatch import ServiceMethod

# Rebalances, actions, starts
# ---------------------------

MOST_UNSETTLED: Final = 10_000
"""Rebalances that are decided, and wait to be told until they have settled."""

TOGETHER_S: Final = 0.05
"""Lines of so long are written together: whoever waits for a rebalance waits for no line, and one alone costs more."""
LINES_PER_TURN: Final = 16
"""Lines that are written before others have their turn."""

CallLater: TypeAlias = Callable[[float, Callable[[], None]], object]
"""Of seconds and what to do then, as a loop's `call_later`."""

log = structlog.get_logger("muster.node")


def run_immediately(delay_s: float, work: Callable[[], None]) -> None:
    work()


class RebalanceLines:
    """Tells each rebalance once: when it has settled, or at once when nothing is open. On the node's loop.

    One that never settles is told when its group has the next one decided, or the node stops: with what is known.
    """

    def __init__(self, later: CallLater = run_immediately) -> None:
        self._later = later
        self._unsettled: dict[str, RebalanceEntry] = {}
        self._due: deque[tuple[str, RebalanceEntry]] = deque()

    def noticed(self, notice: GroupChanged) -> None:
        entry = notice.entry
        if entry is None:
            return
        unsettled = self._unsettled.pop(notice.group_id, None)
        if unsettled is not None and unsettled.number == entry.number:
            self._enqueue_entry(notice.group_id, entry)
            return
        if unsettled is not None:
            self._enqueue_entry(notice.group_id, unsettled)
        if entry.moves and is_unsettled(entry):
            if len(self._unsettled) >= MOST_UNSETTLED:
                oldest = next(iter(self._unsettled))
                self._enqueue_entry(oldest, self._unsettled.pop(oldest))
            self._unsettled[notice.group_id] = entry
        elif not is_settlement(entry):
            self._enqueue_entry(notice.group_id, entry)

    def close(self) -> None:
        self._write(len(self._due))
        for group_id, entry in self._unsettled.items():
            log_rebalance(group_id, entry)
        self._unsettled.clear()

    def _enqueue_entry(self, group_id: str, entry: RebalanceEntry) -> None:
        self._due.append((group_id, entry))
        if len(self._due) == 1:
            self._later(TOGETHER_S, self._write)
        elif len(self._due) > MOST_UNSETTLED:
            log_rebalance(*self._due.popleft())

    def _write(self, most: int = LINES_PER_TURN) -> None:
        for _ in range(min(most, len(self._due))):
            log_rebalance(*self._due.popleft())
        if self._due:
            self._later(0, self._write)


def is_unsettled(entry: RebalanceEntry) -> bool:
    """Whether partitions are still on their way to their new owners."""
    return entry.outcome is Outcome.COMPLETED and any(move.target and move.unowned_ms < 0 for move in entry.moves)


def is_settlement(entry: RebalanceEntry) -> bool:
    """Whether this is the second word on an entry, of which the first was enough."""
    return bool(entry.phases) and entry.phases[-1].name in ("settle", "reconcile", "start")


def log_rebalance(group_id: str, entry: RebalanceEntry) -> None:
    culprit = entry.culprit_client_id or entry.culprit
    if entry.outcome in AUDIT_OUTCOMES:
        log.info(entry.outcome.name.lower(), group=group_id, entry=entry.number, by=culprit, what=entry.detail)
        return
    log.info(
        "rebalance",
        group=group_id,
        rebalance=entry.number,
        cause=entry.cause.name.lower(),
        culprit=f"{culprit}@{entry.culprit_client_host}" if entry.culprit_client_host else culprit,
        outcome=entry.outcome.name.lower(),
        **({"took": took_seconds(entry)} if entry.phases or entry.source is not RebalanceSource.WATCHED else {}),
        generation=entry.generation,
        assignor=planning_assignor(entry),
        **({"waited_for": waited} if (waited := longest_wait_words(entry)) else {}),
        members=len(entry.members),
        moved=len(entry.moves),
        unowned_s=round(max(entry.unowned_partition_ms, 0) / 1000, 1),
    )


def took_seconds(entry: RebalanceEntry) -> str:
    return f"{sum(phase.duration_ms for phase in entry.phases) / 1000:.3f}s"


COORDINATOR_PLANS: Final = ("remote", "setting", "target", "central")
"""Sources of a snapshot from which the coordinator made the plan itself."""
ASSIGNOR: Final = re.compile(r'"assignor":"([^"\\]+)"')


def planning_assignor(entry: RebalanceEntry) -> str:
    """What made the plan: the members' protocol, unless the coordinator planned by another one.

    The snapshot may be long; it is not decoded for one word of it.
    """
    if entry.snapshot_source not in COORDINATOR_PLANS:
        return entry.protocol_name
    found = ASSIGNOR.search(entry.snapshot_json)
    return found[1] if found else entry.protocol_name


def longest_wait_words(entry: RebalanceEntry) -> str:
    """Who was waited for longest, and how that ended; empty when nobody was."""
    waits = (wait for phase in entry.phases for wait in phase.waits)
    longest = max(waits, key=lambda wait: wait.after_ms, default=None)
    if longest is None:
        return ""
    return f"{longest.client_id or longest.member_id} ({longest.came.name.lower()}, {longest.after_ms / 1000:.3f}s)"


def report_operator_calls(table: Mapping[str, ServiceMethod], tell: ReportAction) -> dict[str, ServiceMethod]:
    """The same methods, those by which operators change something watched."""
    return {
        path: replace(method, handler=report_actions(method.handler, path.rpartition("/")[2], "grpc", tell))
        if path.rpartition("/")[2] in ACTIONS
        else method
        for path, method in table.items()
    }


def log_action(action: OperatorAction) -> None:
    log.info(
        "admin",
        action=action.what,
        of=action.of,
        by=action.host,
        software=action.software,
        door=action.door,
        refused=action.refused,
        **({"reason": action.reason} if action.reason else {}),
    )


def log_listening(bound: Address, kafka: Address | None, http: Address | None, node_id: int) -> None:
    """By which doors the node can be reached, now that everything is loaded."""
    beside = {"kafka": kafka, "http": http}
    doors = {name: format_optional_address(address) for name, address in beside.items() if address is not None}
    log.info("listening", host=bound.host, port=bound.port, **doors, node_id=node_id)


def format_optional_address(address: Address | None) -> str:
    """HOST:PORT; empty for a door that is not there."""
    return "" if address is None else format_address(*address)


def log_start(settings: Settings) -> None:
    """With the settings that differ from their defaults, and what is open to whom."""
    log.info("started", **dict(changed_settings(settings)))
    for name, address, why in find_open_listeners(settings.listener_addresses, settings.authorizer):
        log.warning("open to others", listener=name, address=address, why=why)


def changed_settings(settings: Settings) -> Iterable[tuple[str, str]]:
    """Setting and value. What is a secret shows asterisks, what was read elsewhere as it was written."""
    fields = {field.alias or name: (name, field) for name, field in type(settings).model_fields.items()}
    for alias in known_settings():
        name, field = fields[alias]
        value = getattr(settings, name)
        default = field.get_default(call_default_factory=True, validated_data={})
        if value != default:
            yield alias, settings.shown(alias, name)
    for alias, text in settings.told_of_listeners().items():
        yield alias, settings.references.get(alias, text)


# Conditions
# ----------

ReportServing = Callable[[str, bool], Coroutine[Any, Any, None]]
"""Gets a service's name, and whether it serves."""


class ConditionReporter:
    """The conditions of a node, and what is done when one begins or ends. It lives on the node's loop."""

    def __init__(self, clock: NodeClock, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called as a condition begins or ends."""
        self._on_change = on_change
        self.conditions = Conditions(clock.now_ms, self._changed)
        self._report: ReportServing | None = None
        self._tasks = SupervisedTasks()

    def start(self, report: ReportServing) -> None:
        """From here on the health service hears of impaired parts, beginning with what is known."""
        self._report = report
        for service in self.conditions.impaired():
            self.report_health(service, serving=False)

    def report_health(self, service: str, *, serving: bool) -> None:
        """Say to the health service whether one part serves."""
        if self._report is not None:
            self._tasks.start(self._report(service, serving), "report to the health service")

    def _changed(self, condition: Condition, begins: bool) -> None:
        if begins:
            log.warning("condition", name=condition.name, why=condition.sentence)
        else:
            lasted_s = (self.conditions.now_ms() - condition.since_ms) / 1000
            log.warning("condition over", name=condition.name, lasted_s=lasted_s, times=condition.count)
        self._on_change()
        if condition.impairs:
            self.report_health(condition.impairs, serving=condition.impairs not in self.conditions.impaired())


# Shards, room, upkeep
# --------------------

UPKEEP_TROUBLE_MS = 600_000
"""The log's periodic work counts as failing until none of it has failed for so long: retention is looked at seldom."""


def update_shard_condition(conditions: Conditions, shard: int, status: ShardStatus, why: str) -> None:
    name = f"shard-failed:{shard}"
    if status is ShardStatus.FAILED:
        conditions.report(name, not_served_sentence(shard, why), impairs=GROUPS)
    else:
        conditions.clear(name)


def update_starved_condition(conditions: Conditions, starved: Mapping[int, str]) -> None:
    """`starved`: the shards whose log has no room, and what it said."""
    if not starved:
        conditions.clear("groups-starved")
        return
    shards = ", ".join(str(shard) for shard in sorted(starved))
    conditions.report(
        "groups-starved",
        f"nothing can be written for the groups of shards {shards}: {next(iter(starved.values()))} Commits and joins "
        "are refused meanwhile, heartbeats and reads go on; free some space, no restart is needed",
        impairs=GROUPS,
    )


def update_disk_room_condition(conditions: Conditions, shortage: str) -> None:
    """`shortage`: how little room the disk has left; empty while there is enough."""
    if shortage:
        conditions.report("disk-nearly-full", shortage)
    else:
        conditions.clear("disk-nearly-full")


def update_write_condition(conditions: Conditions, refusal: str, before: str) -> None:
    """`refusal`: what the system said when something was to be written, `before` what it said the last time; empty: it
    took it, and so much as the log was last refused. What the log is refused meanwhile is the log's to tell
    (`LogConditions`).
    """
    if refusal:
        conditions.report("disk-full", refusal, impairs=LOG)
    elif before:
        conditions.clear("disk-full")


def update_upkeep_condition(conditions: Conditions, complaints: Sequence[str]) -> None:
    for complaint in complaints:
        sentence = f"retention, checkpoints, flushes by age or compaction fail and are tried again: {complaint}"
        conditions.report("upkeep-failing", sentence, impairs=LOG, lasting_ms=UPKEEP_TROUBLE_MS)


def update_lost_explanations_condition(conditions: Conditions, losses: Sequence[str]) -> None:
    for loss in losses:
        conditions.report("explanations-lost", loss, lasting_ms=UPKEEP_TROUBLE_MS)


# Failures
# --------

LATE_MS = 60_000
"""So long after it stood still the node counts as late."""

TASK_TROUBLE_MS = 600_000
"""A background task counts as ending until it has not ended for so long."""

ASSIGNOR_TROUBLE_MS = 600_000
"""An assignor counts as failing until it makes a plan, or until nobody has asked it for one for so long."""


def report_status(conditions: Conditions, shard: int, status: ShardStatus, why: str, report: LoadReport) -> None:
    """A shard that failed, or that serves although some of its records could not be read, is worth a warning."""
    damaged = status is ShardStatus.ACTIVE and report.malformed > 0
    worth_it = log.info if why and why == report.orphans else log.debug
    tell = log.warning if damaged or status is ShardStatus.FAILED else worth_it
    tell("shard", number=shard, status=status.value, why=why)
    update_shard_condition(conditions, shard, status, why)


def report_stall(conditions: Conditions, stalled_ms: int, computing_ms: int) -> None:
    """What an operator reads when the node was late. Nobody was expired for it, but nobody was answered either."""
    if stalled_ms < WORTH_A_NOTE_MS:
        log.debug("the node stood still", stalled_ms=stalled_ms, computing_ms=computing_ms)
        return
    busy = "it was computing" if computing_ms > stalled_ms // 2 else "it was stopped, or waited for disk or machine"
    told = f"the node stood still for {stalled_ms / 1000:.1f} s; nobody was expired for it"
    log.warning(told, why=busy, computing_ms=computing_ms)
    conditions.report("loop-late", f"{told}; {busy}", lasting_ms=LATE_MS)


def report_plan(conditions: Conditions, plan: Planned) -> None:
    """Whether the group's assignor does its work is told once when that changes, and by `muster health`.

    The traceback of a plugin is in the log only, with each failure.
    """
    name = f"assignor-failing:{plan.group_id}"
    if plan.trace:
        log.warning("an assignor failed", group=plan.group_id, error=plan.error, trace=plan.trace)
    if plan.trial:
        return
    if plan.error:
        conditions.report(name, f"group {plan.group_id!r}: {plan.error}", lasting_ms=ASSIGNOR_TROUBLE_MS)
    else:
        conditions.clear(name)


def report_task_failure(conditions: Conditions, name: str, error: BaseException, again: bool) -> None:
    """A background task of the node that ended by a mistake of the program; see `TaskFailures`."""
    outcome = "and was restarted" if again else "and its work is not done"
    conditions.report(
        f"task-ended:{name}",
        f"the background task {name!r} ended unexpectedly {outcome} ({error!r}); please report the traceback in the "
        "node's log",
        lasting_ms=TASK_TROUBLE_MS,
    )


def report_contained(what: str, error: Exception) -> None:
    """Something unexpected that concerns one group only."""
    log.error("one group's work failed", what=what, exc_info=error)


def report_bug(event: str, error: Exception) -> None:
    """The event that broke a shard, as a line that a test can repeat."""
    log.error("a bug stopped a shard; it is reloaded from its log", script=event, exc_info=error)


# Troubles of the log
# -------------------

PASSING_MS = 60_000
"""What is not met again for so long is over: a read that works. Of room that is there again the node knows sooner."""

DISK_FULL = "disk-full"


class LogTrouble(Protocol):
    """One trouble, as `muster.storage.errors` tells of it."""

    @property
    def name(self) -> str: ...

    @property
    def sentence(self) -> str: ...

    @property
    def times(self) -> int: ...

    @property
    def passing(self) -> bool: ...

    @property
    def wanted(self) -> int: ...


class LogTroubleSource(Protocol):
    """Those of a broker."""

    def current(self) -> Sequence[LogTrouble]: ...


class LogConditions:
    """Carries the troubles of a broker's logs over to the conditions; called every now and then, on the loop."""

    def __init__(self, troubles: LogTroubleSource, conditions: Conditions) -> None:
        self._troubles = troubles
        self._conditions = conditions
        self._told: dict[str, int] = {}
        self._wanted = 0

    def still_wanted(self) -> int:
        """How many bytes found no room when somebody last wanted to write; 0 when that is over, or goes on."""
        full = next((trouble for trouble in self._troubles.current() if trouble.name == DISK_FULL), None)
        return self._wanted if full is not None and full.times == self._told.get(DISK_FULL) else 0

    def found_room(self) -> None:
        """What had found no room would find it now."""
        self._wanted = 0

    def carry(self) -> None:
        """Report what is new or was met again, clear what is no more."""
        current = self._troubles.current()
        for trouble in current:
            if trouble.times != self._told.get(trouble.name):
                if trouble.name == DISK_FULL:
                    self._wanted = max(self._wanted, trouble.wanted, 1)
                lasting_ms = PASSING_MS if trouble.passing else None
                self._conditions.report(trouble.name, trouble.sentence, impairs=LOG, lasting_ms=lasting_ms)
        for name in self._told.keys() - {trouble.name for trouble in current}:
            self._conditions.clear(name)
        self._told = {trouble.name: trouble.times for trouble in current}
