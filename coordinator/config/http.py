"""The HTTP listener: where it is, who may use it, and what it bears."""

import re
from functools import cache
from importlib.util import find_spec
from typing import Self

from pydantic import BaseModel, Field, field_validator, model_validator

from muster.coordinator.config.addresses import Address, AddressOrNone, HostNames, ListenerAddress, parse_listener
from muster.coordinator.config.values import MAX_INT, split_list, validated_by

DEFAULT_HTTP_ADDRESS = AddressOrNone("127.0.0.1:9291")
HOST_NAME = re.compile(r"[A-Za-z0-9_]([A-Za-z0-9_.-]{0,252})")
WEB_EXTRA = ("starlette", "uvicorn", "jinja2", "prometheus_client")
"""What the extra `web` brings."""


class HttpSettings(BaseModel):
    http_listeners: AddressOrNone = Field(
        default=DEFAULT_HTTP_ADDRESS,
        alias="http.listeners",
        description="The HOST:PORT on which probes, metrics, the JSON API and the web page are served, behind "
        "PLAINTEXT:// (as without a word) or SSL://; port 0 takes a free one, empty: not at all; where this default is "
        "taken, or the extra web is not installed, the node starts without.",
    )
    http_insecure: bool = Field(
        default=False,
        alias="http.insecure",
        description="Whether http.listeners may be PLAINTEXT on an address that other machines reach, as "
        "allow.insecure.listeners says it of every listener.",
    )
    http_hosts: HostNames = Field(
        default=HostNames(""),
        alias="http.hosts",
        description="Names, by commas, by which browsers and scrapers call the HTTP listener, beside localhost, "
        "its own host and any plain address; a request by another name is refused: a foreign page may have sent it.",
    )
    http_actions: bool = Field(
        default=True,
        alias="http.actions",
        description="Whether the HTTP listener takes requests that change something; false: it only shows.",
    )
    http_max_event_streams: int = Field(
        default=500,
        alias="http.max.event.streams",
        ge=1,
        le=MAX_INT,
        description="How many pages may be told of changes as they happen; further ones are asked to come again later.",
    )
    http_max_connections: int = Field(
        default=1_000,
        alias="http.max.connections",
        ge=1,
        le=MAX_INT,
        description="How many connections the HTTP listener has at once; further ones are closed at once.",
    )
    http_max_request_bytes: int = Field(
        default=1 << 20,
        alias="http.max.request.bytes",
        ge=1 << 10,
        le=64 << 20,
        description="The largest body of an HTTP request.",
    )

    @property
    def http_listener(self) -> ListenerAddress | None:
        """What is spoken where HTTP is served, if it is to be."""
        if not self.http_listeners or (self.http_by_default and missing_web_packages()):
            return None
        return parse_listener(self.http_listeners)

    @property
    def http_address(self) -> Address | None:
        """Where HTTP is to be served, if at all."""
        return self.http_listener.address if self.http_listener else None

    @property
    def http_by_default(self) -> bool:
        """Whether nobody asked for an address: then it gives way, where one that was asked for is insisted on.

        A file that spells all defaults out asks for nothing (`load_settings` leaves them out).
        """
        return "http_listeners" not in self.model_fields_set

    @property
    def http_host_names(self) -> frozenset[str]:
        """Names other than plain addresses by which the listener may be called, in lower case."""
        named = {name.lower().rstrip(".") for name in split_list(self.http_hosts)}
        own = {self.http_address.host.lower()} if self.http_address else set()
        return frozenset(named | own | {"localhost"})

    is_an_http_address = field_validator("http_listeners")(validated_by(parse_listener))

    @field_validator("http_hosts")
    @classmethod
    def are_names_of_hosts(cls, value: HostNames) -> HostNames:
        for name in split_list(value):
            if not HOST_NAME.fullmatch(name):
                raise ValueError(f"{name!r} is none: write it without scheme, port and *, such as muster.example.org")
        return value

    @model_validator(mode="after")
    def http_can_be_served(self) -> Self:
        if self.http_address is None:
            return self
        if missing := missing_web_packages():
            raise ValueError(
                f"http.listeners is {self.http_listeners}, but {', '.join(missing)} is not installed; "
                "pip install 'muster-groups[web]', or leave http.listeners empty"
            )
        return self


@cache
def missing_web_packages() -> tuple[str, ...]:
    """What the listener needs and is not installed."""
    return tuple(name for name in WEB_EXTRA if find_spec(name) is None)
