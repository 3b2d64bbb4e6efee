"""Fields of the messages about transactions and the producers of a partition.

Facts of Kafka's protocol (kafka.apache.org/protocol), in the notation of `kafka/codec/messages.py`. EndTxn and
InitProducerId go up to transactions version 2 (KIP-890). AddPartitionsToTxn names one transaction up to version 3, and
several from 4 on, as the leaders of partitions ask. WriteTxnMarkers 1 says nothing of the transactions' version: 0.
"""

FIELDS = """
AddPartitionsToTxnRequest 0-5 flexible 3+
    transactions: [] 4+
        transactional_id: string
        producer_id: int64
        producer_epoch: int16
        verify_only: bool
        topics: []
            name: string
            partitions: [int32]
    transactional_id: string 0-3
    producer_id: int64 0-3
    producer_epoch: int16 0-3
    topics: [] 0-3
        name: string
        partitions: [int32]

AddPartitionsToTxnResponse 0-5 flexible 3+
    throttle_time_ms: int32
    error_code: int16 4+
    results_by_transaction: [] 4+
        transactional_id: string
        topic_results: []
            name: string
            results_by_partition: []
                partition_index: int32
                partition_error_code: int16
    results: [] 0-3
        name: string
        results_by_partition: []
            partition_index: int32
            partition_error_code: int16

AddOffsetsToTxnRequest 0-4 flexible 3+
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    group_id: string

AddOffsetsToTxnResponse 0-4 flexible 3+
    throttle_time_ms: int32
    error_code: int16

EndTxnRequest 0-5 flexible 3+
    transactional_id: string
    producer_id: int64
    producer_epoch: int16
    committed: bool

EndTxnResponse 0-5 flexible 3+
    throttle_time_ms: int32
    error_code: int16
    producer_id: int64 5+ = -1
    producer_epoch: int16 5+ = -1

WriteTxnMarkersRequest 1-2 flexible 1+
    markers: []
        producer_id: int64
        producer_epoch: int16
        transaction_result: bool
        topics: []
            name: string
            partition_indexes: [int32]
            topic_id: uuid 2+ tag 10000
        coordinator_epoch: int32
        transaction_version: int8 2+ = 0

WriteTxnMarkersResponse 1-2 flexible 1+
    markers: []
        producer_id: int64
        topics: []
            name: string
            partitions: []
                partition_index: int32
                error_code: int16

TxnOffsetCommitRequest 0-5 flexible 3+
    transactional_id: string
    group_id: string
    producer_id: int64
    producer_epoch: int16
    generation_id: int32 3+ = -1
    member_id: string 3+
    group_instance_id: string? 3+ = null
    topics: []
        name: string
        partitions: []
            partition_index: int32
            committed_offset: int64
            committed_leader_epoch: int32 2+ = -1
            committed_metadata: string?

TxnOffsetCommitResponse 0-5 flexible 3+
    throttle_time_ms: int32
    topics: []
        name: string
        partitions: []
            partition_index: int32
            error_code: int16

DescribeProducersRequest 0-0 flexible 0+
    topics: []
        name: string
        partition_indexes: [int32]

DescribeProducersResponse 0-0 flexible 0+
    throttle_time_ms: int32
    topics: []
        name: string
        partitions: []
            partition_index: int32
            error_code: int16
            error_message: string? = null
            active_producers: []
                producer_id: int64
                producer_epoch: int32
                last_sequence: int32 = -1
                last_timestamp: int64 = -1
                coordinator_epoch: int32
                current_txn_start_offset: int64 = -1

DescribeTransactionsRequest 0-0 flexible 0+
    transactional_ids: [string]

DescribeTransactionsResponse 0-0 flexible 0+
    throttle_time_ms: int32
    transaction_states: []
        error_code: int16
        transactional_id: string
        transaction_state: string
        transaction_timeout_ms: int32
        transaction_start_time_ms: int64
        producer_id: int64
        producer_epoch: int16
        topics: []
            topic: string
            partitions: [int32]

ListTransactionsRequest 0-2 flexible 0+
    state_filters: [string]
    producer_id_filters: [int64]
    duration_filter: int64 1+ = -1
    transactional_id_pattern: string? 2+ = null

ListTransactionsResponse 0-2 flexible 0+
    throttle_time_ms: int32
    error_code: int16
    unknown_state_filters: [string]
    transaction_states: []
        transactional_id: string
        producer_id: int64
        transaction_state: string
"""
