"""Users and tokens of a node that asks who calls, for tests."""

from itertools import count

from muster.coordinator.security.login import format_token, hash_token
from muster.coordinator.security.passwords import make_user
from muster.coordinator.security.state import ApiToken, SecurityRecord, TokenKey, UserKey
from muster.coordinator.server.security.security_store import SecurityStore


def api_token(number: int, principal: str = "User:ci", until_ms: int = 0) -> tuple[str, SecurityRecord]:
    """A token, and the change by which a node knows it; `until_ms` by the wall clock, 0: without an end."""
    text = format_token(number.to_bytes(8, "big"), bytes([number]) * 32)
    id_ = number.to_bytes(8, "big").hex()
    return text, SecurityRecord(
        TokenKey(id_), ApiToken(id_, f"token-{number}", principal, hash_token(text), 1, until_ms)
    )


async def give_token(store: SecurityStore, number: int, principal: str = "User:ci", until_ms: int = 0) -> str:
    text, change = api_token(number, principal, until_ms)
    await store.write([change])
    return text


async def revoke(store: SecurityStore, number: int) -> None:
    await store.write([SecurityRecord(TokenKey(number.to_bytes(8, "big").hex()), None)])


def bearer(token: str) -> tuple[tuple[str, str], ...]:
    """gRPC metadata."""
    return (("authorization", f"Bearer {token}"),)


def user(name: str, password: str) -> SecurityRecord:
    """The change by which a node knows a user."""
    return SecurityRecord(UserKey(name), make_user(name, password, count(1 << 129)))
