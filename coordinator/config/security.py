"""Settings of authentication, authorization, the audit log and quotas.

Authentication: SASL mechanisms, tokens and the keys that check them. Authorization: whether access control lists are
asked, and the super users. Quotas: over which time use is measured.
"""

from typing import Annotated, Final, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, field_validator, model_validator

from muster.coordinator.config.values import (
    DAY_MS,
    SASL_MECHANISMS,
    FileText,
    ListenerAddress,
    PrincipalNames,
    split_list,
)
from muster.storage.settings_text import MAX_INT, NonNegativeInt32, PositiveInt32, SettingsModel, setting

# Authentication
# --------------


class AuthenticationSettings(SettingsModel):
    sasl_enabled_mechanisms: str = setting(
        "",
        "The SASL mechanisms that clients of a SASL_PLAINTEXT or SASL_SSL listener may use.",
        allowed=f"some of {', '.join(SASL_MECHANISMS)}, by commas",
    )
    sasl_plain_allow_plaintext: bool = setting(
        False, "Whether PLAIN is allowed on a SASL_PLAINTEXT listener, where the network can read the password."
    )
    connections_max_reauth_ms: NonNegativeInt32 = setting(
        0,
        "A Kafka client has to authenticate again after this time (KIP-368), or its next request ends the connection; "
        "0 means never, but an expired token ends it in any case.",
    )
    sasl_server_max_receive_size: Annotated[int, Field(ge=1_024, le=524_288)] = setting(
        65_536, "The largest request that the node accepts from a Kafka client before it is authenticated."
    )
    connection_setup_timeout_ms: Annotated[int, Field(ge=100, le=600_000)] = setting(
        10_000, "How long a Kafka client may take to authenticate; TLS handshakes have the same limit."
    )
    connection_failed_authentication_delay_ms: Annotated[int, Field(ge=0, le=10_000)] = setting(
        100, "How long the answer to a failed login is delayed; other clients are not delayed."
    )
    max_connection_creation_rate: PositiveInt32 = setting(
        MAX_INT, "How many Kafka connections are accepted per second; further ones are not read from for a while."
    )
    oauthbearer_jwks_url: str = setting(
        "",
        "The location of the public keys (JWKS) that verify signed tokens, for OAUTHBEARER and for signed tokens over "
        "gRPC and HTTP; empty means that signed tokens are refused.",
        name="sasl.oauthbearer.jwks.endpoint.url",
        allowed="https://HOST/PATH, file:///PATH, or nothing",
    )
    oauthbearer_refresh_ms: Annotated[int, Field(ge=1_000, le=DAY_MS)] = setting(
        3_600_000,
        "How often keys at an https address are read again; a file is read again when it changes.",
        name="sasl.oauthbearer.jwks.endpoint.refresh.ms",
    )
    oauthbearer_audience: str = setting(
        "",
        "The audiences (aud) of which a token must have one.",
        name="sasl.oauthbearer.expected.audience",
        allowed="names, by commas",
    )
    oauthbearer_issuer: str = setting(
        "",
        "The issuer (iss) that a token must have; empty accepts every issuer whose key is in the set.",
        name="sasl.oauthbearer.expected.issuer",
        allowed="a name, or nothing",
    )
    oauthbearer_sub_claim: str = setting(
        "sub",
        "The claim of a token that names its principal.",
        name="sasl.oauthbearer.sub.claim.name",
        allowed="a name",
        min_length=1,
    )
    oauthbearer_skew_s: Annotated[int, Field(ge=0, le=600)] = setting(
        30,
        "The largest difference from the clocks of token issuers that is tolerated.",
        name="sasl.oauthbearer.clock.skew.seconds",
    )
    http_probes_anonymous: bool = setting(
        True,
        "Whether the HTTP probes and gRPC's health service answer unauthenticated callers (with authorizer=acl), with "
        "yes or no and without reasons.",
    )
    grpc_reflection_anonymous: bool = setting(
        False, "Whether gRPC reflection, which lists services and messages, answers unauthenticated callers."
    )

    @property
    def mechanisms(self) -> tuple[str, ...]:
        return split_list(self.sasl_enabled_mechanisms)

    def check_plain(self, door: ListenerAddress) -> None:
        """Whether passwords would go over the wire for everybody to read. Raises ValueError."""
        readable = "PLAIN" in self.mechanisms and door.asks_by_sasl and not door.encrypted
        if readable and not self.sasl_plain_allow_plaintext:
            raise ValueError(
                f"sasl.enabled.mechanisms has PLAIN, but kafka.listeners speaks {door.protocol}, so anyone on "
                "the network can read the passwords; expected SASL_SSL://, another mechanism such as SCRAM-SHA-512, or "
                "an explicit sasl.plain.allow.plaintext=true"
            )

    @field_validator("sasl_enabled_mechanisms")
    @classmethod
    def are_mechanisms(cls, value: str) -> str:
        unknown = [word for word in split_list(value) if word not in SASL_MECHANISMS]
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not supported here")
        return value

    @field_validator("oauthbearer_jwks_url")
    @classmethod
    def is_a_place_of_keys(cls, value: str) -> str:
        if value:
            parts = urlsplit(value)
            if not (parts.scheme == "https" and parts.hostname) and not (parts.scheme == "file" and parts.path):
                raise ValueError("keys are read over https, or from a file on this machine")
        return value

    @model_validator(mode="after")
    def signed_tokens_can_be_checked(self) -> Self:
        ends_here = not getattr(self, "upstream", ())  # over somebody's Kafka the brokers check those of its clients
        if ends_here and "OAUTHBEARER" in self.mechanisms and not self.oauthbearer_jwks_url:
            raise ValueError(
                "sasl.enabled.mechanisms has OAUTHBEARER, but sasl.oauthbearer.jwks.endpoint.url is empty, so no "
                "token could be verified; set it to the address of the issuer's keys"
            )
        if self.oauthbearer_jwks_url and not self.oauthbearer_audience:
            raise ValueError(
                f"sasl.oauthbearer.jwks.endpoint.url is {self.oauthbearer_jwks_url}, but "
                "sasl.oauthbearer.expected.audience is empty, so a token for any other service would be accepted; "
                "set it to the audience of this node's tokens"
            )
        return self


# Authorization
# -------------

USER: Final = "User"
"""The kind of principal that logins, certificates and tokens make."""


class AuthorizationSettings(SettingsModel):
    authorizer: Literal["none", "acl"] = setting(
        "none", "Whether access control lists decide who may do what (acl), or every client may do everything (none)."
    )
    super_users: PrincipalNames = setting(
        PrincipalNames(""),
        "The principals that may do everything, separated by semicolons, such as User:admin;User:CN=ops.",
    )
    allow_everyone_if_no_acl_found: bool = setting(
        False, "Whether every principal may do everything with a resource that has no access control list."
    )

    @field_validator("super_users")
    @classmethod
    def are_principals(cls, value: PrincipalNames) -> PrincipalNames:
        for name in principals_of(value):
            kind, colon, rest = name.partition(":")
            if not (kind and colon and rest):
                raise ValueError(f"{name!r} is not a principal; expected KIND:NAME, such as User:alice")
            if kind != USER and kind.lower() == USER.lower():
                raise ValueError(f"{name!r} names nobody; expected {USER}:{rest}")
            if rest == "*":
                raise ValueError(f"{name!r} names nobody: everybody cannot be one of them")
            if f",{USER}:" in name:
                raise ValueError(f"{name!r} is one principal; expected semicolons between several")
        return value


def principals_of(names: str) -> tuple[str, ...]:
    """
    >>> principals_of("User:a; User:CN=b,O=c;")
    ('User:a', 'User:CN=b,O=c')
    """
    return tuple(name.strip() for name in names.split(";") if name.strip())


# Audit log
# ---------


class AuditSettings(SettingsModel):
    audit_log: FileText = setting(
        FileText(""),
        "With authorizer=acl, the file to which each administrative act, refusal and failed login is appended, one "
        "JSON object per line; empty means the node's own log.",
    )


# Quotas
# ------


class QuotaSettings(SettingsModel):
    quota_window_num: Annotated[int, Field(ge=1, le=1_000)] = setting(
        11, "The number of windows over which quotas measure a rate."
    )
    quota_window_size_seconds: Annotated[int, Field(ge=1, le=3_600)] = setting(
        1, "The length of each of these windows, in seconds."
    )
