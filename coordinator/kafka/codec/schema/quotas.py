"""Fields of the messages about quotas (KIP-546).

Facts of Kafka's protocol (kafka.apache.org/protocol), in the notation of `kafka/codec/messages.py`.
"""

FIELDS = """
DescribeClientQuotasRequest 0-1 flexible 1+
    components: []
        entity_type: string
        match_type: int8
        match: string?
    strict: bool

DescribeClientQuotasResponse 0-1 flexible 1+
    throttle_time_ms: int32
    error_code: int16
    error_message: string? = null
    entries: []?
        entity: []
            entity_type: string
            entity_name: string?
        values: []
            key: string
            value: float64

AlterClientQuotasRequest 0-1 flexible 1+
    entries: []
        entity: []
            entity_type: string
            entity_name: string?
        ops: []
            key: string
            value: float64
            remove: bool
    validate_only: bool

AlterClientQuotasResponse 0-1 flexible 1+
    throttle_time_ms: int32
    entries: []
        error_code: int16
        error_message: string? = null
        entity: []
            entity_type: string
            entity_name: string?
"""
