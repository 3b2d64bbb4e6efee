"""The Security service: users and API tokens. No transport here."""

from collections.abc import Collection, Iterable, Mapping
from typing import Final, TypeVar

from muster.coordinator.edge.positions import run_off_loop_if_large
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.rpc.v1 import security_service_pb2 as pb
from muster.coordinator.security.facts import ApiToken, User
from muster.coordinator.server.rpc_dispatch import RpcCall
from muster.coordinator.server.security.accounts import Outcome, UserAccounts
from muster.coordinator.server.security.audit import AuditLog
from muster.coordinator.server.services.answers import to_error_code

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
        return await run_off_loop_if_large(lambda: build_described_users(users), ROW * len(users))

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
        return await run_off_loop_if_large(lambda: build_described_tokens(tokens, wanted), ROW * len(tokens))

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
