"""Fields of the messages about access control lists and quotas (KIP-546).

Facts of Kafka's protocol (kafka.apache.org/protocol), in the notation of `kafka/codec/messages.py`.
"""

FIELDS = """
DescribeAclsRequest 0-3 flexible 2+
    resource_type_filter: int8
    resource_name_filter: string?
    pattern_type_filter: int8 1+ = 3
    principal_filter: string?
    host_filter: string?
    operation: int8
    permission_type: int8

DescribeAclsResponse 0-3 flexible 2+
    throttle_time_ms: int32
    error_code: int16
    error_message: string?
    resources: []
        resource_type: int8
        resource_name: string
        pattern_type: int8 1+ = 3
        acls: []
            principal: string
            host: string
            operation: int8
            permission_type: int8

CreateAclsRequest 0-3 flexible 2+
    creations: []
        resource_type: int8
        resource_name: string
        resource_pattern_type: int8 1+ = 3
        principal: string
        host: string
        operation: int8
        permission_type: int8

CreateAclsResponse 0-3 flexible 2+
    throttle_time_ms: int32
    results: []
        error_code: int16
        error_message: string?

DeleteAclsRequest 0-3 flexible 2+
    filters: []
        resource_type_filter: int8
        resource_name_filter: string?
        pattern_type_filter: int8 1+ = 3
        principal_filter: string?
        host_filter: string?
        operation: int8
        permission_type: int8

DeleteAclsResponse 0-3 flexible 2+
    throttle_time_ms: int32
    filter_results: []
        error_code: int16
        error_message: string?
        matching_acls: []
            error_code: int16
            error_message: string?
            resource_type: int8
            resource_name: string
            pattern_type: int8 1+ = 3
            principal: string
            host: string
            operation: int8
            permission_type: int8

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
