"""Client quotas (KIP-546), SCRAM users (KIP-554), and the refusals of the ACL APIs on a node without an authorizer.

A node that keeps no quotas or users answers SECURITY_DISABLED. No answer ever holds a salt or a key. The ACL handlers
of a node with an authorizer are in `kafka/handlers/acls.py`, which such nodes import.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final, Protocol, TypeAlias

from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.codec.codec import encode, struct
from muster.coordinator.kafka.dispatch import EncodedAnswer, KafkaCall
from muster.coordinator.security.quota_rules import InvalidQuota
from muster.coordinator.security.state import QuotaEntity
from muster.long_work import make_aside, work_through

# Quotas (KIP-546)
# ----------------

SECURITY_DISABLED: Final = 54
NONE_KEPT: Final = "this node keeps no quotas: it runs with authorizer=none; quotas take authorizer=acl"


QUOTA_ROW_WEIGHT: Final = 5
"""An entry takes so many times as long as a position does."""

QuotaAlteration: TypeAlias = tuple[Sequence[tuple[str, str | None]], Sequence[tuple[str, float | None]]]
"""Whose, and what it is to have."""


class QuotaRepository(Protocol):
    """The quotas that are set."""

    async def matching(
        self, wanted: Sequence[tuple[str, int, str | None]], *, strict: bool
    ) -> list[tuple[QuotaEntity, Mapping[str, float]]]: ...

    async def alter(
        self,
        wanted: Sequence[QuotaAlteration],
        *,
        validate_only: bool,
    ) -> list[str]: ...


class QuotaHandlers:
    """`quotas` is None on a node that keeps none."""

    def __init__(self, quotas: QuotaRepository | None) -> None:
        self._quotas = quotas

    async def describe_client_quotas(self, request: Any, call: KafkaCall) -> Any:
        made = struct("DescribeClientQuotasResponse")
        if self._quotas is None:
            return made(error_code=SECURITY_DISABLED, error_message=NONE_KEPT, entries=None)
        wanted = [(each.entity_type, each.match_type, each.match) for each in request.components]
        try:
            found = await self._quotas.matching(wanted, strict=request.strict)
        except InvalidQuota as error:
            return made(error_code=ErrorCode.INVALID_REQUEST, error_message=str(error), entries=None)
        return await make_aside(lambda: make_quotas_response(found, call.api_version), QUOTA_ROW_WEIGHT * len(found))

    async def alter_client_quotas(self, request: Any, call: KafkaCall) -> Any:
        heavy = QUOTA_ROW_WEIGHT * len(request.entries)
        wanted = await work_through(lambda: [parse_alteration(each) for each in request.entries], heavy)
        code: int = ErrorCode.INVALID_REQUEST
        if self._quotas is None:
            code, told = SECURITY_DISABLED, [NONE_KEPT] * len(wanted)
        else:
            try:
                told = await self._quotas.alter(wanted, validate_only=request.validate_only)
            except CoordinatorError as error:
                code, told = error.code, [error.message] * len(wanted)
        return await work_through(lambda: make_alter_quotas_response(told, wanted, code, call.api_version), heavy)


def parse_alteration(entry: Any) -> QuotaAlteration:
    return (
        [(part.entity_type, part.entity_name) for part in entry.entity],
        [(op.key, None if op.remove else op.value) for op in entry.ops],
    )


def make_quotas_response(found: Sequence[tuple[QuotaEntity, Mapping[str, float]]], version: int) -> EncodedAnswer:
    path = "DescribeClientQuotasResponse"
    entry, value, part = struct(f"{path}.entries"), struct(f"{path}.entries.values"), struct(f"{path}.entries.entity")
    entries = [
        entry(
            entity=[part(entity_type=kind, entity_name=name) for kind, name in entity],
            values=[value(key=key, value=float(figure)) for key, figure in sorted(figures.items())],
        )
        for entity, figures in found
    ]
    return EncodedAnswer(encode(path, version, struct(path)(entries=entries)))


def make_alter_quotas_response(
    told: Sequence[str], wanted: Sequence[QuotaAlteration], code: int, version: int
) -> EncodedAnswer:
    path = "AlterClientQuotasResponse"
    made, part = struct(f"{path}.entries"), struct(f"{path}.entries.entity")
    entries = [
        made(
            error_code=code if why else ErrorCode.NONE,
            error_message=why or None,
            entity=[part(entity_type=kind, entity_name=name) for kind, name in parts],
        )
        for why, (parts, _) in zip(told, wanted, strict=True)
    ]
    return EncodedAnswer(encode(path, version, struct(path)(entries=entries)))


# SCRAM users (KIP-554)
# ---------------------

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

        return await make_aside(made, SCRAM_ROW_WEIGHT * len(asked))

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


# ACL APIs without an authorizer
# ------------------------------

NO_AUTHORIZER: Final = "No Authorizer is configured: this node has authorizer=none."


class DisabledAclHandlers:
    """Handlers that refuse."""

    async def describe_acls(self, request: Any, call: KafkaCall) -> Any:
        return struct("DescribeAclsResponse")(error_code=SECURITY_DISABLED, error_message=NO_AUTHORIZER)

    async def create_acls(self, request: Any, call: KafkaCall) -> Any:
        made = struct("CreateAclsResponse.results")
        rows = [made(error_code=SECURITY_DISABLED, error_message=NO_AUTHORIZER) for _ in request.creations]
        return struct("CreateAclsResponse")(results=rows)

    async def delete_acls(self, request: Any, call: KafkaCall) -> Any:
        made = struct("DeleteAclsResponse.filter_results")
        rows = [made(error_code=SECURITY_DISABLED, error_message=NO_AUTHORIZER) for _ in request.filters]
        return struct("DeleteAclsResponse")(filter_results=rows)
