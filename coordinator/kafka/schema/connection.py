"""Fields of the headers, and of the message that opens a connection.

Facts of Kafka's protocol (kafka.apache.org/protocol), in the notation of `notation.py`. The client id stays a string of
the old kind in every header (KIP-482), or no server could read the header of a version it does not know.
"""

FIELDS = """
RequestHeader 1-2 flexible 2+
    request_api_key: int16
    request_api_version: int16
    correlation_id: int32
    client_id: string? inflexible = null

ResponseHeader 0-1 flexible 1+
    correlation_id: int32

ApiVersionsRequest 0-3 flexible 3+
    client_software_name: string 3+
    client_software_version: string 3+

ApiVersionsResponse 0-3 flexible 3+
    error_code: int16
    api_keys: []
        api_key: int16
        min_version: int16
        max_version: int16
    throttle_time_ms: int32 1+
    supported_features: [] 3+ tag 0
        name: string
        min_version: int16
        max_version: int16
    finalized_features_epoch: int64 3+ = -1 tag 1
    finalized_features: [] 3+ tag 2
        name: string
        max_version_level: int16
        min_version_level: int16
    zk_migration_ready: bool 3+ tag 3
"""
