"""How nodes are reached, as properties that were checked: plain values, for processes that check nothing themselves."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class SecurityConfig:
    """How a client knows its node, and shows who it is; `security_config.SecurityProperties` checks it.

    What is secret is in no repr, so in no plan and no log of who prints what holds it.
    """

    tls: bool
    ca_file: str | None = None
    ca_pem: str | None = None
    own_file: str | None = None
    own_pem: str | None = None
    key_pem: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    target_name: str | None = None
    token: str | None = field(default=None, repr=False)
    token_file: str | None = None
    insecure_token: bool = False


@dataclass(frozen=True, slots=True)
class ConnectionConfig:
    """What a transport needs to know. `config.ClientConfig` has the same properties, with their limits and defaults.

    It travels to Spark's processes, which start for each query and would load a tenth of a second of pydantic for it.
    """

    bootstrap_servers: str
    client_id: str
    request_timeout_ms: int
    default_api_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    reconnect_backoff_ms: int
    reconnect_backoff_max_ms: int
    metadata_max_age_ms: int
    receive_message_max_bytes: int
    security: SecurityConfig | None = None

    @property
    def servers(self) -> list[str]:
        return split_servers(self.bootstrap_servers)


def split_servers(bootstrap_servers: str) -> list[str]:
    """
    >>> split_servers("a:1, b:2")
    ['a:1', 'b:2']
    """
    return [server.strip() for server in bootstrap_servers.split(",")]
