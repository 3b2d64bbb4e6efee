"""Who hears of a node's conditions: its log, in one line as they begin and one as they end, and gRPC's health service.

A part that is impaired is NOT_SERVING under its own name. The node as a whole (the empty name) goes on SERVING: probes
restart a node, or send nobody to it, for that name's sake, and what still works must not go down with what does not.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import structlog

from muster.coordinator.runtime.conditions import Condition, Conditions
from muster.coordinator.server.driver.clock import NodeClock

log = structlog.get_logger("muster.node")

ReportServing = Callable[[str, bool], Coroutine[Any, Any, None]]
"""Gets a service's name, and whether it serves."""


class ConditionReporter:
    """The conditions of a node, and what is done when one begins or ends. It lives on the node's loop."""

    def __init__(self, clock: NodeClock, on_change: Callable[[], None] = lambda: None) -> None:
        """`on_change` is called as a condition begins or ends."""
        self._on_change = on_change
        self.conditions = Conditions(clock.now_ms, self._changed)
        self._report: ReportServing | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, report: ReportServing) -> None:
        """From here on the health service hears of impaired parts, beginning with what is known."""
        self._report = report
        for service in self.conditions.impaired():
            self.tell(service, serving=False)

    def tell(self, service: str, *, serving: bool) -> None:
        """Say to the health service whether one part serves."""
        if self._report is not None:
            task = asyncio.get_running_loop().create_task(self._report(service, serving))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _changed(self, condition: Condition, begins: bool) -> None:
        if begins:
            log.warning("condition", name=condition.name, why=condition.sentence)
        else:
            lasted_s = (self.conditions.now_ms() - condition.since_ms) / 1000
            log.warning("condition over", name=condition.name, lasted_s=lasted_s, times=condition.count)
        self._on_change()
        if condition.impairs:
            self.tell(condition.impairs, serving=condition.impairs not in self.conditions.impaired())
