"""What can go wrong with the upstream, as sentences. None of them holds a secret."""

from muster.coordinator.config.addresses import Address, format_address

NAMES = {
    -1: "UNKNOWN_SERVER_ERROR", 1: "OFFSET_OUT_OF_RANGE", 2: "CORRUPT_MESSAGE", 3: "UNKNOWN_TOPIC_OR_PARTITION",
    5: "LEADER_NOT_AVAILABLE", 6: "NOT_LEADER_OR_FOLLOWER", 7: "REQUEST_TIMED_OUT", 10: "MESSAGE_TOO_LARGE",
    14: "COORDINATOR_LOAD_IN_PROGRESS", 15: "COORDINATOR_NOT_AVAILABLE", 16: "NOT_COORDINATOR",
    17: "INVALID_TOPIC_EXCEPTION",
    19: "NOT_ENOUGH_REPLICAS", 20: "NOT_ENOUGH_REPLICAS_AFTER_APPEND", 26: "INVALID_SESSION_TIMEOUT",
    29: "TOPIC_AUTHORIZATION_FAILED", 30: "GROUP_AUTHORIZATION_FAILED", 31: "CLUSTER_AUTHORIZATION_FAILED",
    33: "UNSUPPORTED_SASL_MECHANISM", 34: "ILLEGAL_SASL_STATE", 35: "UNSUPPORTED_VERSION", 36: "TOPIC_ALREADY_EXISTS",
    38: "INVALID_REPLICATION_FACTOR", 45: "OUT_OF_ORDER_SEQUENCE_NUMBER", 46: "DUPLICATE_SEQUENCE_NUMBER",
    47: "INVALID_PRODUCER_EPOCH", 48: "INVALID_TXN_STATE", 51: "CONCURRENT_TRANSACTIONS",
    53: "TRANSACTIONAL_ID_AUTHORIZATION_FAILED", 56: "KAFKA_STORAGE_ERROR", 58: "SASL_AUTHENTICATION_FAILED",
    59: "UNKNOWN_PRODUCER_ID", 74: "FENCED_LEADER_EPOCH", 75: "UNKNOWN_LEADER_EPOCH", 82: "FENCED_INSTANCE_ID",
    90: "PRODUCER_FENCED", 100: "UNKNOWN_TOPIC_ID", 105: "TRANSACTIONAL_ID_NOT_FOUND", 120: "TRANSACTION_ABORTABLE",
}  # fmt: skip
"""Kafka's codes that the engine may meet."""

WAIT_FOR_COORDINATOR = frozenset({14, 15, 16, 51})
"""Asked again after a while: the coordinator moves, or ends what was before."""

WAIT_FOR_LEADER = frozenset({3, 5, 6, 7, 19, 20, 56, 74, 75})
"""KB-A2: the same bytes are sent again, to whoever leads then."""

FENCED_CODES = frozenset({47, 90, 120})
"""KB-F5: somebody else owns the shard."""


class UpstreamError(Exception):
    """The upstream could not be asked, or refused. The text is a sentence for operators."""


class Unreached(UpstreamError):
    """No answer: what became of the request is not known."""


class Unspoken(UpstreamError):
    """The upstream does not know how to do that: it is too old."""


class UpstreamRefused(UpstreamError):
    """The upstream said no."""

    def __init__(self, doing: str, code: int, detail: str | None = None) -> None:
        super().__init__(f"{doing}: the upstream says {describe_code(code)}" + (f" ({detail})" if detail else ""))
        self.code = code


def code_name(code: int) -> str:
    """A code's name, or its number where it has none here.

    >>> code_name(47), code_name(999)
    ('INVALID_PRODUCER_EPOCH', '999')
    """
    return NAMES.get(code, str(code))


def describe_code(code: int) -> str:
    """A code of Kafka's, for people.

    >>> describe_code(47), describe_code(999)
    ('INVALID_PRODUCER_EPOCH (47)', 'error 999')
    """
    return f"{NAMES[code]} ({code})" if code in NAMES else f"error {code}"


def describe_address(address: Address) -> str:
    return format_address(*address)
