"""The properties by which a client knows its node and shows who it is: Kafka's names (KIP-651), and tokens."""

from typing import Any, Literal, Self

from pydantic import BaseModel, Field, field_validator, model_validator

from muster.client.connection import SecurityConfig

SECRET = frozenset(
    {"ssl.keystore.key", "ssl.key.password", "token", "records.sasl.password", "records.ssl.key.password"}
)
"""Properties whose values nothing may show: no error, no repr, no plan."""

HIDDEN = "..."
MAX_TOKEN_CHARS = 16_384
NO_SASL = "expected PLAINTEXT or SSL: over gRPC a login is a token, see token and token.file"
NO_SWITCH = (
    "expected https: gRPC always checks the name; where a node's certificate has another one than its address, "
    "ssl.target.name says which"
)


def show_property(name: str, value: object) -> str:
    """A property's value for an error.

    >>> show_property("acks", "some"), show_property("token", "abc")
    ("'some'", '...')
    """
    return HIDDEN if name in SECRET else repr(value)


class SecurityProperties(BaseModel):
    """What every client understands of TLS and tokens. What contradicts itself is refused, never overlooked."""

    security_protocol: Literal["PLAINTEXT", "SSL"] = Field("PLAINTEXT", description="SSL: by TLS. PLAINTEXT: without.")
    ssl_truststore_type: Literal["PEM"] = Field("PEM", description="PEM is the only one.")
    ssl_truststore_location: str | None = Field(
        None, min_length=1, description="A file with the CAs to trust; without it and the next: those of gRPC."
    )
    ssl_truststore_certificates: str | None = Field(
        None, min_length=1, description="The CAs themselves, as PEM, in place of a file."
    )
    ssl_keystore_type: Literal["PEM"] = Field("PEM", description="PEM is the only one.")
    ssl_keystore_location: str | None = Field(
        None, min_length=1, description="A file with this client's certificate, its chain, and the key (PKCS#8)."
    )
    ssl_keystore_certificate_chain: str | None = Field(
        None, min_length=1, description="The certificate and its chain, as PEM, in place of a file."
    )
    ssl_keystore_key: str | None = Field(
        None, min_length=1, repr=False, description="The key that belongs to it, as PEM (PKCS#8)."
    )
    ssl_key_password: str | None = Field(None, min_length=1, repr=False, description="What the key is encrypted with.")
    ssl_endpoint_identification_algorithm: Literal["https"] = Field(
        "https", description="https: the certificate has to have the node's name. It cannot be switched off."
    )
    ssl_target_name: str | None = Field(
        None, min_length=1, max_length=253, description="The name to look for instead of the address's, for all nodes."
    )
    token: str | None = Field(
        None, repr=False, description="Shown with each call: an API token (muster tokens create), or a signed JWT."
    )
    token_file: str | None = Field(None, min_length=1, description="A file with the token, read again when it changes.")
    allow_insecure_token: bool = Field(
        False, description="Whether a token may go unencrypted to a node that is not on this machine."
    )

    @field_validator("security_protocol", mode="before")
    @classmethod
    def _name_protocol(cls, value: Any) -> Any:
        word = str(value).strip().upper()
        if word.startswith("SASL_"):
            raise ValueError(NO_SASL)
        return word

    @field_validator("ssl_endpoint_identification_algorithm", mode="before")
    @classmethod
    def _name_algorithm(cls, value: Any) -> Any:
        if str(value).strip().lower() != "https":
            raise ValueError(NO_SWITCH)
        return "https"

    @field_validator("token")
    @classmethod
    def _check_token(cls, value: str | None) -> str | None:
        return None if value is None else check_token(value)

    @model_validator(mode="after")
    def _check_security(self) -> Self:
        given = {name: getattr(self, name) for name in SecurityProperties.model_fields if name.startswith("ssl_")}
        said = sorted(name for name, value in given.items() if value not in (None, "PEM", "https"))
        if self.security_protocol == "PLAINTEXT" and said:
            dotted = said[0].replace("_", ".")
            raise ValueError(f"{dotted} means nothing with security.protocol=PLAINTEXT; set SSL, or leave it out")
        _check_only_one("ssl.truststore.location", self.ssl_truststore_location,
                  "ssl.truststore.certificates", self.ssl_truststore_certificates)  # fmt: skip
        _check_only_one("ssl.keystore.location", self.ssl_keystore_location,
                  "ssl.keystore.key", self.ssl_keystore_key)  # fmt: skip
        _check_only_one("token", self.token, "token.file", self.token_file)
        if (self.ssl_keystore_key is None) != (self.ssl_keystore_certificate_chain is None):
            raise ValueError("ssl.keystore.key and ssl.keystore.certificate.chain go together; set both, or neither")
        if self.ssl_key_password and not (self.ssl_keystore_key or self.ssl_keystore_location):
            raise ValueError("ssl.key.password is set without a key; set ssl.keystore.location as well")
        return self

    @property
    def security(self) -> SecurityConfig | None:
        """All of it as plain values; None where a client talks plainly and shows nothing."""
        if self.security_protocol == "PLAINTEXT" and self.token is None and self.token_file is None:
            return None
        return SecurityConfig(
            tls=self.security_protocol == "SSL",
            ca_file=self.ssl_truststore_location,
            ca_pem=self.ssl_truststore_certificates,
            own_file=self.ssl_keystore_location,
            own_pem=self.ssl_keystore_certificate_chain,
            key_pem=self.ssl_keystore_key,
            key_password=self.ssl_key_password,
            target_name=self.ssl_target_name,
            token=self.token,
            token_file=self.token_file,
            insecure_token=self.allow_insecure_token,
        )


def _check_only_one(first: str, one: object, second: str, other: object) -> None:
    if one is not None and other is not None:
        raise ValueError(f"{first} and {second} are both set; keep one")


def check_token(text: str) -> str:
    """A token as it goes into a header. Raises ValueError, which does not show it.

    >>> check_token("  abc  ")
    'abc'
    """
    token = text.strip().removeprefix("Bearer ").strip()
    if not token or len(token) > MAX_TOKEN_CHARS or not all("!" <= char <= "~" for char in token):
        raise ValueError(f"expected a token of 1 to {MAX_TOKEN_CHARS} characters, in ASCII and without spaces")
    return token
