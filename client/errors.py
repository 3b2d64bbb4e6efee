"""Errors of the clients. Every message names the thing that failed, and what to do about it.

`Refused` and its subclasses: a node refused the request, with one of Kafka's error codes. `Unreachable`: no node
answered.
"""

from collections.abc import Mapping

RETRIABLE = frozenset({3, 5, 6, 7, 9, 14, 15, 16, 19, 20, 27, 41, 51, 56, 74, 75, 78, 79, 88, 100, 111, 113})
"""Kafka's codes after which the same request may succeed later."""


class ClientError(Exception):
    """The base class of all errors that the clients raise."""


class ConfigError(ClientError, ValueError):
    """A property is unknown, malformed, or contradicts another one."""


class IllegalState(ClientError, RuntimeError):
    """The call does not fit the state of this client, such as `poll` after `close`."""


class Unreachable(ClientError, ConnectionError):
    """No node answered within the time limit.

    `what` says more if it is known: the node cannot be reached, or the connection broke.
    """

    def __init__(self, address: str, waited_ms: int, doing: str, detail: str = "", what: str = "") -> None:
        self.address = address
        self.waited_ms = waited_ms
        self.doing = doing
        self.detail = detail
        silence = f" for {waited_ms} ms" if waited_ms > 0 else ""
        self.brief = f"{doing}: {what or f'no answer from {address}{silence}'}"
        """What happened, without detail and remedy: for the notice of a retry."""
        because = f" ({detail})" if detail else ""
        remedy = "is a node running there (muster serve), and is bootstrap.servers right?"
        super().__init__(f"{self.brief}{because}; {remedy}")

    def after(self, waited_ms: int) -> "Unreachable":
        """The same error for several attempts, which took `waited_ms` together."""
        return Unreachable(self.address, waited_ms, self.doing, self.detail)


class WrongPort(Unreachable):
    """What listens at the address is not a Muster node. Not retried."""

    def __init__(self, found: Unreachable, what: str) -> None:
        super().__init__(found.address, found.waited_ms, found.doing, found.detail)
        self.brief = f"{found.doing}: {found.address} {what}"
        self.args = (self.brief,)

    def after(self, waited_ms: int) -> "Unreachable":
        return self


class NotTrusted(WrongPort):
    """The TLS handshake failed: one side does not accept the certificate of the other. Not retried."""


class TransportRefused(ClientError):
    """gRPC refused the call: it is malformed, not permitted, or over a limit. `status` is gRPC's."""

    def __init__(self, address: str, doing: str, status: str, detail: str) -> None:
        super().__init__(f"{doing}: {address} refused the call: {status}: {detail}")
        self.address = address
        self.status = status
        self.detail = detail


class AuthenticationError(TransportRefused):
    """The node cannot authenticate the client: its token is missing, wrong, revoked or expired. Not retried."""

    def __init__(self, address: str, doing: str, detail: str) -> None:
        super().__init__(address, doing, "UNAUTHENTICATED", detail)
        self.args = (
            f"{doing}: {address} does not know who this is ({detail or 'UNAUTHENTICATED'}); show a token that is valid "
            "(token, token.file), or a certificate (ssl.keystore.location)",
        )


class AuthorizationError(ClientError):
    """The authenticated principal lacks a right, which the message names."""


class CallNotAuthorized(AuthorizationError, TransportRefused):
    """The principal may not make this call (gRPC's PERMISSION_DENIED)."""

    def __init__(self, address: str, doing: str, detail: str) -> None:
        TransportRefused.__init__(self, address, doing, "PERMISSION_DENIED", detail)
        self.args = (f"{doing}: {detail or f'{address} does not allow it'}",)


class Refused(ClientError):
    """A node refused the request. `code` and `name` are Kafka's."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}" if message else name)
        self.code = code
        self.name = name
        self.message = message

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE


class UnknownTopic(Refused):
    """The topic or partition does not exist."""


class TopicExists(Refused):
    """A topic with this name exists already."""


class InvalidTopic(Refused):
    """The topic's name or number of partitions is not valid."""


class MessageTooLarge(Refused):
    """A record is larger than the topic's max.message.bytes."""


class OffsetOutOfRange(Refused):
    """The log does not have this offset, and auto.offset.reset is none."""


class LogTruncated(OffsetOutOfRange):
    """The log lost records that this consumer has read (an unclean election), and auto.offset.reset is none.

    `offset` is the consumer's position; from `divergence` on the log differs from what it read: seek there, or beyond.
    """

    def __init__(self, partition: tuple[str, int], offset: int, divergence: int) -> None:
        self.partition = partition
        self.offset = offset
        self.divergence = divergence
        super().__init__(
            1,
            "OFFSET_OUT_OF_RANGE",
            f"{partition[0]}-{partition[1]}: records up to offset {offset} were read, and from {divergence} on the log "
            f"has others or none, as another leader did not have them; seek to {divergence}, or set auto.offset.reset",
        )


class CommitFailed(Refused):
    """The member no longer owns what it commits; the new owner reads again what was not committed."""


class RebalanceInProgress(CommitFailed):
    """The group is rebalancing: poll, then commit again for partitions that are still owned."""


class ProducerFenced(Refused):
    """A newer producer has fenced this one, which must stop writing. It is of no use any more: make another."""


class TransactionAborted(ClientError):
    """The transaction could not be completed and is aborted: nothing of it is seen by readers of committed records.

    Leave the block and begin again, after the consumer has gone back to its committed positions. `reason` is the error
    that led to it.
    """

    def __init__(self, reason: Exception) -> None:
        super().__init__(f"the transaction was aborted, because: {reason}; begin it again")
        self.reason = reason


class OutcomeUnknown(ClientError):
    """The coordinator did not say within delivery.timeout.ms whether the transaction is committed.

    It is committed completely or not at all. The next `begin` first settles it: what is not decided by then is aborted.
    """


class FencedInstance(Refused):
    """Another process uses the same group.instance.id."""


class GroupNotFound(Refused):
    """The group does not exist."""


class TransactionalIdNotFound(Refused):
    """There is no such transactional id: none was used lately, or it has expired."""


class GroupNotEmpty(Refused):
    """The group has members; stop them first."""


class NotAuthorized(AuthorizationError, Refused):
    """The principal lacks a right to a topic, a group or the cluster. The error does not reveal whether it exists."""


class TransactionalIdNotAuthorized(NotAuthorized, ProducerFenced):
    """The principal may not use this transactional id, or the node coordinates none."""


class ConsumerRebalanceFailed(ClientError):
    """A ZooKeeper-based consumer ran out of rebalance retries. It owns nothing until the next change in its group.

    `holders`: the owner of each partition that the last attempt could not claim.
    """

    def __init__(self, message: str, holders: Mapping[tuple[str, int], str]) -> None:
        super().__init__(message)
        self.holders = dict(holders)


class ZookeeperRefused(ClientError):
    """ZooKeeper, or the data in it, does not allow the operation; the message says what helps."""


class ZookeeperAway(ZookeeperRefused, ConnectionError):
    """No ZooKeeper server answered in time."""


class NoOffset(ClientError):
    """A partition has no committed offset, and auto.offset.reset is none."""


class CorruptRecords(ClientError):
    """Fetched bytes are not valid record batches."""


class BufferFull(ClientError):
    """The producer's buffer.memory stayed full for max.block.ms."""


class DeliveryFailed(ClientError):
    """Some records could not be delivered; `first` is the first error."""

    def __init__(self, count: int, first: Exception) -> None:
        super().__init__(f"{count} record(s) were not delivered; the first because: {first}")
        self.count = count
        self.first = first


class WrongProcess(IllegalState):
    """The client was created before a fork, in another process."""


BY_CODE: Mapping[int, type[Refused]] = {
    1: OffsetOutOfRange,
    3: UnknownTopic,
    10: MessageTooLarge,
    17: InvalidTopic,
    18: MessageTooLarge,
    22: CommitFailed,
    25: CommitFailed,
    27: RebalanceInProgress,
    29: NotAuthorized,
    30: NotAuthorized,
    31: NotAuthorized,
    36: TopicExists,
    37: InvalidTopic,
    47: ProducerFenced,
    49: ProducerFenced,
    53: TransactionalIdNotAuthorized,
    65: NotAuthorized,
    68: GroupNotEmpty,
    69: GroupNotFound,
    82: FencedInstance,
    90: ProducerFenced,
    105: TransactionalIdNotFound,
    113: CommitFailed,
}


NOT_ALLOWED = frozenset(code for code, kind in BY_CODE.items() if issubclass(kind, AuthorizationError))
NO_RIGHT = "this principal has no right to that; whoever runs the node can grant it (muster acls, kafka-acls)"
"""The message if the node does not say which right is missing."""


def refusal(code: int, name: str, message: str, about: str = "") -> Refused:
    """Make the typed error of a Kafka error code; `about` names the refused thing, unless `message` does.

    >>> str(refusal(36, "TOPIC_ALREADY_EXISTS", "choose another name", "orders"))
    'TOPIC_ALREADY_EXISTS: orders: choose another name'
    >>> str(refusal(36, "TOPIC_ALREADY_EXISTS", "topic 'orders' exists already", "orders"))
    "TOPIC_ALREADY_EXISTS: topic 'orders' exists already"
    """
    if code in NOT_ALLOWED and not message:
        message = NO_RIGHT
    named = not about or f"'{about}'" in message or message.startswith(f"{about}:")
    told = message if named and message else ": ".join(part for part in (about, message) if part)
    return BY_CODE.get(code, Refused)(code, name.removeprefix("ERROR_CODE_"), told)
