"""DescribeUserScramCredentials and AlterUserScramCredentials (KIP-554). Never a salt or a key in an answer."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from muster.coordinator.edge.positions import run_off_loop_if_large
from muster.coordinator.errors import CoordinatorError
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall

SECURITY_DISABLED: Final = 54
RESOURCE_NOT_FOUND: Final = 91
DUPLICATE_RESOURCE: Final = 92
NO_USERS_KEPT: Final = "this node keeps no users (authorizer=none)"
SCRAM_ROW_WEIGHT: Final = 5
"""A user takes so many times as long as a position does."""

Alterations: TypeAlias = Sequence[tuple[str, int, int, bytes, bytes]]
"""Names, numbers of mechanisms, iterations, salts, salted passwords."""
Deletions: TypeAlias = Sequence[tuple[str, int]]


class ScramUserStore(Protocol):
    """Who keeps them."""

    def names(self) -> list[str]:
        """Of all who may log in by SCRAM; from the loop."""

    def scram_of(self, name: str) -> Sequence[tuple[int, int]]:
        """A user's mechanisms, by number, and their iterations; from any thread."""

    async def alter(
        self,
        call: KafkaCall,
        upsertions: Alterations,
        deletions: Deletions,
    ) -> Mapping[str, tuple[int, str]]:
        """Code and sentence by user. Raises CoordinatorError."""


class ScramHandlers:
    def __init__(self, users: ScramUserStore | None) -> None:
        self._users = users

    async def describe_user_scram_credentials(self, request: Any, call: KafkaCall) -> Any:
        answer = struct("DescribeUserScramCredentialsResponse")
        if self._users is None:
            # As a broker without users. No code for the whole: librdkafka 2.16 dies of one.
            row = struct("DescribeUserScramCredentialsResponse.results")
            names = dict.fromkeys(user.name for user in request.users or ())
            return answer(
                results=[row(user=name, error_code=SECURITY_DISABLED, error_message=NO_USERS_KEPT) for name in names]
            )
        users = self._users
        asked = Counter(user.name for user in request.users or ()) or users.names()

        def made() -> EncodedAnswer:
            each = asked if isinstance(asked, Counter) else dict.fromkeys(sorted(asked), 1)
            rows = [self._row(name, times, users.scram_of(name)) for name, times in each.items()]
            path = "DescribeUserScramCredentialsResponse"
            return EncodedAnswer(encode(path, call.api_version, answer(results=rows)))

        return await run_off_loop_if_large(made, SCRAM_ROW_WEIGHT * len(asked))

    def _row(self, name: str, times: int, known: Sequence[tuple[int, int]]) -> Any:
        row = struct("DescribeUserScramCredentialsResponse.results")
        if times > 1:
            text = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
            return row(user=name, error_code=DUPLICATE_RESOURCE, error_message=text)
        if not known:
            text = f"Attempt to describe a user credential that does not exist: {name}"
            return row(user=name, error_code=RESOURCE_NOT_FOUND, error_message=text)
        info = struct("DescribeUserScramCredentialsResponse.results.credential_infos")
        return row(user=name, credential_infos=[info(mechanism=kind, iterations=count) for kind, count in known])

    async def alter_user_scram_credentials(self, request: Any, call: KafkaCall) -> Any:
        answer = struct("AlterUserScramCredentialsResponse")
        row = struct("AlterUserScramCredentialsResponse.results")
        names = dict.fromkeys(each.name for each in (*request.deletions, *request.upsertions))
        if self._users is None:
            rows = [row(user=name, error_code=SECURITY_DISABLED, error_message=NO_USERS_KEPT) for name in names]
            return answer(results=rows)
        upsertions = [
            (each.name, each.mechanism, each.iterations, bytes(each.salt), bytes(each.salted_password))
            for each in request.upsertions
        ]
        try:
            deletions = [(each.name, each.mechanism) for each in request.deletions]
            outcomes = await self._users.alter(call, upsertions, deletions)
        except CoordinatorError as error:
            outcomes = dict.fromkeys(names, (int(error.code), str(error)))
        rows = [row(user=name, error_code=code, error_message=text or None) for name, (code, text) in outcomes.items()]
        return answer(results=rows)
