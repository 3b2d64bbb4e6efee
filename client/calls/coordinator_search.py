"""Finds the coordinator of a group or a transactional id, and finds it again after it has moved."""

from collections.abc import Awaitable, Callable, Collection
from typing import Final, TypeVar

from muster.client.calls.methods import FIND_COORDINATOR
from muster.client.calls.transport import CallRetry, Transport
from muster.client.errors import Refused, Unreachable, refusal
from muster.coordinator.observability.views.formatting import host_and_port
from muster.coordinator.rpc.v1 import coordinator_service_pb2 as pb
from muster.coordinator.rpc.v1 import errors_pb2

T = TypeVar("T")

LOADING, NOT_AVAILABLE, NOT_COORDINATOR, CONCURRENT, UNSTABLE = 14, 15, 16, 51, 88
ELSEWHERE: Final = frozenset({NOT_AVAILABLE, NOT_COORDINATOR})
"""The wrong node was asked. All other refusals come from the coordinator itself."""


def check_code(code: int, message: str, about: str = "") -> None:
    """Raise the typed refusal of a group code."""
    if code:
        raise refusal(code, errors_pb2.ErrorCode.Name(errors_pb2.ErrorCode.ValueType(code)), message, about)


class CoordinatorSearch:
    """Where the coordinator of one group or transactional id is, as far as that is known."""

    def __init__(
        self, transport: Transport, wanted: pb.FindCoordinatorRequest, about: str, address: str | None = None
    ) -> None:
        """about: what the coordinator is of, for errors. address: HOST:PORT where it was last, if that is known."""
        self._transport = transport
        self._wanted = wanted
        self._about = about
        self._address = address
        self.members_per_stream = 0
        """How many sessions one stream may carry (SharedSession), as the last answer says; 0: not offered."""

    async def find(self) -> str:
        """HOST:PORT, looked up where it is not known. Raises Refused, Unreachable."""
        if self._address is None:
            bootstrap, leaders = self._transport.bootstrap, self._transport.leaders
            answer = await self._transport.call(
                FIND_COORDINATOR,
                self._wanted,
                doing=f"finding the coordinator of {self._about}",
                address=bootstrap,
                timeout_ms=leaders.look_ms,
            )
            leaders.hear(in_cluster=answer.in_cluster)
            check_code(answer.error_code, answer.error_message, self._wanted.key)
            self.members_per_stream = answer.members_per_stream
            self._address = host_and_port(answer.host, answer.port) if answer.host else bootstrap
        return self._address

    def forget(self) -> None:
        """It is not there any more."""
        self._address = None


class FixedCoordinator:
    """A node that is asked whatever it coordinates; nobody else can answer instead."""

    def __init__(self, address: str) -> None:
        self._address = address

    async def find(self) -> str:
        return self._address

    def forget(self) -> None:
        """It stays where it is."""


def search_for_group(
    transport: Transport, group_id: str, group_protocol: str = "", address: str | None = None
) -> CoordinatorSearch:
    """group_protocol: one that has a coordinator of its own."""
    wanted = pb.FindCoordinatorRequest(key=group_id, group_protocol=group_protocol)
    return CoordinatorSearch(transport, wanted, f"group {group_id!r}", address)


def search_for_transactional_id(transport: Transport, transactional_id: str) -> CoordinatorSearch:
    wanted = pb.FindCoordinatorRequest(key=transactional_id, key_type="transaction")
    return CoordinatorSearch(transport, wanted, f"transactional id {transactional_id!r}")


async def ask_patiently(
    transport: Transport,
    search: CoordinatorSearch | FixedCoordinator,
    attempt: Callable[[str, int], Awaitable[T]],
    try_again: Collection[int],
    timeout_ms: int | None = None,
) -> T:
    """Repeat `attempt(address, attempt_ms)` while the coordinator cannot be reached, or refuses with one of these
    codes. Raises Unreachable, or the last Refused, after `timeout_ms`; None: `default.api.timeout.ms`.

    attempt_ms: how long this attempt may take.
    """
    patience = CallRetry(transport, timeout_ms)
    while True:
        try:
            return await attempt(await search.find(), patience.attempt_ms)
        except (Refused, Unreachable) as error:
            if isinstance(error, Refused) and error.code not in try_again:
                raise
            if isinstance(error, Unreachable) or error.code in ELSEWHERE:
                search.forget()
            if not await patience.another_try(error):
                raise error.after(patience.waited_ms) if isinstance(error, Unreachable) else error from None
