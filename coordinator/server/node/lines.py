"""One line in the log for each rebalance, each action of an operator, each start: what `journalctl` is asked for."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

import structlog

from muster.coordinator.config import Settings, known_settings
from muster.coordinator.core.effects import GroupChanged
from muster.coordinator.core.types import Outcome, RebalanceEntry
from muster.coordinator.edge.audit import ACTIONS, Action, watched
from muster.coordinator.server.dispatch import Method

MOST_UNSETTLED: Final = 10_000
"""Rebalances that are decided, and wait to be told until they have settled."""

log = structlog.get_logger("muster.node")


class RebalanceLines:
    """Tells each rebalance once: when it has settled, or at once when nothing is open. On the node's loop.

    One that never settles is told when its group has the next one decided, or the node stops: with what is known.
    """

    def __init__(self) -> None:
        self._unsettled: dict[str, RebalanceEntry] = {}

    def noticed(self, notice: GroupChanged) -> None:
        entry = notice.entry
        if entry is None:
            return
        unsettled = self._unsettled.pop(notice.group_id, None)
        if unsettled is not None and unsettled.number == entry.number:
            tell(notice.group_id, entry)
            return
        if unsettled is not None:
            tell(notice.group_id, unsettled)
        if waits(entry):
            if len(self._unsettled) >= MOST_UNSETTLED:
                oldest = next(iter(self._unsettled))
                tell(oldest, self._unsettled.pop(oldest))
            self._unsettled[notice.group_id] = entry
        elif not settles(entry):
            tell(notice.group_id, entry)

    def close(self) -> None:
        for group_id, entry in self._unsettled.items():
            tell(group_id, entry)
        self._unsettled.clear()


def waits(entry: RebalanceEntry) -> bool:
    """Whether partitions are still on their way to their new owners."""
    return entry.outcome is Outcome.COMPLETED and any(move.target and move.unowned_ms < 0 for move in entry.moves)


def settles(entry: RebalanceEntry) -> bool:
    """Whether this is the second word on an entry, of which the first was enough."""
    return bool(entry.phases) and entry.phases[-1].name in ("settle", "reconcile", "start")


def tell(group_id: str, entry: RebalanceEntry) -> None:
    culprit = entry.culprit_client_id or entry.culprit
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


def audited(table: Mapping[str, Method]) -> dict[str, Method]:
    """The same methods, those by which operators change something watched."""
    return {
        path: replace(method, handler=watched(method.handler, path.rpartition("/")[2], "grpc", tell_action))
        if path.rpartition("/")[2] in ACTIONS
        else method
        for path, method in table.items()
    }


def tell_action(action: Action) -> None:
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


def tell_start(settings: Settings) -> None:
    """With the settings that differ from their defaults."""
    log.info("started", **dict(differing(settings)))


def differing(settings: Settings) -> Iterable[tuple[str, str]]:
    """Setting and value. Addresses and paths are no secrets, and no setting is one."""
    fields = {field.alias or name: (name, field) for name, field in type(settings).model_fields.items()}
    for alias in known_settings():
        name, field = fields[alias]
        value = getattr(settings, name)
        default = field.get_default(call_default_factory=True, validated_data={})
        if value != default:
            yield alias, str(value).lower() if isinstance(value, bool) else str(value)
