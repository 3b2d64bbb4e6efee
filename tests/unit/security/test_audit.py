"""The audit: what is told, how much of it, and where to."""

import asyncio
import json
from pathlib import Path

import pytest

from muster.coordinator.edge import background_tasks
from muster.coordinator.edge.listener_base import OperatorAction
from muster.coordinator.security.access_model import Identity, Operation, Principal, ResourceType
from muster.coordinator.server.security import audit_log
from muster.coordinator.server.security.audit_log import (
    MOST_KINDS,
    MOST_REFUSALS,
    AuditFile,
    AuditLog,
    AuditTrail,
    Line,
)
from muster.storage.errors import StorageError

BOB = Identity(Principal("User", "bob"), "10.0.0.7", "TOKEN", token_id="t1")


class Said:
    """An audit with a clock of ours, and what it wrote."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.now_s = 0.0
        self.audit = AuditLog(self.lines.append, lambda: self.now_s)

    def refuse(self, times: int = 1, who: Identity = BOB, name: str = "orders") -> None:
        for _ in range(times):
            self.audit.refused(who, "grpc", Operation.READ, ResourceType.TOPIC, name, "Fetch")


def test_a_refusal_says_who_from_where_what_on_what() -> None:
    said = Said()
    said.refuse()
    assert said.lines == [
        {
            "event": "refused",
            "principal": "User:bob",
            "host": "10.0.0.7",
            "token": "t1",
            "door": "grpc",
            "api": "Fetch",
            "operation": "READ",
            "resource_type": "TOPIC",
            "resource": "orders",
            "outcome": "denied",
        }
    ]


def test_many_of_a_kind_become_a_few_lines_and_a_sum() -> None:
    said = Said()
    for at in range(1239):
        said.refuse(name=f"topic-{at}")
    assert len(said.lines) == MOST_REFUSALS
    said.now_s = 10.0
    said.audit.sum_up()
    assert said.lines[-1]["more"] == "and 1,234 more of this kind in 10 s"
    said.refuse()
    assert len(said.lines) == MOST_REFUSALS + 2, "a new window, a new line"


def test_who_comes_from_everywhere_takes_bounded_memory_and_lines() -> None:
    said = Said()
    for at in range(10_000):
        said.refuse(who=Identity(BOB.principal, f"10.0.{at // 256}.{at % 256}"))
    assert len(said.lines) == MOST_KINDS + MOST_REFUSALS
    assert len(said.audit._seen) == MOST_KINDS + 1


def test_an_act_carries_the_principal_and_no_value() -> None:
    said = Said()
    said.audit.action(OperatorAction("AlterConfigs", "orders", "10.0.0.7", "kcat", "kafka", 0, "", BOB.principal))
    (line,) = said.lines
    assert (line["principal"], line["action"], line["resource"], line["outcome"], line["software"]) == (
        "User:bob",
        "AlterConfigs",
        "orders",
        "done",
        "kcat",
    )


def test_a_failed_login_names_no_user() -> None:
    said = Said()
    said.audit.login_failed("10.0.0.7", "kafka", "PLAIN", "wrong password or user")
    assert set(said.lines[0]) == {"event", "host", "door", "mechanism", "why"}


def test_names_are_bounded() -> None:
    said = Said()
    said.refuse(name="x" * 30_000)
    assert len(said.lines[0]["resource"]) < 600


def test_the_file_has_one_object_a_line_and_survives_logrotate(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = AuditFile(path)
    file.open()
    audit = AuditLog(file.write)
    audit.acted(BOB, "grpc", "CreateAcls", "two\nlines")
    file.flush()
    path.rename(tmp_path / "audit.log.1")
    audit.acted(BOB, "grpc", "DeleteAcls", "topic:t")
    file.close()
    first = (tmp_path / "audit.log.1").read_text().splitlines()
    assert [json.loads(line)["action"] for line in first] == ["CreateAcls"]
    assert [json.loads(line)["action"] for line in path.read_text().splitlines()] == ["DeleteAcls"]
    assert path.stat().st_mode & 0o077 == 0, "nobody else reads it"


def test_a_file_that_cannot_be_written_is_no_start(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"audit\.log is "):
        AuditFile(tmp_path / "nowhere" / "audit.log").open()


def test_what_was_done_is_in_the_file_though_its_turn_failed_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is summed up and written at the latest when the node stops, and the turns go on."""

    async def story() -> None:
        trail = AuditTrail(str(tmp_path / "audit.log"))
        summed_up, failed, again = trail.audit.sum_up, asyncio.Event(), asyncio.Event()

        def sum_up(*, all_of_it: bool = False) -> None:
            if not failed.is_set():
                failed.set()
                raise ZeroDivisionError
            again.set()
            summed_up(all_of_it=all_of_it)

        trail.audit.sum_up = sum_up  # type: ignore[method-assign]
        await trail.start()
        async with asyncio.timeout(5):
            await failed.wait()
            await again.wait()
        for _ in range(MOST_REFUSALS + 1):
            trail.audit.refused(BOB, "grpc", Operation.READ, ResourceType.TOPIC, "orders", "Fetch")
        await trail.stop()
        assert trail._file is not None
        assert trail._file._file is None or trail._file._file.closed
        assert "refused" in (tmp_path / "audit.log").read_text(encoding="utf-8")

    monkeypatch.setattr(audit_log, "TURN_S", 0.01)
    monkeypatch.setattr(background_tasks, "FIRST_PAUSE_S", 0.01)
    asyncio.run(story())


def test_a_turn_that_failed_keeps_nothing_from_being_written_when_the_node_stops(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        trail = AuditTrail(str(tmp_path / "audit.log"))
        failed, flush = asyncio.Event(), AuditFile.flush
        loop = asyncio.get_running_loop()

        def fails_once(file: AuditFile) -> None:
            if not failed.is_set():
                loop.call_soon_threadsafe(failed.set)
                raise ZeroDivisionError
            flush(file)

        monkeypatch.setattr(AuditFile, "flush", fails_once)
        await trail.start()
        async with asyncio.timeout(5):
            await failed.wait()
        await asyncio.sleep(0.02)  # the turn has ended by then
        trail.audit.refused(BOB, "grpc", Operation.READ, ResourceType.TOPIC, "orders", "Fetch")
        await trail.stop()
        assert "refused" in (tmp_path / "audit.log").read_text(encoding="utf-8")

    monkeypatch.setattr(audit_log, "TURN_S", 0.01)
    asyncio.run(story())
