"""Logins that failed, by address, and bounded."""

from typing import Any

from muster.coordinator.security.login import MOST_ADDRESSES_COUNTED
from muster.coordinator.server.security.audit_log import OTHERS, AuditLog, LoginFailures


def test_failures_are_counted_by_address_and_told() -> None:
    lines: list[Any] = []
    failures = LoginFailures(AuditLog(lines.append))
    for number in range(MOST_ADDRESSES_COUNTED + 5):
        for _ in range(2):
            failures.count_failure(f"10.0.0.{number}", "kafka", "PLAIN", "credentials")
    assert failures.by_address["kafka", "10.0.0.0"] == 2
    assert failures.by_address["kafka", OTHERS] == 10
    assert len(failures.by_address) == MOST_ADDRESSES_COUNTED + 1
    assert lines[0] == {
        "event": "login failed", "host": "10.0.0.0", "door": "kafka", "mechanism": "PLAIN", "why": "credentials",
    }  # fmt: skip


def test_the_failures_of_the_last_ten_minutes_are_told_most_first() -> None:
    now_s = [1_000.0]
    failures = LoginFailures(AuditLog(lambda line: None), lambda: now_s[0])
    failures.count_failure("10.0.0.9", "kafka", "PLAIN", "long ago")
    now_s[0] += 601
    for why in ("no such user", "wrong password"):
        failures.count_failure("10.0.0.1", "kafka", "PLAIN", why)
    failures.count_failure("10.0.0.2", "http", "Bearer", "unknown token")
    assert failures.recent() == [("kafka", "10.0.0.1", 2, "wrong password"), ("http", "10.0.0.2", 1, "unknown token")]
