"""Logins that failed: counted by address, and told to the audit."""

from muster.coordinator.security.limits import MOST_ADDRESSES_COUNTED
from muster.coordinator.server.security.audit import AuditLog

OTHERS = "others"


class LoginFailures:
    """`by_address`: how many, by door and address."""

    def __init__(self, audit: AuditLog) -> None:
        self._audit = audit
        self.by_address: dict[tuple[str, str], float] = {}

    def told(self, host: str, door: str, mechanism: str, why: str) -> None:
        known = (door, host) in self.by_address or len(self.by_address) < MOST_ADDRESSES_COUNTED
        key = door, host if known else OTHERS
        self.by_address[key] = self.by_address.get(key, 0) + 1
        self._audit.login_failed(host, door, mechanism, why)
