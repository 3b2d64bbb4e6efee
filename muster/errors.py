"""What the clients raise, and the error codes that a coordinator answers with.

>>> from muster import errors
>>> issubclass(errors.CommitFailed, errors.ClientError), errors.ErrorCode(27).name
(True, 'REBALANCE_IN_PROGRESS')
"""

from muster.coordinator.client.errors import (
    BufferFull,
    ClientError,
    CommitFailed,
    ConfigError,
    ConsumerRebalanceFailed,
    CorruptRecords,
    DeliveryFailed,
    FencedInstance,
    GroupNotEmpty,
    GroupNotFound,
    IllegalState,
    InvalidTopic,
    MessageTooLarge,
    NoOffset,
    OffsetOutOfRange,
    ProducerFenced,
    RebalanceInProgress,
    Refused,
    TopicExists,
    TransportRefused,
    UnknownTopic,
    Unreachable,
    WrongPort,
    WrongProcess,
    ZookeeperAway,
    ZookeeperRefused,
)
from muster.coordinator.errors import ErrorCode

__all__ = [
    "BufferFull",
    "ClientError",
    "CommitFailed",
    "ConfigError",
    "ConsumerRebalanceFailed",
    "CorruptRecords",
    "DeliveryFailed",
    "ErrorCode",
    "FencedInstance",
    "GroupNotEmpty",
    "GroupNotFound",
    "IllegalState",
    "InvalidTopic",
    "MessageTooLarge",
    "NoOffset",
    "OffsetOutOfRange",
    "ProducerFenced",
    "RebalanceInProgress",
    "Refused",
    "TopicExists",
    "TransportRefused",
    "UnknownTopic",
    "Unreachable",
    "WrongPort",
    "WrongProcess",
    "ZookeeperAway",
    "ZookeeperRefused",
]
