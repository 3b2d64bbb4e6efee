"""Authorized operations (KIP-430), as they are: what the caller may do with what the answer tells of."""

from muster.coordinator.kafka.authorization.judging import AccessCheck
from muster.coordinator.kafka.authorized import operation_bits
from muster.coordinator.kafka.dispatch import KafkaCall
from muster.coordinator.security.model import CLUSTER_NAME, ResourceType
from muster.coordinator.security.supported import SUPPORTED_OPERATIONS


def allowed_operations(may: AccessCheck, call: KafkaCall, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
    allows, who = may.authorizer.allows, call.peer.identity
    return operation_bits(*(each for each in SUPPORTED_OPERATIONS[kind] if allows(who, each, kind, name)))
