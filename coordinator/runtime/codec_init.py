"""Records as bytes, and back: those of Kafka, those of KIP-848 groups, our own, and the ledger."""

from muster.coordinator.runtime.records import PlainOffsets, decode_group, encode

__all__ = ["PlainOffsets", "decode_group", "encode"]
