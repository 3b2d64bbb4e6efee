"""What can go wrong for a client, as types. Every message names the thing, and what to do about it.

`Refused` and below: a node answered no, by Kafka's number. `Unreachable`: no node answered.
"""

from collections.abc import Mapping

RETRIABLE = frozenset({3, 5, 6, 7, 9, 14, 15, 16, 19, 20, 27, 41, 56, 74, 75, 78, 79, 88, 100, 111, 113})
"""Kafka's codes after which the same request may succeed later."""


class ClientError(Exception):
    """Anything this package raises on purpose."""


class ConfigError(ClientError, ValueError):
    """A property that is unknown, malformed, or contradicts another one."""


class IllegalState(ClientError, RuntimeError):
    """The call does not fit what this client was asked to do before."""


class Unreachable(ClientError, ConnectionError):
    """No answer from a node for longer than the caller is ready to wait.

    `what` says it more precisely where more is known: the node cannot be reached, or the connection broke.
    """

    def __init__(self, address: str, waited_ms: int, doing: str, detail: str = "", what: str = "") -> None:
        self.address = address
        self.waited_ms = waited_ms
        self.doing = doing
        self.detail = detail
        silence = f" for {waited_ms} ms" if waited_ms > 0 else ""
        self.brief = f"{doing}: {what or f'no answer from {address}{silence}'}"
        """What happened, without detail and remedy: for a notice that somebody tries again."""
        because = f" ({detail})" if detail else ""
        remedy = "is a node running there (muster serve), and is bootstrap.servers right?"
        super().__init__(f"{self.brief}{because}; {remedy}")

    def after(self, waited_ms: int) -> "Unreachable":
        """The same, for attempts that took so long together."""
        return Unreachable(self.address, waited_ms, self.doing, self.detail)


class WrongPort(Unreachable):
    """Something listens at the address that is no node of Muster's; to try again would not change it."""

    def __init__(self, found: Unreachable, what: str) -> None:
        super().__init__(found.address, found.waited_ms, found.doing, found.detail)
        self.brief = f"{found.doing}: {found.address} {what}"
        self.args = (self.brief,)

    def after(self, waited_ms: int) -> "Unreachable":
        return self


class NotTrusted(WrongPort):
    """Client and node do not come to trust each other: a certificate is not what the other side expects."""


class TransportRefused(ClientError):
    """The node's transport refused the call itself: malformed, not permitted, or over a limit."""

    def __init__(self, address: str, doing: str, status: str, detail: str) -> None:
        super().__init__(f"{doing}: {address} refused the call: {status}: {detail}")
        self.address = address
        self.status = status
        self.detail = detail


class AuthenticationError(TransportRefused):
    """The node does not know who this is: no token, or one that is wrong, revoked or over. Not tried again."""

    def __init__(self, address: str, doing: str, detail: str) -> None:
        super().__init__(address, doing, "UNAUTHENTICATED", detail)
        self.args = (
            f"{doing}: {address} does not know who this is ({detail or 'UNAUTHENTICATED'}); show a token that is valid "
            "(token, token.file), or a certificate (ssl.keystore.location)",
        )


class AuthorizationError(ClientError):
    """The node knows who this is, and what was asked is not among its rights; the message says which one is missing."""


class CallNotAuthorized(AuthorizationError, TransportRefused):
    """The call as a whole was refused (gRPC's PERMISSION_DENIED)."""

    def __init__(self, address: str, doing: str, detail: str) -> None:
        TransportRefused.__init__(self, address, doing, "PERMISSION_DENIED", detail)
        self.args = (f"{doing}: {detail or f'{address} does not allow it'}",)


class Refused(ClientError):
    """A node said no. `code` and `name` are Kafka's."""

    def __init__(self, code: int, name: str, message: str) -> None:
        super().__init__(f"{name}: {message}" if message else name)
        self.code = code
        self.name = name
        self.message = message

    @property
    def retriable(self) -> bool:
        return self.code in RETRIABLE


class UnknownTopic(Refused):
    """No such topic or partition."""


class TopicExists(Refused):
    """A topic of that name exists already."""


class InvalidTopic(Refused):
    """Not a legal topic name or number of partitions."""


class MessageTooLarge(Refused):
    """A record larger than the topic's max.message.bytes."""


class OffsetOutOfRange(Refused):
    """The log does not hold this offset, and auto.offset.reset says not to move."""


class LogTruncated(OffsetOutOfRange):
    """The log lost records that this consumer has read (an unclean election), and auto.offset.reset says not to move.

    `offset` is where the consumer stood, `divergence` where its records and the log's part: seek there, or further on.
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
    """The group went on without this member; what it has not committed will be read again by the new owner."""


class RebalanceInProgress(CommitFailed):
    """The commit came while the group rebalances; poll, and commit again what is still owned."""


class ProducerFenced(Refused):
    """Another owner of the partition may write by now; this one has to stop writing on its behalf."""


class FencedInstance(Refused):
    """Another process runs with the same group.instance.id."""


class GroupNotFound(Refused):
    """There is no such group."""


class GroupNotEmpty(Refused):
    """The group has members; stop them first."""


class NotAuthorized(AuthorizationError, Refused):
    """A topic, group, or the cluster is not for this principal; whether there is such a one is not told either."""


class ConsumerRebalanceFailed(ClientError):
    """A consumer of the ZooKeeper era ran out of retries. It owns nothing; the next change in its group starts it anew.

    `holders`: who held each partition that could not be claimed, at the last attempt.
    """

    def __init__(self, message: str, holders: Mapping[tuple[str, int], str]) -> None:
        super().__init__(message)
        self.holders = dict(holders)


class ZookeeperRefused(ClientError):
    """ZooKeeper, or what is kept in it, does not allow what was asked; the message says what helps."""


class ZookeeperAway(ZookeeperRefused, ConnectionError):
    """No server of the ensemble answered in time."""


class NoOffset(ClientError):
    """Nothing is committed for a partition, and auto.offset.reset=none says not to guess."""


class CorruptRecords(ClientError):
    """Fetched bytes that are not valid record batches."""


class BufferFull(ClientError):
    """The producer's buffer.memory stayed full for max.block.ms."""


class DeliveryFailed(ClientError):
    """Records that could not be delivered; `first` is the first reason."""

    def __init__(self, count: int, first: Exception) -> None:
        super().__init__(f"{count} record(s) were not delivered; the first because: {first}")
        self.count = count
        self.first = first


class WrongProcess(IllegalState):
    """A client that was created before a fork."""


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
    53: NotAuthorized,
    65: NotAuthorized,
    68: GroupNotEmpty,
    69: GroupNotFound,
    82: FencedInstance,
    113: CommitFailed,
}


NOT_ALLOWED = frozenset(code for code, kind in BY_CODE.items() if issubclass(kind, AuthorizationError))
NO_RIGHT = "this principal has no right to that; whoever runs the node can grant it (muster acls, kafka-acls)"
"""Of a node that does not say which right is missing: to who may not know it."""


def refusal(code: int, name: str, message: str, about: str = "") -> Refused:
    """The typed error for a Kafka code; `about` names the thing that was refused, once.

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
