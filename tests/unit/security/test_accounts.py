"""Users and tokens, made and taken away in a real log, and what Kafka's tools hear of them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.security import passwords
from muster.coordinator.security.login import MOST_ALTERATIONS, MOST_TOKENS, hash_token
from muster.coordinator.security.state import ApiToken, SecurityRecord, TokenKey
from muster.coordinator.server.security import accounts as accounts_module
from muster.coordinator.server.security.accounts import SaltedCredential, UserAccounts
from muster.coordinator.server.security.security_store import SecurityStore
from muster.storage.broker.broker import Broker

PASSWORD = "correct horse"


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SecurityStore]:
    broker = Broker(tmp_path / "data")
    opened = SecurityStore(broker)
    opened.load()
    yield opened
    broker.close()


def told(store: SecurityStore, story: Callable[[UserAccounts], Awaitable[None]]) -> None:
    async def run() -> None:
        await story(UserAccounts(store, lambda: 1_000))

    asyncio.run(run())


def salted(
    name: str, mechanism: int = 1, iterations: int = 4096, salt: bytes = b"saltsalt", size: int = 32
) -> SaltedCredential:
    return SaltedCredential(name, mechanism, iterations, salt, b"k" * size)


def test_a_user_can_log_in_by_each_mechanism_until_it_goes(store: SecurityStore) -> None:
    async def story(accounts: UserAccounts) -> None:
        assert await accounts.alter_users([("alice", PASSWORD, 0), ("b", "short", 0)], ["nobody"]) == {
            "alice": (0, ""),
            "b": (ErrorCode.UNACCEPTABLE_CREDENTIAL, "the password has 5 bytes; expected 8 to 1024, none of them 0"),
            "nobody": (ErrorCode.RESOURCE_NOT_FOUND, "there is no user 'nobody'"),
        }
        alice = store.state.users["alice"]
        assert set(alice.scram) == {"SCRAM-SHA-256", "SCRAM-SHA-512"}
        assert alice.password is not None
        assert len({each.salt for each in alice.scram.values()}) == 2
        assert (await accounts.alter_users([], ["alice"]))["alice"] == (0, "")
        assert not store.state.users

    told(store, story)


@pytest.mark.parametrize("name", ["", " a", "a\n", "x" * 256])
def test_names_that_are_none(store: SecurityStore, name: str) -> None:
    async def story(accounts: UserAccounts) -> None:
        ((code, _),) = (await accounts.alter_users([(name, PASSWORD, 0)], [])).values()
        assert code == ErrorCode.UNACCEPTABLE_CREDENTIAL

    told(store, story)


def test_scram_credentials_as_kafka_s_controller_takes_them(store: SecurityStore) -> None:
    async def story(accounts: UserAccounts) -> None:
        outcomes = await accounts.alter_scram(
            [
                salted("good"), salted("good", 2, size=64), salted("few", iterations=4095),
                salted("many", iterations=16385),
                salted("mech", 3), salted("", 1), salted("twice"), salted("twice"), salted("size", size=64),
                salted("salt", salt=b"x"), salted("half"),
            ],
            [("gone", 1), ("half", 2)],
        )  # fmt: skip
        assert {name: int(code) for name, (code, _) in outcomes.items()} == {
            "good": 0, "few": 93, "many": 93, "mech": 33, "": 93, "twice": 92,
            "size": 93, "salt": 93, "gone": 91, "half": 91,
        }  # fmt: skip
        assert set(store.state.users) == {"good"}
        assert store.state.users["good"].scram["SCRAM-SHA-256"] == passwords.make_scram_credential(
            "SCRAM-SHA-256", b"k" * 32, b"saltsalt", 4096
        )
        await accounts.alter_scram([], [("good", 1)])
        assert set(store.state.users["good"].scram) == {"SCRAM-SHA-512"}
        await accounts.alter_scram([], [("good", 2)])
        assert not store.state.users

    told(store, story)


def test_a_password_changed_by_kafka_s_tools_opens_by_plain_no_longer(store: SecurityStore) -> None:
    async def story(accounts: UserAccounts) -> None:
        await accounts.alter_users([("alice", PASSWORD, 0)], [])
        await accounts.alter_scram([salted("alice")], [])
        assert store.state.users["alice"].password is None

    told(store, story)


def test_a_token_is_told_once_and_kept_as_a_hash(store: SecurityStore) -> None:
    async def story(accounts: UserAccounts) -> None:
        text, token = await accounts.create_token("ci", lifetime_ms=500)
        assert (token.principal, token.made_ms, token.until_ms) == ("User:ci", 1_000, 1_500)
        assert store.state.tokens[token.id].hash == hash_token(text)
        other, _ = await accounts.create_token("ci", "User:other")
        assert other != text
        outcomes = await accounts.revoke([token.id, "none"])
        assert [int(code) for code, _ in outcomes.values()] == [0, 91]
        assert len(store.state.tokens) == 1

    told(store, story)


@pytest.mark.parametrize(
    ("name", "principal", "lifetime_ms"),
    [("", "", 0), ("x" * 101, "", 0), ("a\n", "", 0), ("a", "alice", 0), ("a", "User:\n", 0), ("a", "", -1),
     ("a", "", 1 << 50)],
)  # fmt: skip
def test_tokens_that_cannot_be(store: SecurityStore, name: str, principal: str, lifetime_ms: int) -> None:
    async def story(accounts: UserAccounts) -> None:
        with pytest.raises(CoordinatorError):
            await accounts.create_token(name, principal, lifetime_ms)

    told(store, story)


def test_limits(store: SecurityStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts_module, "MOST_USERS", 1)
    monkeypatch.setattr(accounts_module, "MOST_TOKENS", 2)

    async def story(accounts: UserAccounts) -> None:
        outcomes = await accounts.alter_scram([salted("a")], []) | await accounts.alter_scram([salted("b")], [])
        assert [int(code) for code, _ in outcomes.values()] == [0, ErrorCode.POLICY_VIOLATION]
        await accounts.alter_scram([salted("a")], [])
        await accounts.create_token("old", lifetime_ms=1)
        _, kept = await accounts.create_token("kept")
        with pytest.raises(CoordinatorError, match="revoke some"):
            await accounts.create_token("third")
        later = UserAccounts(store, lambda: 2_000)
        await later.create_token("third")
        assert {token.name for token in store.state.tokens.values()} >= {"kept", "third"}
        assert kept.id in store.state.tokens
        with pytest.raises(CoordinatorError, match="at most"):
            await accounts.alter_users([], ["x"] * (MOST_ALTERATIONS + 1))

    told(store, story)


def test_where_all_the_tokens_there_may_be_have_ended_a_new_one_is_made_all_the_same(store: SecurityStore) -> None:
    """All that had ended were taken away with it: more changes than one write may have."""

    async def story(accounts: UserAccounts) -> None:
        ended = [f"{number:016x}" for number in range(MOST_TOKENS)]
        await store.write([SecurityRecord(TokenKey(id_), ApiToken(id_, "old", "User:old", b"", 1, 2)) for id_ in ended])
        _, made = await accounts.create_token("new")
        assert made.id in store.state.tokens
        assert len(store.state.tokens) <= MOST_TOKENS

    told(store, story)
