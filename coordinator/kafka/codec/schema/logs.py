"""Fields of the log messages: produce, fetch, log offsets, metadata, topics and their settings.

Facts of Kafka's protocol (kafka.apache.org/protocol), in the notation of `kafka/codec/messages.py`.
"""

FIELDS = """
ProduceRequest 0-12 flexible 9+
    transactional_id: string?3+ 3+ = null
    acks: int16
    timeout_ms: int32
    topic_data: []
        name: string
        partition_data: []
            index: int32
            records: records? = null

ProduceResponse 0-12 flexible 9+
    responses: []
        name: string
        partition_responses: []
            index: int32
            error_code: int16
            base_offset: int64
            log_append_time_ms: int64 2+ = -1
            log_start_offset: int64 5+ = -1
            record_errors: [] 8+
                batch_index: int32
                batch_index_error_message: string? = null
            error_message: string? 8+ = null
            current_leader: {} 10+ tag 0
                leader_id: int32 = -1
                leader_epoch: int32 = -1
    throttle_time_ms: int32 1+
    node_endpoints: [] 10+ tag 0
        node_id: int32
        host: string
        port: int32
        rack: string? = null

FetchRequest 0-15 flexible 12+
    cluster_id: string? 12+ = null tag 0
    replica_id: int32 0-14 = -1
    replica_state: {} 15+ tag 1
        replica_id: int32 = -1
        replica_epoch: int64 = -1
    max_wait_ms: int32
    min_bytes: int32
    max_bytes: int32 3+ = 2147483647
    isolation_level: int8 4+
    session_id: int32 7+
    session_epoch: int32 7+ = -1
    topics: []
        topic: string 0-12
        topic_id: uuid 13+
        partitions: []
            partition: int32
            current_leader_epoch: int32 9+ = -1
            fetch_offset: int64
            last_fetched_epoch: int32 12+ = -1
            log_start_offset: int64 5+ = -1
            partition_max_bytes: int32
    forgotten_topics_data: [] 7+
        topic: string 7-12
        topic_id: uuid 13+
        partitions: [int32]
    rack_id: string 11+

FetchResponse 0-15 flexible 12+
    throttle_time_ms: int32 1+
    error_code: int16 7+
    session_id: int32 7+
    responses: []
        topic: string 0-12
        topic_id: uuid 13+
        partitions: []
            partition_index: int32
            error_code: int16
            high_watermark: int64
            last_stable_offset: int64 4+ = -1
            log_start_offset: int64 5+ = -1
            diverging_epoch: {} 12+ tag 0
                epoch: int32 = -1
                end_offset: int64 = -1
            current_leader: {} 12+ tag 1
                leader_id: int32 = -1
                leader_epoch: int32 = -1
            snapshot_id: {} 12+ tag 2
                end_offset: int64 = -1
                epoch: int32 = -1
            aborted_transactions: []? 4+
                producer_id: int64
                first_offset: int64
            preferred_read_replica: int32 11+ = -1
            records: records? = null

ListOffsetsRequest 0-10 flexible 6+
    replica_id: int32
    isolation_level: int8 2+
    topics: []
        name: string
        partitions: []
            partition_index: int32
            current_leader_epoch: int32 4+ = -1
            timestamp: int64
            max_num_offsets: int32 0-0 = 1
    timeout_ms: int32 10+

ListOffsetsResponse 0-10 flexible 6+
    throttle_time_ms: int32 2+
    topics: []
        name: string
        partitions: []
            partition_index: int32
            error_code: int16
            old_style_offsets: [] 0-0
                offset: int64
            timestamp: int64 1+ = -1
            offset: int64 1+ = -1
            leader_epoch: int32 4+ = -1

OffsetForLeaderEpochRequest 2-4 flexible 4+
    replica_id: int32 3+ = -2
    topics: []
        topic: string
        partitions: []
            partition: int32
            current_leader_epoch: int32 = -1
            leader_epoch: int32

OffsetForLeaderEpochResponse 2-4 flexible 4+
    throttle_time_ms: int32
    topics: []
        topic: string
        partitions: []
            error_code: int16
            partition: int32
            leader_epoch: int32 = -1
            end_offset: int64 = -1

MetadataRequest 0-12 flexible 9+
    topics: []?1+
        topic_id: uuid 10+
        name: string?10+
    allow_auto_topic_creation: bool 4+ = true
    include_cluster_authorized_operations: bool 8-10
    include_topic_authorized_operations: bool 8+

MetadataResponse 0-12 flexible 9+
    throttle_time_ms: int32 3+
    brokers: []
        node_id: int32
        host: string
        port: int32
        rack: string? 1+ = null
    cluster_id: string? 2+ = null
    controller_id: int32 1+ = -1
    topics: []
        error_code: int16
        name: string?12+
        topic_id: uuid 10+
        is_internal: bool 1+
        partitions: []
            error_code: int16
            partition_index: int32
            leader_id: int32
            leader_epoch: int32 7+ = -1
            replica_nodes: [int32]
            isr_nodes: [int32]
            offline_replicas: [int32] 5+
        topic_authorized_operations: int32 8+ = -2147483648
    cluster_authorized_operations: int32 8-10 = -2147483648

DescribeClusterRequest 0-1 flexible 0+
    include_cluster_authorized_operations: bool
    endpoint_type: int8 1+ = 1

DescribeClusterResponse 0-1 flexible 0+
    throttle_time_ms: int32
    error_code: int16
    error_message: string? = null
    endpoint_type: int8 1+ = 1
    cluster_id: string
    controller_id: int32 = -1
    brokers: []
        broker_id: int32
        host: string
        port: int32
        rack: string? = null
    cluster_authorized_operations: int32 = -2147483648

CreateTopicsRequest 0-7 flexible 5+
    topics: []
        name: string
        num_partitions: int32
        replication_factor: int16
        assignments: []
            partition_index: int32
            broker_ids: [int32]
        configs: []
            name: string
            value: string?
    timeout_ms: int32 = 60000
    validate_only: bool 1+

CreateTopicsResponse 0-7 flexible 5+
    throttle_time_ms: int32 2+
    topics: []
        name: string
        topic_id: uuid 7+
        error_code: int16
        error_message: string? 1+
        topic_config_error_code: int16 5+ tag 0
        num_partitions: int32 5+ = -1
        replication_factor: int16 5+ = -1
        configs: []? 5+
            name: string
            value: string?
            read_only: bool
            config_source: int8 = -1
            is_sensitive: bool

DeleteTopicsRequest 0-6 flexible 4+
    topics: [] 6+
        name: string? = null
        topic_id: uuid
    topic_names: [string] 0-5
    timeout_ms: int32

DeleteTopicsResponse 0-6 flexible 4+
    throttle_time_ms: int32 1+
    responses: []
        name: string?6+
        topic_id: uuid 6+
        error_code: int16
        error_message: string? 5+ = null

DeleteRecordsRequest 0-2 flexible 2+
    topics: []
        name: string
        partitions: []
            partition_index: int32
            offset: int64
    timeout_ms: int32

DeleteRecordsResponse 0-2 flexible 2+
    throttle_time_ms: int32
    topics: []
        name: string
        partitions: []
            partition_index: int32
            low_watermark: int64
            error_code: int16

CreatePartitionsRequest 0-3 flexible 2+
    topics: []
        name: string
        count: int32
        assignments: []?
            broker_ids: [int32]
    timeout_ms: int32
    validate_only: bool

CreatePartitionsResponse 0-3 flexible 2+
    throttle_time_ms: int32
    results: []
        name: string
        error_code: int16
        error_message: string? = null

DescribeConfigsRequest 0-4 flexible 4+
    resources: []
        resource_type: int8
        resource_name: string
        configuration_keys: [string]?
    include_synonyms: bool 1+
    include_documentation: bool 3+

DescribeConfigsResponse 0-4 flexible 4+
    throttle_time_ms: int32
    results: []
        error_code: int16
        error_message: string?
        resource_type: int8
        resource_name: string
        configs: []
            name: string
            value: string?
            read_only: bool
            is_default: bool 0-0
            config_source: int8 1+ = -1
            is_sensitive: bool
            synonyms: [] 1+
                name: string
                value: string?
                source: int8
            config_type: int8 3+
            documentation: string? 3+

AlterConfigsRequest 0-2 flexible 2+
    resources: []
        resource_type: int8
        resource_name: string
        configs: []
            name: string
            value: string?
    validate_only: bool

AlterConfigsResponse 0-2 flexible 2+
    throttle_time_ms: int32
    responses: []
        error_code: int16
        error_message: string?
        resource_type: int8
        resource_name: string

IncrementalAlterConfigsRequest 0-1 flexible 1+
    resources: []
        resource_type: int8
        resource_name: string
        configs: []
            name: string
            config_operation: int8
            value: string?
    validate_only: bool

IncrementalAlterConfigsResponse 0-1 flexible 1+
    throttle_time_ms: int32
    responses: []
        error_code: int16
        error_message: string?
        resource_type: int8
        resource_name: string

ListConfigResourcesRequest 0-1 flexible 0+
    resource_types: [int8] 1+

ListConfigResourcesResponse 0-1 flexible 0+
    throttle_time_ms: int32
    error_code: int16
    config_resources: []
        resource_name: string
        resource_type: int8 1+ = 16

InitProducerIdRequest 0-5 flexible 2+
    transactional_id: string?
    transaction_timeout_ms: int32
    producer_id: int64 3+ = -1
    producer_epoch: int16 3+ = -1

InitProducerIdResponse 0-5 flexible 2+
    throttle_time_ms: int32
    error_code: int16
    producer_id: int64 = -1
    producer_epoch: int16
"""
