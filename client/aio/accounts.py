"""What the admin client does with users and API tokens."""

from collections.abc import Mapping, Sequence

from muster.client.calls import methods
from muster.client.calls.group_calls import check_code
from muster.client.calls.transport import Transport
from muster.client.described import TokenDescription, UserDescription
from muster.coordinator.rpc.v1 import security_service_pb2 as security_pb


class AccountCalls:
    """Part of the admin client."""

    _transport: Transport

    async def users(self) -> list[UserDescription]:
        """Who may log in by a password, and how; by name."""
        request = security_pb.DescribeUsersRequest()
        answer = await self._transport.retried(methods.DESCRIBE_USERS, request, doing="listing users")
        check_code(answer.error_code, answer.error_message)
        return [UserDescription(each.name, tuple(each.mechanisms), each.iterations) for each in answer.users]

    async def put_users(self, passwords: Mapping[str, str], iterations: int = 0) -> None:
        """Make users, or give them other passwords. `iterations`: of SCRAM; 0: the node's. Raises Refused."""
        request = security_pb.AlterUsersRequest()
        for name, password in passwords.items():
            request.upsertions.add(name=name, password=password, iterations=iterations)
        await self._alter(request, "making users")

    async def delete_users(self, names: Sequence[str]) -> None:
        """Delete users; their connections end. Raises Refused for one that is not there, when others are gone."""
        await self._alter(security_pb.AlterUsersRequest(deletions=names), "deleting users")

    async def tokens(self) -> list[TokenDescription]:
        """API tokens, oldest first; what they are is not kept."""
        request = security_pb.DescribeTokensRequest()
        answer = await self._transport.retried(methods.DESCRIBE_TOKENS, request, doing="listing tokens")
        check_code(answer.error_code, answer.error_message)
        return list(map(read_token, answer.tokens))

    async def create_token(self, name: str, principal: str = "", lifetime_ms: int = 0) -> tuple[str, TokenDescription]:
        """A new token, which nobody can tell again, and what is kept of it. `lifetime_ms`: 0 for no end."""
        request = security_pb.CreateTokenRequest(name=name, principal=principal, lifetime_ms=lifetime_ms)
        answer = await self._transport.call(methods.CREATE_TOKEN, request, doing="making a token")
        check_code(answer.error_code, answer.error_message)
        return answer.token, read_token(answer.description)

    async def revoke_tokens(self, ids: Sequence[str]) -> None:
        """Take tokens away; what they opened ends. Raises Refused for one that is not there, when others are gone."""
        request = security_pb.RevokeTokensRequest(token_ids=ids)
        answer = await self._transport.call(methods.REVOKE_TOKENS, request, doing="revoking tokens")
        check_code(answer.error_code, answer.error_message)
        for result in answer.results:
            check_code(result.error_code, result.error_message)

    async def _alter(self, request: security_pb.AlterUsersRequest, doing: str) -> None:
        answer = await self._transport.call(methods.ALTER_USERS, request, doing=doing)
        check_code(answer.error_code, answer.error_message)
        for result in answer.results:
            check_code(result.error_code, result.error_message)


def read_token(token: security_pb.DescribedToken) -> TokenDescription:
    return TokenDescription(token.token_id, token.name, token.principal, token.created_ms, token.expires_ms or None)
