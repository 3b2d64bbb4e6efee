"""Fields of the headers, and of the messages that open a connection and authenticate its client.

Facts of Kafka's protocol (kafka.apache.org/protocol), in the notation of `kafka/codec/messages.py`. The client id
stays a non-compact string in every header (KIP-482); otherwise a server could not read the header of a version it does
not know.
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

SaslHandshakeRequest 0-1
    mechanism: string

SaslHandshakeResponse 0-1
    error_code: int16
    mechanisms: [string]

SaslAuthenticateRequest 0-2 flexible 2+
    auth_bytes: bytes

SaslAuthenticateResponse 0-2 flexible 2+
    error_code: int16
    error_message: string?
    auth_bytes: bytes
    session_lifetime_ms: int64 1+

DescribeUserScramCredentialsRequest 0-0 flexible 0+
    users: []?
        name: string

DescribeUserScramCredentialsResponse 0-0 flexible 0+
    throttle_time_ms: int32
    error_code: int16
    error_message: string?
    results: []
        user: string
        error_code: int16
        error_message: string?
        credential_infos: []
            mechanism: int8
            iterations: int32

AlterUserScramCredentialsRequest 0-0 flexible 0+
    deletions: []
        name: string
        mechanism: int8
    upsertions: []
        name: string
        mechanism: int8
        iterations: int32
        salt: bytes
        salted_password: bytes

AlterUserScramCredentialsResponse 0-0 flexible 0+
    throttle_time_ms: int32
    results: []
        user: string
        error_code: int16
        error_message: string?
"""
