"""What confluent-kafka is told: where the records are, and how to get in."""

from typing import TYPE_CHECKING, Any, Final

from muster.client.errors import ClientError

if TYPE_CHECKING:
    from muster.client.config import ConsumerConfig, ProducerConfig
    from muster.client.records_config import RecordsProperties

NOT_INSTALLED: Final = (
    "the records are in the Kafka cluster at {bootstrap}, and confluent-kafka, which reads and writes them, is not "
    "installed: pip install 'muster-groups[kafka]'"
)
NAMES: Final = {
    "records_security_protocol": "security.protocol",
    "records_sasl_mechanism": "sasl.mechanism",
    "records_sasl_username": "sasl.username",
    "records_sasl_password": "sasl.password",
    "records_ssl_ca_location": "ssl.ca.location",
    "records_ssl_certificate_location": "ssl.certificate.location",
    "records_ssl_key_location": "ssl.key.location",
    "records_ssl_key_password": "ssl.key.password",
}


def load_confluent_kafka(bootstrap: str) -> Any:
    """Raises ClientError where it is not installed."""
    try:
        import confluent_kafka
    except ImportError:
        raise ClientError(NOT_INSTALLED.format(bootstrap=bootstrap)) from None
    return confluent_kafka


def connection_properties(config: "RecordsProperties", bootstrap: str) -> dict[str, Any]:
    given = {name: getattr(config, field) for field, name in NAMES.items()}
    return {
        "bootstrap.servers": config.records_bootstrap_servers or bootstrap,
        **{name: value for name, value in given.items() if value is not None},
    }


def consumer_properties(config: "ConsumerConfig", bootstrap: str) -> dict[str, Any]:
    """Positions are Muster's: nothing is committed there, and no group of that name ever has a member."""
    return {
        **connection_properties(config, bootstrap),
        "client.id": config.client_id or "muster",
        "group.id": config.group_id or "muster",
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "fetch.min.bytes": config.fetch_min_bytes,
        "fetch.wait.max.ms": config.fetch_max_wait_ms,
        "fetch.max.bytes": max(config.fetch_max_bytes, config.max_partition_fetch_bytes),
        "max.partition.fetch.bytes": config.max_partition_fetch_bytes,
        "message.max.bytes": max(1_000, min(config.fetch_max_bytes, config.max_partition_fetch_bytes)),
    }


def producer_properties(config: "ProducerConfig", bootstrap: str) -> dict[str, Any]:
    """Batches are made before: it waits for no company."""
    return {
        **connection_properties(config, bootstrap),
        "client.id": config.client_id or "muster",
        "acks": config.acks,
        "enable.idempotence": config.numbers_batches,
        "linger.ms": 0,
        "compression.type": config.compression_type,
        "message.max.bytes": max(config.max_request_size, 1_000),
        "message.timeout.ms": config.delivery_timeout_ms,
    }
