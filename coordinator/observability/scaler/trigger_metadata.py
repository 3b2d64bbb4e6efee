"""The metadata of a trigger in a ScaledObject: the keys of KEDA's Kafka scaler, and Muster's, parsed and checked.

Facts of the keys: kedacore/keda, pkg/scalers/kafka_scaler.go.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TypeVar

from muster.coordinator.edge.request_limits import MAX_ENTRIES, MAX_NAME_CHARS, MAX_SHORT_ENTRIES

T = TypeVar("T")

MAX_VALUE_CHARS = 4_096
SHOWN_CHARS = 60
FROM_ENV = "FromEnv"
"""KEDA puts the variable's value under the key with this ending."""


class BadMetadata(ValueError):
    """Metadata that are no trigger: the key, its value and what was expected. It is sent as INVALID_ARGUMENT."""

    def __init__(self, key: str, value: str, expected: str) -> None:
        shown = value if len(value) <= SHOWN_CHARS else value[: SHOWN_CHARS - 3] + "..."
        super().__init__(f"{key} is {shown!r}; expected {expected}")
        self.field = key


@dataclass(frozen=True, slots=True)
class ScalerTrigger:
    """One trigger. `topic` empty: all topics in which the group has committed. `drain_target_s` 0: Kafka's rules."""

    group: str
    topic: str = ""
    lag_threshold: int = 10
    activation_lag_threshold: int = 0
    earliest: bool = False
    """offsetResetPolicy: where consumers begin that find nothing committed."""
    allow_idle_consumers: bool = False
    scale_to_zero_on_invalid_offset: bool = False
    exclude_persistent_lag: bool = False
    limit_to_partitions_with_lag: bool = False
    ensure_even_distribution: bool = False
    partitions: frozenset[int] | None = None
    """partitionLimitation; None: all."""
    drain_target_s: int = 0
    hold_during_rebalance: bool = True
    max_step: int = 0
    """By how many replicas the figure may change at once; 0: any."""

    @property
    def metric_name(self) -> str:
        """KEDA's name of the Kafka scaler's metric, with characters that Kubernetes takes."""
        name = f"kafka-{self.topic}" if self.topic else f"kafka-{self.group}-topics"
        return "".join(each if each.isascii() and (each.isalnum() or each == "-") else "-" for each in name)


KEYS = {
    "consumerGroup": "group",
    "topic": "topic",
    "lagThreshold": "lag_threshold",
    "activationLagThreshold": "activation_lag_threshold",
    "offsetResetPolicy": "earliest",
    "allowIdleConsumers": "allow_idle_consumers",
    "scaleToZeroOnInvalidOffset": "scale_to_zero_on_invalid_offset",
    "excludePersistentLag": "exclude_persistent_lag",
    "limitToPartitionsWithLag": "limit_to_partitions_with_lag",
    "ensureEvenDistributionOfPartitions": "ensure_even_distribution",
    "partitionLimitation": "partitions",
    "drainTargetSeconds": "drain_target_s",
    "holdDuringRebalance": "hold_during_rebalance",
    "maxStep": "max_step",
}
"""Each key that says something, and the field of `ScalerTrigger` that it fills."""

NOT_USED = frozenset({
    "scalerAddress", "enableTLS", "unsafeSsl", "caCert", "tlsCertFile", "tlsClientCert", "tlsClientKey", "metricType",
    "bootstrapServers", "version", "fullMetadata", "tls", "sasl",
    "saslTokenProvider", "scopes", "oauthTokenEndpointUri", "oauthExtensions", "awsRegion",
})  # fmt: skip
"""How KEDA comes to a scaler, or its Kafka scaler to a broker. Nothing to this side: a trigger may be taken over."""


def parse_metadata(metadata: Mapping[str, str]) -> ScalerTrigger:
    """The trigger. Raises BadMetadata with the first key that is wrong."""
    if len(metadata) > MAX_SHORT_ENTRIES:
        raise BadMetadata("scalerMetadata", f"{len(metadata)} keys", f"at most {MAX_SHORT_ENTRIES}")
    given: dict[str, object] = {}
    for key, value in sorted(metadata.items()):
        name = key.removesuffix(FROM_ENV)
        if name in KEYS:
            if len(value) > MAX_VALUE_CHARS:
                raise BadMetadata(key, value, f"at most {MAX_VALUE_CHARS} characters; it has {len(value)}")
            given[KEYS[name]] = READERS[name](key, value)
        elif name not in NOT_USED:
            near = get_close_matches(name, KEYS, n=1)
            meant = f" (did you mean {near[0]}?)" if near else ""
            raise BadMetadata(key, value, f"one of the keys {', '.join(KEYS)}{meant}")
    if not given.get("group"):
        raise BadMetadata("consumerGroup", "", "the id of the group whose consumers are scaled")
    return _checked(ScalerTrigger(**given), metadata)  # type: ignore[arg-type]


def _checked(trigger: ScalerTrigger, metadata: Mapping[str, str]) -> ScalerTrigger:
    """What KEDA refuses of keys together."""
    for key, set_ in (
        ("limitToPartitionsWithLag", trigger.limit_to_partitions_with_lag),
        ("ensureEvenDistributionOfPartitions", trigger.ensure_even_distribution),
        ("partitionLimitation", trigger.partitions is not None),
    ):
        if set_ and not trigger.topic:
            raise BadMetadata("topic", "", f"a topic, because {key} is set")
    if trigger.limit_to_partitions_with_lag:
        for key, set_ in (
            ("allowIdleConsumers", trigger.allow_idle_consumers),
            ("ensureEvenDistributionOfPartitions", trigger.ensure_even_distribution),
        ):
            if set_:
                raise BadMetadata(key, metadata.get(key, "true"), "false, because limitToPartitionsWithLag is true")
    return trigger


def _name(key: str, value: str) -> str:
    if len(value) > MAX_NAME_CHARS:
        raise BadMetadata(key, value, f"at most {MAX_NAME_CHARS} characters; it has {len(value)}")
    return value


def _flag(key: str, value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise BadMetadata(key, value, "true or false")
    return value.lower() == "true"


def _whole(lowest: int) -> Callable[[str, str], int]:
    def read_whole(key: str, value: str) -> int:
        text = value.strip()
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 19 else -1
        if number < lowest:
            raise BadMetadata(key, value, f"a whole number of {lowest} or more")
        return number

    return read_whole


def _policy(key: str, value: str) -> bool:
    if value not in ("latest", "earliest"):
        raise BadMetadata(key, value, "latest or earliest")
    return value == "earliest"


def _partitions(key: str, value: str) -> frozenset[int] | None:
    """Numbers and ranges, such as `1,2,10-20`; nothing at all means no limitation."""
    if not value.strip():
        return None
    found: set[int] = set()
    for part in value.split(","):
        first, dash, last = (each.strip() for each in part.partition("-"))
        last = last if dash else first
        if not (first.isascii() and first.isdigit() and last.isascii() and last.isdigit() and len(first + last) < 19):
            raise BadMetadata(key, value, "numbers and ranges of partitions, such as 1,2,10-20")
        if not int(first) <= int(last) < int(first) + MAX_ENTRIES - len(found):
            raise BadMetadata(key, value, f"ranges that go upwards, and at most {MAX_ENTRIES} partitions")
        found.update(range(int(first), int(last) + 1))
    return frozenset(found)


READERS: Mapping[str, Callable[[str, str], object]] = {
    "consumerGroup": _name,
    "topic": _name,
    "lagThreshold": _whole(1),
    "activationLagThreshold": _whole(0),
    "offsetResetPolicy": _policy,
    "allowIdleConsumers": _flag,
    "scaleToZeroOnInvalidOffset": _flag,
    "excludePersistentLag": _flag,
    "limitToPartitionsWithLag": _flag,
    "ensureEvenDistributionOfPartitions": _flag,
    "partitionLimitation": _partitions,
    "drainTargetSeconds": _whole(1),
    "holdDuringRebalance": _flag,
    "maxStep": _whole(1),
}
