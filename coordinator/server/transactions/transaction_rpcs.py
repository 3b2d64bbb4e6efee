"""The Transactions service of gRPC: producers of transactions, and what operators ask of their transactional ids.

What a request means is decided by the coordinator of its id, as at Kafka's listener. Every call is of level 2
(KIP-890), and carries no connection's number: the order of connections is not looked at (TX-C12).
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, TypeVar

from muster.coordinator.edge.request_limits import error_sentence
from muster.coordinator.errors import CoordinatorError, ErrorCode
from muster.coordinator.kafka.handlers.transaction_queries import (
    MatchingTransactions,
    TransactionFilter,
    TransactionLists,
    describe_each,
    keep_matching,
)
from muster.coordinator.kafka.handlers.transactions import TransactionService
from muster.coordinator.kafka.protocol import RAISES_EPOCH, refuse_transactions
from muster.coordinator.observability.views.transactions import ExplainedEnd, HeldOffset
from muster.coordinator.rpc.v1 import transaction_service_pb2 as pb
from muster.coordinator.server.rpc_dispatch import RpcCall, ServiceMethod, methods_of
from muster.coordinator.server.transactions.transaction_history import HOLDS_TOLD, TransactionHistory
from muster.coordinator.transactions.effects import (
    DescribeTransactionReply,
    EndTxnReply,
    InitProducerIdReply,
    TerminateTransactionReply,
)
from muster.coordinator.transactions.events import (
    EndTxn,
    InitProducerId,
    RequestOrigin,
    TerminateTransaction,
    TransactionRequest,
)
from muster.coordinator.transactions.records import (
    LAST_CLIENT_EPOCH,
    LAST_EPOCH,
    MAX_ID_BYTES,
    NO_EPOCH,
    NO_PRODUCER_ID,
    NO_TIME,
    TransactionState,
)
from muster.long_work import make_aside
from muster.storage.errors import StorageError

TRANSACTION_SERVICE: Final = pb.DESCRIPTOR.services_by_name["Transactions"]

NO_HISTORY: Final = "this node keeps no history of transactions; DescribeTransactions says what is open"

IDLE_STATES: Final = frozenset(state.title for state in TransactionState if state.idle)

AskedReply = TypeVar("AskedReply")


def code_of(code: int) -> Any:
    """Kafka's number; the generated enum is open, though its type says otherwise."""
    return int(code)


def refusal_of(error: CoordinatorError) -> dict[str, Any]:
    """The fields of an answer that refuses."""
    return {"error_code": code_of(error.code), "error_message": error_sentence(error.code, error.message)}


# The coordinator's answers
# -------------------------


class TransactionRpcs:
    """Handlers over the node's coordinator of transactional ids. node_id: which node that is."""

    def __init__(self, service: TransactionService, history: TransactionHistory | None, *, node_id: int) -> None:
        self._service = service
        self._lists = TransactionLists(service)
        self._history = history
        self._node_id = node_id

    async def init_producer_id(self, request: pb.InitProducerIdRequest, call: RpcCall) -> pb.InitProducerIdResponse:
        """Producer id and epoch, after whatever an instance before has left open is aborted."""
        producer_id = request.producer_id if request.HasField("producer_id") else NO_PRODUCER_ID
        epoch = request.producer_epoch if request.HasField("producer_epoch") else NO_EPOCH
        try:
            check_id(request.transactional_id)
            check_epoch_range(epoch, least=NO_EPOCH)
            self._service.check_room(request.transactional_id)
            fresh_id = await self._draw()

            def make(number: int) -> InitProducerId:
                return InitProducerId(
                    number,
                    request.transactional_id,
                    request.transaction_timeout_ms,
                    fresh_id,
                    producer_id,
                    epoch,
                    client=origin_of(call),
                )

            reply = await self._ask(request.transactional_id, make, InitProducerIdReply)
        except CoordinatorError as refusal:
            return pb.InitProducerIdResponse(**refusal_of(refusal), producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
        return pb.InitProducerIdResponse(producer_id=reply.producer_id, producer_epoch=reply.epoch)

    async def end_txn(self, request: pb.EndTxnRequest, call: RpcCall) -> pb.EndTxnResponse:
        """Producer id and epoch of the next transaction, once the outcome of this one is durable."""
        try:
            check_id(request.transactional_id)
            check_epoch_range(request.producer_epoch)
            rotates = request.producer_epoch >= LAST_CLIENT_EPOCH
            fresh_id = await self._draw() if rotates else NO_PRODUCER_ID

            def make(number: int) -> EndTxn:
                return EndTxn(
                    number,
                    request.transactional_id,
                    request.producer_id,
                    request.producer_epoch,
                    request.commit,
                    fresh_id,
                    level=RAISES_EPOCH,
                    client=origin_of(call),
                )

            reply = await self._ask(request.transactional_id, make, EndTxnReply)
        except CoordinatorError as refusal:
            return pb.EndTxnResponse(**refusal_of(refusal), producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)
        return pb.EndTxnResponse(producer_id=reply.producer_id, producer_epoch=reply.epoch)

    async def describe_transactions(
        self, request: pb.DescribeTransactionsRequest, call: RpcCall
    ) -> pb.DescribeTransactionsResponse:
        """Each id is described or refused by itself, and once, however often it is named."""
        names = list(dict.fromkeys(request.transactional_ids))
        replies = await describe_each(self._service, names)
        rows = len(names) + sum(len(each) for reply in replies for each in reply.partitions.values())
        return await make_aside(
            lambda: pb.DescribeTransactionsResponse(
                transactions=[
                    build_described(name, reply, self._node_id) for name, reply in zip(names, replies, strict=True)
                ]
            ),
            rows,
        )

    async def list_transactions(
        self, request: pb.ListTransactionsRequest, call: RpcCall
    ) -> pb.ListTransactionsResponse:
        """The ids of all shards, as far as they pass every filter, and what could not be read."""
        wanted = filter_of(request)
        try:
            found = await self._lists.get(wanted)
        except CoordinatorError as refusal:
            return pb.ListTransactionsResponse(**refusal_of(refusal), unknown_states=wanted.unknown_states)
        return await make_aside(lambda: build_list(found, wanted.unknown_states), len(found.listed))

    async def terminate_transaction(
        self, request: pb.TerminateTransactionRequest, call: RpcCall
    ) -> pb.TerminateTransactionResponse:
        """What the id has open is aborted, and its producer fenced. The timeout of the id stays."""
        try:
            check_id(request.transactional_id)
            fresh_id = await self._draw()

            def make(number: int) -> TerminateTransaction:
                return TerminateTransaction(number, request.transactional_id, fresh_id, client=origin_of(call))

            await self._ask(request.transactional_id, make, TerminateTransactionReply)
        except CoordinatorError as refusal:
            return pb.TerminateTransactionResponse(**refusal_of(refusal))
        return pb.TerminateTransactionResponse()

    async def explain_transactions(
        self, request: pb.ExplainTransactionsRequest, call: RpcCall
    ) -> pb.ExplainTransactionsResponse:
        """What the id has open, and how its last transactions ended."""
        try:
            check_id(request.transactional_id)
            if self._history is None:
                raise CoordinatorError(ErrorCode.UNSUPPORTED_VERSION, NO_HISTORY)
            reply, known, sentences = await self._history.read(request.transactional_id)
        except CoordinatorError as refusal:
            return pb.ExplainTransactionsResponse(**refusal_of(refusal))
        answer = pb.ExplainTransactionsResponse(
            ended=[build_ended(each) for each in known.ended],
            sentences=sentences,
            current_holds=[] if known.current is None else map(build_hold, known.current.holds[:HOLDS_TOLD]),
        )
        if reply is not None and reply.state not in IDLE_STATES:
            answer.current.CopyFrom(build_described(request.transactional_id, reply, self._node_id))
        return answer

    async def _draw(self) -> int:
        """A producer id that was never given before. Raises CoordinatorError."""
        try:
            return await self._service.draw_producer_id()
        except StorageError as error:
            raise CoordinatorError(
                ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no producer id can be had: {error}"
            ) from error

    async def _ask(
        self, transactional_id: str, make: Callable[[int], TransactionRequest], wanted: type[AskedReply]
    ) -> AskedReply:
        """Raises CoordinatorError where the answer is a refusal."""
        reply = await self._service.ask(transactional_id, make, wanted)
        check_replies([reply])
        return reply


def check_replies(replies: Iterable[Any]) -> None:
    """Raises CoordinatorError for the first refusal among them."""
    for each in replies:
        if each.code:
            raise CoordinatorError(each.code, each.message)


def check_id(transactional_id: str) -> None:
    """Raises CoordinatorError for one that no producer can have."""
    length = len(transactional_id.encode())
    if not 0 < length <= MAX_ID_BYTES:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST, f"transactional_id has {length} bytes; expected 1 to {MAX_ID_BYTES}"
        )


def check_epoch_range(epoch: int, *, least: int = 0) -> None:
    """Raises CoordinatorError for one that no producer can have: a record has 16 bits for it."""
    if not least <= epoch <= LAST_EPOCH:
        raise CoordinatorError(
            ErrorCode.INVALID_REQUEST, f"producer_epoch is {epoch}; expected {least} to {LAST_EPOCH}"
        )


def origin_of(call: RpcCall) -> RequestOrigin:
    """Who calls, for explanations."""
    return RequestOrigin(call.peer_host, call.client_software)


def filter_of(request: pb.ListTransactionsRequest) -> TransactionFilter:
    longer_ms = request.open_longer_than_ms if request.HasField("open_longer_than_ms") else -1
    return TransactionFilter(
        tuple(request.states), tuple(request.producer_ids), longer_ms, request.transactional_id_pattern
    )


# Answers in protobuf
# -------------------


def build_list(found: MatchingTransactions, unknown: Sequence[str]) -> pb.ListTransactionsResponse:
    """In any thread."""
    return pb.ListTransactionsResponse(
        unknown_states=unknown,
        transactions=[
            pb.ListedTransaction(transactional_id=each.transactional_id, producer_id=each.producer_id, state=each.state)
            for each in found.listed
        ],
        unread=[
            pb.UnreadTransactions(
                partition=shard,
                error_code=code_of(reply.code),
                error_message=error_sentence(reply.code, reply.message),
            )
            for shard, reply in found.unread.items()
        ],
    )


def build_described(
    transactional_id: str, reply: DescribeTransactionReply, coordinator_id: int
) -> pb.DescribedTransaction:
    if reply.code:
        return refuse_described(transactional_id, CoordinatorError(reply.code, reply.message), coordinator_id)
    return pb.DescribedTransaction(
        transactional_id=transactional_id,
        coordinator_id=coordinator_id,
        state=reply.state,
        producer_id=reply.producer_id,
        producer_epoch=reply.epoch,
        transaction_timeout_ms=reply.timeout_ms,
        start_time_ms=NO_TIME if reply.state in IDLE_STATES else reply.started_ms,
        topics=[
            pb.TransactionPartitions(topic=topic, partitions=numbers) for topic, numbers in reply.partitions.items()
        ],
        client_address=reply.client.address,
        client_software=reply.client.software,
    )


def refuse_described(transactional_id: str, refusal: CoordinatorError, coordinator_id: int) -> pb.DescribedTransaction:
    return pb.DescribedTransaction(
        **refusal_of(refusal),
        transactional_id=transactional_id,
        coordinator_id=coordinator_id,
        producer_id=NO_PRODUCER_ID,
        producer_epoch=NO_EPOCH,
        start_time_ms=NO_TIME,
    )


def build_ended(end: ExplainedEnd) -> pb.EndedTransaction:
    """One of the last ends, as far as it is known."""
    return pb.EndedTransaction(
        producer_id=end.producer_id,
        producer_epoch=end.epoch,
        committed=end.committed,
        cause=end.cause,
        client_address=end.by.address,
        client_software=end.by.software,
        start_time_ms=end.started_ms,
        decided_at_ms=end.decided_ms,
        completed_at_ms=end.completed_ms,
        partition_count=end.partitions,
        holds=map(build_hold, end.holds),
        producer_address=end.of.address,
        producer_software=end.of.software,
    )


def build_hold(hold: HeldOffset) -> pb.StableOffsetHold:
    return pb.StableOffsetHold(
        topic=hold.topic,
        partition=hold.partition,
        offset=hold.offset,
        held_ms=hold.held_ms,
        records=hold.records,
        at_least=not hold.exactly,
        behind=hold.behind,
    )


# Nodes without a coordinator of transactions
# -------------------------------------------


class RefusedTransactionRpcs:
    """The Transactions service of a node that coordinates no transactional ids. remedy: a sentence on what to do."""

    def __init__(self, remedy: str = "") -> None:
        self._remedy = remedy

    def _refuse(self, transactional_id: str) -> CoordinatorError:
        none = str(refuse_transactions(transactional_id))
        if self._remedy:
            none = f"transactional.id '{transactional_id}': {self._remedy}" if transactional_id else self._remedy
        return CoordinatorError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, none)

    async def init_producer_id(self, request: pb.InitProducerIdRequest, call: RpcCall) -> pb.InitProducerIdResponse:
        refused = refusal_of(self._refuse(request.transactional_id))
        return pb.InitProducerIdResponse(**refused, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)

    async def end_txn(self, request: pb.EndTxnRequest, call: RpcCall) -> pb.EndTxnResponse:
        refused = refusal_of(self._refuse(request.transactional_id))
        return pb.EndTxnResponse(**refused, producer_id=NO_PRODUCER_ID, producer_epoch=NO_EPOCH)

    async def describe_transactions(
        self, request: pb.DescribeTransactionsRequest, call: RpcCall
    ) -> pb.DescribeTransactionsResponse:
        return pb.DescribeTransactionsResponse(
            transactions=[
                refuse_described(each, self._refuse(each), -1) for each in dict.fromkeys(request.transactional_ids)
            ]
        )

    async def list_transactions(
        self, request: pb.ListTransactionsRequest, call: RpcCall
    ) -> pb.ListTransactionsResponse:
        """An empty list would say that nothing is open."""
        wanted = filter_of(request)
        try:
            await keep_matching((), wanted.pattern)
        except CoordinatorError as refusal:
            return pb.ListTransactionsResponse(**refusal_of(refusal), unknown_states=wanted.unknown_states)
        return pb.ListTransactionsResponse(**refusal_of(self._refuse("")), unknown_states=wanted.unknown_states)

    async def terminate_transaction(
        self, request: pb.TerminateTransactionRequest, call: RpcCall
    ) -> pb.TerminateTransactionResponse:
        return pb.TerminateTransactionResponse(**refusal_of(self._refuse(request.transactional_id)))

    async def explain_transactions(
        self, request: pb.ExplainTransactionsRequest, call: RpcCall
    ) -> pb.ExplainTransactionsResponse:
        return pb.ExplainTransactionsResponse(**refusal_of(self._refuse(request.transactional_id)))


def make_transaction_rpcs(
    service: TransactionService | None,
    history: TransactionHistory | None = None,
    *,
    node_id: int,
    remedy: str = "",
) -> dict[str, ServiceMethod]:
    """The rows of the Transactions service. service: None where the node coordinates no transactional ids; history:
    None where it keeps none of their ends. remedy: see `RefusedTransactionRpcs`."""
    handlers = RefusedTransactionRpcs(remedy) if service is None else TransactionRpcs(service, history, node_id=node_id)
    return methods_of(TRANSACTION_SERVICE, handlers)
