"""Users and API tokens of a node, and the Security service that lists, creates, alters and revokes them.

One change at a time: what a change rests on is read in the same turn. Passwords are hashed in a thread. The command
that makes the first users works on a stopped node by the same class. Answers never hold a salt, a key or a hash.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple, TypeVar

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.rpc.v1 import security_service_pb2 as pb
from muster.coordinator.security import passwords
from muster.coordinator.security.access_model import check_principal
from muster.coordinator.security.login import (
    LEAST_ITERATIONS,
    LEAST_SALT_BYTES,
    MOST_ALTERATIONS,
    MOST_ITERATIONS,
    MOST_LIFETIME_MS,
    MOST_PRINCIPAL_CHARS,
    MOST_SALT_BYTES,
    MOST_TOKEN_NAME_CHARS,
    MOST_TOKENS,
    MOST_USERS,
    TOKEN_ID_BYTES,
    TOKEN_SECRET_BYTES,
    format_token,
    hash_token,
)
from muster.coordinator.security.passwords import SALT_BITS, check_user_name, make_user
from muster.coordinator.security.state import ApiToken, ScramCredential, SecurityRecord, TokenKey, User, UserKey
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.security.audit_log import AuditLog
from muster.coordinator.server.security.security_store import SecurityStore, SettledResult, error_code_for
from muster.coordinator.server.services.group_responses import to_error_code
from muster.long_work import make_aside
from muster.storage.errors import StorageError

# Users and tokens
# ----------------

OK: Final = (ErrorCode.NONE, "")
MECHANISM_OF: Final = {number: name for name, number in passwords.SCRAM_NUMBERS.items()}
UNSUPPORTED_SASL_MECHANISM: Final = 33
MOST_GONE: Final = 1_000
"""Ended tokens that make room for a new one at once."""

Outcome = tuple[int, str]
"""A code of Kafka's, and a sentence."""


class SaltedCredential(NamedTuple):
    """What Kafka's tools send of a password (KIP-554)."""

    name: str
    mechanism: int
    iterations: int
    salt: bytes
    salted_password: bytes


class UserAccounts:
    def __init__(self, store: SecurityStore, wall_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000) -> None:
        self._store = store
        self._wall_ms = wall_ms
        self._changing = asyncio.Lock()

    # -- users ---------------------------------------------------------------------------------------------

    def users(self) -> Mapping[str, User]:
        return self._store.state.users

    async def alter_users(
        self, upsertions: Sequence[tuple[str, str, int]], deletions: Sequence[str]
    ) -> dict[str, Outcome]:
        """Each user for itself. `upsertions`: names, passwords, iterations (0: the fewest)."""
        self._few(len(upsertions) + len(deletions))
        self._are_here()
        outcomes = find_duplicates([*(name for name, _, _ in upsertions), *deletions])
        made: list[SecurityRecord] = []
        for name, password, iterations in upsertions:
            if name in outcomes:
                continue
            try:
                numbers = iter(lambda: secrets.randbits(SALT_BITS), -1)
                user = await asyncio.to_thread(make_user, name, password, numbers, iterations or LEAST_ITERATIONS)
            except ValueError as error:
                outcomes[name] = ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)
            else:
                made.append(SecurityRecord(UserKey(name), user))
        names = [*(each[0] for each in upsertions), *deletions]
        return await self._told_of_each(names, lambda: self._alter_users(made, deletions, dict(outcomes)))

    async def _alter_users(
        self, made: Sequence[SecurityRecord], deletions: Sequence[str], outcomes: dict[str, Outcome]
    ) -> dict[str, Outcome]:
        changes = list(made)
        for name in deletions:
            if name in self.users():
                changes.append(SecurityRecord(UserKey(name), None))
            else:
                outcomes.setdefault(name, (ErrorCode.RESOURCE_NOT_FOUND, f"there is no user {name[:100]!r}"))
        await self._write([change for change in changes if change.key[0] not in outcomes], outcomes)
        return outcomes

    async def alter_scram(
        self, upsertions: Sequence[SaltedCredential], deletions: Sequence[tuple[str, int]]
    ) -> dict[str, Outcome]:
        """As Kafka's ScramControlManager: of a user about whom something is wrong, nothing is done.

        A hash for PLAIN goes with any such change: it is of a password that is no longer meant to be known.
        """
        self._few(len(upsertions) + len(deletions))
        self._are_here()
        names = list(dict.fromkeys([*(name for name, _ in deletions), *(each.name for each in upsertions)]))
        outcomes: dict[str, Outcome] = {}
        for name, mechanism in deletions:
            if (wrong := explain_bad_user(name, mechanism)) is not None:
                outcomes.setdefault(name, wrong)
        for each in upsertions:
            if (wrong := explain_bad_user(each.name, each.mechanism) or explain_bad_credential(each)) is not None:
                outcomes.setdefault(each.name, wrong)
        altered = Counter([*deletions, *((each.name, each.mechanism) for each in upsertions)])
        for (name, _), times in altered.items():
            if times > 1:
                outcomes[name] = (
                    ErrorCode.DUPLICATE_RESOURCE,
                    "A user credential cannot be altered twice in the same request",
                )
        return await self._told_of_each(names, lambda: self._alter_scram(names, upsertions, deletions, dict(outcomes)))

    async def _alter_scram(
        self,
        names: Sequence[str],
        upsertions: Sequence[SaltedCredential],
        deletions: Sequence[tuple[str, int]],
        outcomes: dict[str, Outcome],
    ) -> dict[str, Outcome]:
        for name, mechanism in deletions:
            user = self.users().get(name)
            if name not in outcomes and (user is None or MECHANISM_OF[mechanism] not in user.scram):
                outcomes[name] = (
                    ErrorCode.RESOURCE_NOT_FOUND,
                    "Attempt to delete a user credential that does not exist",
                )
        made: dict[str, User] = {}
        for name in names:
            if name not in outcomes:
                user = self.users().get(name, User(name))
                gone = {MECHANISM_OF[mechanism] for each, mechanism in deletions if each == name}
                made[name] = alter_user(user, gone, (each for each in upsertions if each.name == name))
        changes = [SecurityRecord(UserKey(name), user if user.scram else None) for name, user in made.items()]
        await self._write(changes, outcomes)
        return outcomes

    # -- tokens --------------------------------------------------------------------------------------------

    def tokens(self) -> Mapping[str, ApiToken]:
        return self._store.state.tokens

    async def create_token(self, name: str, principal: str = "", lifetime_ms: int = 0) -> tuple[str, ApiToken]:
        """The token, which is told once, and what is kept. Raises CoordinatorError."""
        if not name.strip() or len(name) > MOST_TOKEN_NAME_CHARS or not name.isprintable():
            raise refuse_all(
                f"a token is called {name[:60]!r}; expected 1 to {MOST_TOKEN_NAME_CHARS} printable characters that say "
                "what it is for"
            )
        principal = principal or f"User:{name}"
        try:
            check_principal(principal)
        except ValueError as error:
            raise refuse_all(str(error)) from None
        if len(principal) > MOST_PRINCIPAL_CHARS or not principal.isprintable():
            raise refuse_all(f"a principal has up to {MOST_PRINCIPAL_CHARS} printable characters")
        if not 0 <= lifetime_ms <= MOST_LIFETIME_MS:
            raise refuse_all(f"a token is to last {lifetime_ms} ms; expected up to ten years, or 0 for no end")
        text = format_token(secrets.token_bytes(TOKEN_ID_BYTES), secrets.token_bytes(TOKEN_SECRET_BYTES))
        now_ms = self._wall_ms()
        token = ApiToken(
            text.split("_")[1], name, principal, hash_token(text), now_ms, now_ms + lifetime_ms if lifetime_ms else 0
        )

        async def made() -> None:
            await self._kept([*self._room_for_tokens(now_ms), SecurityRecord(TokenKey(token.id), token)])

        await self._settled(made)
        return text, token

    async def revoke(self, ids: Sequence[str]) -> dict[str, Outcome]:
        """Raises CoordinatorError."""
        self._few(len(ids), MOST_TOKENS)
        known: dict[str, None] = {}

        async def gone() -> None:
            known.update((id_, None) for id_ in ids if id_ in self.tokens())
            await self._kept([SecurityRecord(TokenKey(id_), None) for id_ in known])

        await self._settled(gone)
        missing = ErrorCode.RESOURCE_NOT_FOUND
        return {id_: OK if id_ in known else (missing, f"there is no token of the id {id_[:50]!r}") for id_ in ids}

    def _room_for_tokens(self, now_ms: int) -> list[SecurityRecord]:
        """What takes ended tokens away, where there is no room otherwise. Raises CoordinatorError."""
        if len(self.tokens()) < MOST_TOKENS:
            return []
        ended = [id_ for id_, token in self.tokens().items() if 0 < token.until_ms <= now_ms]
        if not ended:
            raise CoordinatorError(
                ErrorCode.POLICY_VIOLATION, f"there are {len(self.tokens())} tokens, as many as are kept; revoke some"
            )
        return [SecurityRecord(TokenKey(id_), None) for id_ in ended[:MOST_GONE]]

    async def _told_of_each(
        self, names: Iterable[str], change: Callable[[], Awaitable[Mapping[str, Outcome]]]
    ) -> dict[str, Outcome]:
        try:
            found = await self._settled(change)
        except CoordinatorError as error:
            return dict.fromkeys(names, (error.code, error.message))
        return {name: found.get(name, OK) for name in names}

    async def _settled(self, change: Callable[[], Awaitable[SettledResult]]) -> SettledResult:
        """One at a time. Raises CoordinatorError."""
        async with self._changing:
            try:
                return await self._store.settled(change)
            except StorageError as error:
                raise CoordinatorError(error_code_for(error), str(error)) from error

    async def _kept(self, changes: Sequence[SecurityRecord]) -> None:
        """Raises CoordinatorError."""
        try:
            await self._store.write(changes)
        except (StorageError, ValueError) as error:
            raise CoordinatorError(error_code_for(error), str(error)) from error

    async def _write(self, changes: Sequence[SecurityRecord], outcomes: dict[str, Outcome]) -> None:
        """What fails is told of each."""
        added = sum(change.value is not None and change.key[0] not in self.users() for change in changes)
        if added and len(self.users()) + added > MOST_USERS:
            problem = ErrorCode.POLICY_VIOLATION, f"there are {len(self.users())} users; at most {MOST_USERS} are kept"
            outcomes.update((str(change.key[0]), problem) for change in changes)
            return
        try:
            await self._kept(changes)
        except CoordinatorError as error:
            problem = error.code, error.message
            outcomes.update((str(change.key[0]), problem) for change in changes)

    def _are_here(self) -> None:
        """Raises CoordinatorError."""
        if not self._store.keeps_users:
            raise refuse_all(
                "users log in at the brokers of the Kafka that is this node's engine, which have their passwords; "
                "change them there (kafka-configs.sh --entity-type users)"
            )

    def _few(self, count: int, most: int = MOST_ALTERATIONS) -> None:
        if count > most:
            raise refuse_all(f"{count} changes in one request; expected at most {most}")


def refuse_all(text: str) -> CoordinatorError:
    return CoordinatorError(ErrorCode.INVALID_REQUEST, text)


def find_duplicates(names: Iterable[str]) -> dict[str, Outcome]:
    told = ErrorCode.DUPLICATE_RESOURCE, "the user is named twice in one request; name each once"
    return {name: told for name, times in Counter(names).items() if times > 1}


def explain_bad_user(name: str, mechanism: int) -> Outcome | None:
    if not name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty"
    try:
        check_user_name(name)
    except ValueError as error:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, str(error)
    if mechanism not in MECHANISM_OF:
        return UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism"
    return None


def explain_bad_credential(given: SaltedCredential) -> Outcome | None:
    if given.iterations < LEAST_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too few iterations; expected at least {LEAST_ITERATIONS}"
    if given.iterations > MOST_ITERATIONS:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, f"Too many iterations; expected at most {MOST_ITERATIONS}"
    if not LEAST_SALT_BYTES <= len(given.salt) <= MOST_SALT_BYTES:
        text = f"The salt has {len(given.salt)} bytes; expected {LEAST_SALT_BYTES} to {MOST_SALT_BYTES}"
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, text
    size = passwords.SCRAM_KEY_BYTES[MECHANISM_OF[given.mechanism]]
    if len(given.salted_password) != size:
        text = f"The salted password has {len(given.salted_password)} bytes; expected {size}"
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, text
    return None


def alter_user(user: User, gone: set[str], upsertions: Iterable[SaltedCredential]) -> User:
    kept: dict[str, ScramCredential] = {name: each for name, each in user.scram.items() if name not in gone}
    for each in upsertions:
        mechanism = MECHANISM_OF[each.mechanism]
        kept[mechanism] = passwords.make_scram_credential(mechanism, each.salted_password, each.salt, each.iterations)
    return replace(user, scram=kept, password=None)


# The Security service
# --------------------

SECURITY_SERVICE = pb.DESCRIPTOR.services_by_name["Security"]
DOOR = "grpc"
ROW: Final = 5
"""A user or a token takes so many times as long as a position does."""
RefusableAnswer = TypeVar("RefusableAnswer", pb.AlterUsersResponse, pb.CreateTokenResponse, pb.RevokeTokensResponse)


class SecurityService:
    def __init__(self, accounts: UserAccounts, audit: AuditLog) -> None:
        self._accounts = accounts
        self._audit = audit

    async def describe_users(self, request: pb.DescribeUsersRequest, call: RpcCall) -> pb.DescribeUsersResponse:
        names = set(request.users)
        users = {name: self._accounts.users().get(name) for name in names} or dict(self._accounts.users())
        return await make_aside(lambda: build_described_users(users), ROW * len(users))

    async def alter_users(self, request: pb.AlterUsersRequest, call: RpcCall) -> pb.AlterUsersResponse:
        answer = pb.AlterUsersResponse()
        upsertions = [(each.name, each.password, each.iterations) for each in request.upsertions]
        try:
            outcomes = await self._accounts.alter_users(upsertions, request.deletions)
        except CoordinatorError as error:
            return build_account_refusal(answer, error)
        for name, (code, message) in outcomes.items():
            answer.results.add(user=name, error_code=to_error_code(ErrorCode(code)), error_message=message)
        self._acted(call, "AlterUsers", outcomes)
        return answer

    async def describe_tokens(self, request: pb.DescribeTokensRequest, call: RpcCall) -> pb.DescribeTokensResponse:
        tokens, wanted = list(self._accounts.tokens().values()), set(request.principals)
        return await make_aside(lambda: build_described_tokens(tokens, wanted), ROW * len(tokens))

    async def create_token(self, request: pb.CreateTokenRequest, call: RpcCall) -> pb.CreateTokenResponse:
        answer = pb.CreateTokenResponse()
        try:
            text, token = await self._accounts.create_token(request.name, request.principal, request.lifetime_ms)
        except CoordinatorError as error:
            return build_account_refusal(answer, error)
        self._acted(call, "CreateToken", {f"{token.name} ({token.id}) for {token.principal}": (0, "")})
        return pb.CreateTokenResponse(description=build_described_token(token), token=text)

    async def revoke_tokens(self, request: pb.RevokeTokensRequest, call: RpcCall) -> pb.RevokeTokensResponse:
        answer = pb.RevokeTokensResponse()
        try:
            outcomes = await self._accounts.revoke(request.token_ids)
        except CoordinatorError as error:
            return build_account_refusal(answer, error)
        for id_, (code, message) in outcomes.items():
            answer.results.add(token_id=id_, error_code=to_error_code(ErrorCode(code)), error_message=message)
        self._acted(call, "RevokeTokens", outcomes)
        return answer

    def _acted(self, call: RpcCall, action: str, outcomes: Mapping[str, Outcome]) -> None:
        for name, (code, _) in outcomes.items():
            door = str(getattr(call, "door", DOOR))
            self._audit.acted(call.identity, door, action, name, f"refused: {code}" if code else "done")


def build_account_refusal(answer: RefusableAnswer, error: CoordinatorError) -> RefusableAnswer:
    answer.error_code, answer.error_message = to_error_code(error.code), error.message
    return answer


def build_described_users(users: Mapping[str, User | None]) -> pb.DescribeUsersResponse:
    answer = pb.DescribeUsersResponse()
    for name in sorted(users):
        user = users[name]
        if user is None:
            missing = f"there is no user {name[:100]!r}"
            answer.users.add(name=name, error_code=to_error_code(ErrorCode.RESOURCE_NOT_FOUND), error_message=missing)
        else:
            answer.users.append(build_described_user(user))
    return answer


def build_described_tokens(tokens: Iterable[ApiToken], wanted: Collection[str]) -> pb.DescribeTokensResponse:
    """Those of some principals; of all if none are wanted."""
    in_order = sorted(tokens, key=lambda token: (token.made_ms, token.id))
    return pb.DescribeTokensResponse(
        tokens=[build_described_token(each) for each in in_order if not wanted or each.principal in wanted]
    )


def build_described_user(user: User) -> pb.DescribedUser:
    """How the user may log in. Never a salt, a key or a hash."""
    mechanisms = [*sorted(user.scram), *(["PLAIN"] if user.password is not None else [])]
    iterations = min((each.iterations for each in user.scram.values()), default=0)
    return pb.DescribedUser(name=user.name, mechanisms=mechanisms, iterations=iterations)


def build_described_token(token: ApiToken) -> pb.DescribedToken:
    return pb.DescribedToken(
        token_id=token.id,
        name=token.name,
        principal=token.principal,
        created_ms=token.made_ms,
        expires_ms=token.until_ms,
    )
