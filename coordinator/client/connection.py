"""How nodes are reached, as properties that were checked: plain values, for processes that check nothing themselves."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Connection:
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

    @property
    def servers(self) -> list[str]:
        return split_servers(self.bootstrap_servers)


def split_servers(bootstrap_servers: str) -> list[str]:
    """
    >>> split_servers("a:1, b:2")
    ['a:1', 'b:2']
    """
    return [server.strip() for server in bootstrap_servers.split(",")]
