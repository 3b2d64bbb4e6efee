"""The properties by which a client gets at records that are in somebody's Kafka: Kafka's names after `records.`."""

from typing import Literal

from pydantic import BaseModel, Field


class RecordsProperties(BaseModel):
    """They mean something where the nodes keep groups in a Kafka cluster (`muster serve --engine`), else nothing."""

    records_bootstrap_servers: str = Field(
        "", description="Where that Kafka is, HOST:PORT by comma, in place of what the nodes say."
    )
    records_security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"] | None = Field(
        None, description="What it is spoken to by."
    )
    records_sasl_mechanism: str | None = Field(None, min_length=1, description="How a login is shown, for SASL_...")
    records_sasl_username: str | None = Field(None, min_length=1, description="The login's name.")
    records_sasl_password: str | None = Field(None, min_length=1, repr=False, description="Its password.")
    records_ssl_ca_location: str | None = Field(None, min_length=1, description="A file with the CAs to trust.")
    records_ssl_certificate_location: str | None = Field(None, min_length=1, description="This client's certificate.")
    records_ssl_key_location: str | None = Field(None, min_length=1, description="The key that belongs to it.")
    records_ssl_key_password: str | None = Field(
        None, min_length=1, repr=False, description="What that key is encrypted with."
    )
