"""Who did what, who was refused what, who could not log in: one line each, to `audit.log` or the node's own log.

A caller that is refused a thousand times a second must neither fill the disk nor slow the node: of one kind a few
lines are written in ten seconds, then one that says how many more there were. No secret gets in, only names. No
caller waits for the disk. Failed logins are also counted by listener and address.
"""

import asyncio
import json
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Lock
from typing import Any, Final, TextIO, TypeAlias

import structlog

from muster.coordinator.edge.background_tasks import RestartedTask
from muster.coordinator.edge.listener_base import OperatorAction
from muster.coordinator.security.access_model import Identity, Operation, ResourceType
from muster.coordinator.security.login import MOST_ADDRESSES_COUNTED
from muster.storage.errors import StorageError

WINDOW_S: Final = 10.0
MOST_REFUSALS: Final = 5
MOST_ACTS: Final = 1_000
"""Lines of one kind in a window; acts of administration are told one by one unless a program does them in a loop."""
MOST_KINDS: Final = 256
"""Kinds in a window; whatever comes beyond them is one kind."""
MOST_CHARACTERS: Final = 500
"""Of one value: clients choose names."""
MOST_WAITING: Final = 20_000
"""Lines that wait for the file."""
TURN_S: Final = 0.5

Line: TypeAlias = Mapping[str, Any]
Write: TypeAlias = Callable[[Line], None]

log = structlog.get_logger("muster.audit")


@dataclass(slots=True)
class AuditCounter:
    since_s: float
    line: Line
    times: int = 0


class AuditLog:
    """What the doors tell. Any thread; nothing waits for a disk."""

    def __init__(self, write: Write, clock: Callable[[], float] = time.monotonic) -> None:
        self._write = write
        self._clock = clock
        self._lock = Lock()
        self._seen: dict[object, AuditCounter] = {}

    def refused(self, who: Identity, door: str, operation: Operation, kind: ResourceType, name: str, api: str) -> None:
        """`who` asked for `api` through `door`, and may not do this to that."""
        self._write_line(
            (who.principal, who.host, door, operation, kind, api),
            MOST_REFUSALS,
            {
                "event": "refused",
                **format_principal(who),
                "door": door,
                "api": api,
                "operation": operation.name,
                "resource_type": kind.name,
                "resource": name,
                "outcome": "denied",
            },
        )

    def acted(self, who: Identity, door: str, action: str, of: str, outcome: str = "done", **more: str) -> None:
        """`who` changed something that others rely on, or tried to. `of` names what; no value is told."""
        line = {
            "event": "admin",
            **format_principal(who),
            "door": door,
            "action": action,
            "resource": of,
            "outcome": outcome,
        }
        kind = ("acted", who.principal, who.host, door, action, outcome)
        self._write_line(kind, MOST_ACTS, line | {name: value for name, value in more.items() if value})

    def action(self, action: OperatorAction) -> None:
        """The same, of what the doors' tables watch (`muster.coordinator.edge.listener_base`)."""
        outcome = f"refused: {action.refused}" if action.refused else "done"
        who = Identity(action.principal, action.host)
        self.acted(who, action.door, action.what, action.of, outcome, software=action.software, reason=action.reason)

    def login_failed(self, host: str, door: str, mechanism: str, why_class: str) -> None:
        """Somebody at this address could not show who they are. Which name was tried is not told: people type
        passwords there."""
        line = {"event": "login failed", "host": host, "door": door, "mechanism": mechanism, "why": why_class}
        self._write_line(("login", host, door, mechanism, why_class), MOST_REFUSALS, line)

    def sum_up(self, *, all_of_it: bool = False) -> None:
        """Tell how many more there were, of kinds whose window is over."""
        now_s, over = self._clock(), []
        with self._lock:
            for kind, seen in list(self._seen.items()):
                if all_of_it or now_s - seen.since_s >= WINDOW_S:
                    over.append((kind, self._seen.pop(kind)))
        for kind, seen in over:
            most = MOST_ACTS if isinstance(kind, tuple) and kind[0] == "acted" else MOST_REFUSALS
            if seen.times > most:
                self._write({**seen.line, "more": f"and {seen.times - most:,} more of this kind in {WINDOW_S:.0f} s"})

    def _write_line(self, kind: object, most: int, line: Line) -> None:
        with self._lock:
            if kind not in self._seen and len(self._seen) >= MOST_KINDS:
                kind, most, line = line["event"], MOST_REFUSALS, {"event": line["event"], "who": "others"}
            seen = self._seen.get(kind)
            fresh = seen is not None and self._clock() - seen.since_s < WINDOW_S
        if not fresh:
            self.sum_up()
        with self._lock:
            seen = self._seen.setdefault(kind, AuditCounter(self._clock(), line))
            seen.times += 1
            tell = seen.times <= most
        if tell:
            self._write({name: truncate_value(value) for name, value in line.items()})


def format_principal(who: Identity) -> dict[str, str]:
    return {"principal": str(who.principal), "host": who.host, **({"token": who.token_id} if who.token_id else {})}


def truncate_value(value: object) -> object:
    if isinstance(value, str) and len(value) > MOST_CHARACTERS:
        return value[:MOST_CHARACTERS] + "..."
    return value


def write_to_node_log(line: Line) -> None:
    """Into the node's own log, as logger `muster.audit`."""
    rest = {name: value for name, value in line.items() if name != "event"}
    log.info(str(line["event"]), **rest)


class AuditFile:
    """`audit.log`: lines wait in memory for half a second at most, and a thread appends them.

    A file that was moved away (logrotate) is made anew. What cannot be written goes into the node's log instead.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._lock = Lock()
        self._waiting: list[str] = []
        self._left_out = 0
        self._file: TextIO | None = None

    def open(self) -> None:
        """Blocks. Raises StorageError."""
        try:
            self._file = self._opened()
        except OSError as error:
            raise StorageError(f"audit.log is {str(self._path)!r}, which cannot be written: {error}") from error

    def write(self, line: Line) -> None:
        stamped = {"timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"), **line}
        text = json.dumps(stamped, ensure_ascii=False, separators=(",", ":"))
        with self._lock:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(text)
            else:
                self._left_out += 1

    def flush(self) -> None:
        """Append what waits. Blocks."""
        with self._lock:
            lines, self._waiting = self._waiting, []
            left_out, self._left_out = self._left_out, 0
        if left_out:
            lines.append(json.dumps({"event": f"{left_out} lines were left out: the disk is too slow for them"}))
        if not lines:
            return
        try:
            if self._file is None or self._moved(self._file):
                if self._file is not None:
                    self._file.close()
                self._file = self._opened()
            self._file.write("\n".join(lines) + "\n")
            self._file.flush()
        except OSError as error:
            self._file = None
            log.error("audit.log cannot be written", file=str(self._path), why=str(error))
            for text in lines:
                log.info("audit", line=text)

    def close(self) -> None:
        self.flush()
        if self._file is not None:
            self._file.close()

    def _opened(self) -> TextIO:
        """Nobody but the node's user reads who did what."""
        return os.fdopen(os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600), "a", encoding="utf-8")

    def _moved(self, file: TextIO) -> bool:
        try:
            return os.stat(self._path).st_ino != os.fstat(file.fileno()).st_ino
        except FileNotFoundError:
            return True


class AuditTrail:
    """An Audit with where it writes to, and the turn of every half second. On the node's loop."""

    def __init__(self, path: str) -> None:
        self._file = AuditFile(Path(path)) if path else None
        self.audit = AuditLog(write_to_node_log if self._file is None else self._file.write)
        self._turning = RestartedTask("audit log", self._turn)

    async def start(self) -> None:
        """Raises StorageError."""
        if self._file is not None:
            await asyncio.to_thread(self._file.open)
        self._turning.start()

    async def stop(self) -> None:
        await self._turning.stop()
        self.audit.sum_up(all_of_it=True)
        if self._file is not None:
            await asyncio.to_thread(self._file.close)

    async def _turn(self) -> None:
        while True:
            await asyncio.sleep(TURN_S)
            self.audit.sum_up()
            if self._file is not None:
                await asyncio.to_thread(self._file.flush)


# Failed logins
# -------------

OTHERS = "others"


RECENT_S = 600.0
MOST_RECENT = 1_000


class LoginFailures:
    """`by_address`: how many, by door and address."""

    def __init__(self, audit: AuditLog, clock: Callable[[], float] = time.monotonic) -> None:
        self._audit = audit
        self._clock = clock
        self.by_address: dict[tuple[str, str], float] = {}
        self._recent: deque[tuple[float, str, str, str]] = deque(maxlen=MOST_RECENT)

    def count_failure(self, host: str, door: str, mechanism: str, why: str) -> None:
        known = (door, host) in self.by_address or len(self.by_address) < MOST_ADDRESSES_COUNTED
        key = door, host if known else OTHERS
        self.by_address[key] = self.by_address.get(key, 0) + 1
        self._recent.append((self._clock(), *key, why))
        self._audit.login_failed(host, door, mechanism, why)

    def recent(self) -> list[tuple[str, str, int, str]]:
        """(door, address, how many, why the newest failed) of the last ten minutes, most first. For any thread."""
        since_s = self._clock() - RECENT_S
        counts: Counter[tuple[str, str]] = Counter()
        newest: dict[tuple[str, str], str] = {}
        for at_s, door, address, why in tuple(self._recent):
            if at_s >= since_s:
                counts[door, address] += 1
                newest[door, address] = why
        return [(*key, count, newest[key]) for key, count in counts.most_common()]
