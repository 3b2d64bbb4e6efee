"""One line in the log for each rebalance, each action of an operator, each start: what `journalctl` is asked for."""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Final, TypeAlias

import structlog

from muster.coordinator.config import Address, Settings, known_settings
from muster.coordinator.config.addresses import format_address
from muster.coordinator.config.listener_security import find_open_listeners
from muster.coordinator.core.model.effects import GroupChanged
from muster.coordinator.core.model.types import AUDIT_OUTCOMES, Outcome, RebalanceEntry
from muster.coordinator.edge.audit import ACTIONS, OperatorAction, ReportAction, report_actions
from muster.coordinator.server.rpc_dispatch import ServiceMethod

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
            self._tell(notice.group_id, entry)
            return
        if unsettled is not None:
            self._tell(notice.group_id, unsettled)
        if is_unsettled(entry):
            if len(self._unsettled) >= MOST_UNSETTLED:
                oldest = next(iter(self._unsettled))
                self._tell(oldest, self._unsettled.pop(oldest))
            self._unsettled[notice.group_id] = entry
        elif not is_settlement(entry):
            self._tell(notice.group_id, entry)

    def close(self) -> None:
        self._write(len(self._due))
        for group_id, entry in self._unsettled.items():
            log_rebalance(group_id, entry)
        self._unsettled.clear()

    def _tell(self, group_id: str, entry: RebalanceEntry) -> None:
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
        took=f"{sum(phase.duration_ms for phase in entry.phases) / 1000:.3f}s",
        generation=entry.generation,
        assignor=entry.protocol_name,
        members=len(entry.members),
        moved=len(entry.moves),
        unowned_s=round(max(entry.unowned_partition_ms, 0) / 1000, 1),
    )


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
    for name, address, why in find_open_listeners(settings.doors, settings.authorizer):
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
