"""How the upstream is reached and spoken to: addresses and credentials, the APIs and versions in use, and the errors.

The client knows no more of Kafka's protocol than the backend needs. `needed` APIs must be offered, or the node
refuses to start. The text of an error is a sentence for operators; none of them holds a secret.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

from muster.coordinator.config.values import Address, format_address

# Errors
# ------

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


# Addresses and credentials
# -------------------------

OWN: Final = "engine.kafka."
"""How the settings begin that say who a node is."""


@dataclass(frozen=True, slots=True)
class UpstreamCredentials:
    """By SASL. token_file: of OAUTHBEARER, read anew for each connection; the others have name and password. of: how
    the settings begin that say it."""

    mechanism: str
    username: str = ""
    password: str = field(default="", repr=False)
    token_file: str = ""
    of: str = OWN

    def token(self) -> str:
        try:
            token = Path(self.token_file).read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise UpstreamError(
                "the token for the upstream cannot be read: "
                f"{getattr(error, 'strerror', None) or 'it is not UTF-8 text'}; "
                f"check the file of {self.of}sasl.oauthbearer.token.file"
            ) from None
        if not token or any(char <= " " or char > "~" for char in token):
            raise UpstreamError(f"{self.of}sasl.oauthbearer.token.file holds no token; expected one line with it")
        return token


@dataclass(frozen=True, slots=True)
class UpstreamTlsFiles:
    """Files in PEM: whom we believe (empty: what the system believes), and what we show (empty: nothing). of: how the
    settings begin that say the latter."""

    truststore: str = ""
    keystore: str = ""
    key_password: str = field(default="", repr=False)
    of: str = OWN

    def context(self) -> ssl.SSLContext:
        """Read anew for each connection, so that certificates may change. Raises UpstreamError."""
        try:
            made = ssl.create_default_context(cafile=self.truststore or None)
            if self.keystore:
                made.load_cert_chain(self.keystore, password=self.key_password)
        except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
            raise UpstreamError(
                f"the certificates for the upstream cannot be used: {getattr(error, 'strerror', None) or error}; "
                f"{OWN}ssl.truststore.location and {self.of}ssl.keystore.location name files in PEM"
            ) from None
        return made


@dataclass(frozen=True, slots=True)
class UpstreamAddress:
    servers: tuple[Address, ...]
    """Where to begin; who else there is the upstream tells."""
    login: UpstreamCredentials | None = None
    certificates: UpstreamTlsFiles | None = None
    """None: in the clear."""
    client_id: str = "muster"
    connect_s: float = 10.0
    """Within which a connection is made, greeted and logged in."""
    answer_s: float = 30.0
    """Within which a request is answered, beside what it may wait by its own words."""
    reads_only: bool = False
    """Nothing is asked but READING_APIS: whatever else would be is refused before it leaves."""


# API versions
# ------------


class SupportedApi(NamedTuple):
    """One API. Versions first to last are spoken; `needed`: an upstream without any of them is refused at start."""

    key: int
    first: int
    last: int
    needed: bool = False


SUPPORTED_APIS: Final[Mapping[str, SupportedApi]] = {
    # Up to 12 a fetch names topics, not ids; up to 9 a produce answers without addresses of brokers.
    "Produce": SupportedApi(0, 3, 9, needed=True),
    "Fetch": SupportedApi(1, 4, 12, needed=True),
    "ListOffsets": SupportedApi(2, 2, 7, needed=True),
    "Metadata": SupportedApi(3, 10, 12, needed=True),
    "OffsetCommit": SupportedApi(8, 6, 9),
    "OffsetFetch": SupportedApi(9, 8, 9),
    "FindCoordinator": SupportedApi(10, 1, 3, needed=True),
    "JoinGroup": SupportedApi(11, 5, 9),
    "Heartbeat": SupportedApi(12, 3, 4),
    "LeaveGroup": SupportedApi(13, 3, 5),
    "SyncGroup": SupportedApi(14, 3, 5),
    "DescribeGroups": SupportedApi(15, 3, 6),
    "ListGroups": SupportedApi(16, 3, 5),
    "SaslHandshake": SupportedApi(17, 1, 1),
    "ApiVersions": SupportedApi(18, 0, 3),
    "CreateTopics": SupportedApi(19, 2, 7),
    "InitProducerId": SupportedApi(22, 1, 4, needed=True),
    "AddPartitionsToTxn": SupportedApi(24, 0, 3),
    "DescribeConfigs": SupportedApi(32, 1, 4),
    "DescribeLogDirs": SupportedApi(35, 1, 4),
    "SaslAuthenticate": SupportedApi(36, 0, 2),
    "DescribeProducers": SupportedApi(61, 0, 0),
    "DescribeTransactions": SupportedApi(65, 0, 0),
    "ConsumerGroupDescribe": SupportedApi(69, 0, 0),
}

READING_APIS: Final = frozenset(
    {
        "ApiVersions", "ConsumerGroupDescribe", "DescribeConfigs", "DescribeGroups", "DescribeLogDirs", "Fetch",
        "ListGroups", "ListOffsets", "Metadata", "OffsetFetch", "SaslAuthenticate", "SaslHandshake",
    }
)  # fmt: skip
"""Those that change nothing. FindCoordinator does: a new cluster makes the topic of its coordinators then."""


def negotiate_versions(offered: Mapping[int, tuple[int, int]]) -> dict[str, int]:
    """The highest version of each API that both sides speak; APIs without one are left out.

    >>> negotiate_versions({18: (0, 4), 0: (0, 2), 1: (4, 17)})
    {'Fetch': 12, 'ApiVersions': 3}
    """
    found = {}
    for name, api in SUPPORTED_APIS.items():
        first, last = offered.get(api.key, (0, -1))
        version = min(api.last, last)
        if version >= max(api.first, first):
            found[name] = version
    return found


def missing_apis(versions: Mapping[str, int]) -> list[str]:
    """What the engine cannot do without and the upstream does not offer, such as `Metadata 10`."""
    return [f"{name} {api.first}" for name, api in SUPPORTED_APIS.items() if api.needed and name not in versions]
