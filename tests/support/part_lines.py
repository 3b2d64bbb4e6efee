"""What `pytest --parts` prints in place of dots: a line for each part of the suite, as soon as it is done."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.parts import PARTS, Part, part_of


@dataclass
class Progress:
    part: Part
    tests: int = 0
    done: int = 0
    seconds: float = 0.0
    outcomes: Counter[str] = field(default_factory=Counter)

    def line(self) -> str:
        counts = [f"{number} {what}" for what, number in sorted(self.outcomes.items(), reverse=True)]
        if left := self.tests - self.done:
            counts.append(f"{left} not run")
        return f"{self.part.name:18} {', '.join(counts)} in {self.seconds:.0f} s: {self.part.covers}"


class PartLines:
    """Counts what is reported, by whichever process, and prints a part's line with its last test.

    A part's seconds are those of its tests, one after the other; with two processes two of them pass at once.
    """

    def __init__(self, terminal: Any) -> None:
        self._terminal = terminal
        self._parts = {part.name: Progress(part) for part in PARTS}
        self._counted = False

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._count(item.nodeid for item in session.items)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: object, ids: list[str]) -> None:
        self._count(ids)

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """No dots; failures, which pytest shows in full at the end, keep their letter."""
        if report.passed and report.when == "call":
            return "passed", "", "PASSED"
        return ("skipped", "", "SKIPPED") if report.skipped and not hasattr(report, "wasxfail") else None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        progress = self._parts[part_of(report.nodeid).name]
        progress.seconds += report.duration
        if report.when == "call" or not report.passed:
            progress.outcomes[report.outcome] += 1

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        progress = self._parts[part_of(nodeid).name]
        progress.done += 1
        if progress.done == progress.tests:
            self._print(progress)

    def pytest_terminal_summary(self) -> None:
        for progress in self._parts.values():
            if progress.done < progress.tests:
                self._print(progress)

    def _count(self, tests: Iterable[str]) -> None:
        """Every process collects the same."""
        if not self._counted:
            for test in tests:
                self._parts[part_of(test).name].tests += 1
                self._counted = True

    def _print(self, progress: Progress) -> None:
        self._terminal.ensure_newline()
        self._terminal.write_line(progress.line())
