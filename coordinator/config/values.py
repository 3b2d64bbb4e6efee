"""The kinds of value that settings share: listener addresses, ZooKeeper connect strings, bounds, lists, assignor names.

An address is HOST:PORT, optionally behind a protocol (`SASL_SSL://host:port`); an IPv6 host stands in brackets. Every
parser raises ValueError with a sentence that a person can act on.
"""

import ipaddress
from collections.abc import Callable, Collection, Iterable
from functools import lru_cache
from typing import Final, NamedTuple, NewType

from muster.assignors.registry import BUILT_IN, resolve
from muster.assignors.run import is_ours

# Addresses
# ---------

ConnectText = NewType("ConnectText", str)
AddressOrNone = NewType("AddressOrNone", str)
"""HOST:PORT, or nothing although there is a default."""
HostNames = NewType("HostNames", str)
CollectorText = NewType("CollectorText", str)

ZOOKEEPER_PORT = 2181

PLAINTEXT: Final = "PLAINTEXT"
SSL: Final = "SSL"
SASL_PLAINTEXT: Final = "SASL_PLAINTEXT"
SASL_SSL: Final = "SASL_SSL"
WITHOUT_SASL: Final = (PLAINTEXT, SSL)
WITH_SASL: Final = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
"""What a listener may speak, by Kafka's words."""

WILDCARD_HOSTS = frozenset({"0.0.0.0", "::"})
"""Good to listen on, useless to tell a client."""


class Address(NamedTuple):
    host: str
    port: int


def format_address(host: str, port: int) -> str:
    """What `parse_address` reads.

    >>> format_address("node-1", 9290), format_address("::1", 9290)
    ('node-1:9290', '[::1]:9290')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(text: str) -> Address:
    """HOST:PORT, an IPv6 host in brackets. Raises ValueError.

    >>> parse_address("[::1]:9290")
    Address(host='::1', port=9290)
    """
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if bracketed else host
    if not colon or not bare or not port.isascii() or not port.isdigit() or int(port) > 65_535:
        raise ValueError("a host, a colon and a port from 0 to 65535, such as 127.0.0.1:9290")
    if not bracketed and (":" in bare or "/" in bare):
        raise ValueError("without a scheme; an IPv6 host in brackets, such as [::1]:9290")
    return Address(bare, int(port))


class ListenerAddress(NamedTuple):
    """What a listener speaks, and where."""

    protocol: str
    address: Address

    @property
    def encrypted(self) -> bool:
        return self.protocol in (SSL, SASL_SSL)

    @property
    def asks_by_sasl(self) -> bool:
        return self.protocol in (SASL_PLAINTEXT, SASL_SSL)


def parse_listener(text: str, protocols: Collection[str] = WITHOUT_SASL) -> ListenerAddress:
    """[PROTOCOL://]HOST:PORT; PLAINTEXT where no protocol is named. Raises ValueError.

    >>> parse_listener("SSL://127.0.0.1:9290"), parse_listener("[::1]:0").protocol
    (ListenerAddress(protocol='SSL', address=Address(host='127.0.0.1', port=9290)), 'PLAINTEXT')
    """
    named, slashes, address = text.rpartition("://")
    if not slashes:
        return ListenerAddress(PLAINTEXT, parse_address(text))
    if named not in protocols:
        raise ValueError(f"{named!r} is not supported here; expected one of {', '.join(protocols)} before ://")
    return ListenerAddress(named, parse_address(address))


def parse_advertised(text: str, listener: str, protocols: Collection[str] = WITHOUT_SASL) -> Address:
    """What clients are told, without the protocol, which has to be the listener's, if any. Raises ValueError."""
    told, spoken = parse_listener(text, protocols), parse_listener(listener, protocols).protocol
    if "://" in text and told.protocol != spoken:
        raise ValueError(
            f"{text} says {told.protocol}, but what listens there speaks {spoken}; write {spoken}:// or none"
        )
    return told.address


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches what listens there.

    >>> is_loopback("localhost"), is_loopback("127.0.0.2"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host.lower() == "localhost"


@lru_cache(maxsize=64)  # It is asked with each answer that tells where this node is.
def advertised_address(
    advertised: str, listener: str, bound_port: int, protocols: tuple[str, ...] = WITHOUT_SASL
) -> Address:
    """Where clients are told to connect. The port that was bound stands in for an advertised port 0, as in Kafka.

    >>> advertised_address("SSL://muster.example:0", "SSL://0.0.0.0:0", 4711)
    Address(host='muster.example', port=4711)
    """
    if not advertised:
        return Address(parse_listener(listener, protocols).address.host, bound_port)
    host, port = parse_advertised(advertised, listener, protocols)
    return Address(host, port or bound_port)


def check_advertised_host(host: str, clients: str, setting: str) -> None:
    """Raises ValueError when nobody can connect to what `clients` would be told."""
    if host in WILDCARD_HOSTS:
        raise ValueError(
            f"{clients} would be told to connect to {host}, which is not the address of a machine; set "
            f"{setting} to the HOST:PORT by which they reach this node"
        )


class ConnectString(NamedTuple):
    """Where a ZooKeeper ensemble is: HOST:PORT of its servers, and the directory that all paths are relative to."""

    servers: tuple[Address, ...]
    chroot: str
    """Empty, or a path such as /kafka."""

    @property
    def hosts(self) -> str:
        """The servers alone, as HOST:PORT,HOST:PORT."""
        return ",".join(format_address(*server) for server in self.servers)

    def __str__(self) -> str:
        return self.hosts + self.chroot


def parse_connect(text: str) -> ConnectString:
    """What `zookeeper.connect` says; a server without a port listens on 2181. Raises ValueError.

    >>> str(parse_connect("zk1:2181, zk2/kafka"))
    'zk1:2181,zk2:2181/kafka'
    """
    servers, slash, path = text.partition("/")
    parts = [part for part in path.split("/") if part]
    if slash and (path.endswith("/") or "//" in path) and path:
        raise ValueError(f"a chroot like /kafka, without empty parts, not /{path}")
    if any(part in (".", "..") for part in parts):
        raise ValueError(f"a chroot without . and .., not /{path}")
    try:
        addresses = tuple(parse_address(add_default_port(server.strip())) for server in servers.split(","))
    except ValueError as error:
        raise ValueError("HOST:PORT,HOST:PORT/CHROOT, such as 127.0.0.1:2181/kafka") from error
    return ConnectString(addresses, "/" + "/".join(parts) if parts else "")


def add_default_port(server: str) -> str:
    has_port = ":" in (server.rpartition("]")[2] if server.startswith("[") else server)
    return server if has_port else f"{server}:{ZOOKEEPER_PORT}"


# Bounds and lists
# ----------------

MAX_SHORT = 2**15 - 1
DAY_MS = 86_400_000

SASL_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER")
"""How somebody may show who they are: clients to this node, this node to a Kafka."""

AssignorNames = NewType("AssignorNames", str)
"""Separated by commas."""

PrincipalNames = NewType("PrincipalNames", str)
"""Separated by semicolons, since a distinguished name has commas."""

FileText = NewType("FileText", str)
"""The path of a file; empty for none."""


def validated_by(read: Callable[[str], object]) -> Callable[[str], str]:
    """A validator: the value again if it is empty, or `read` makes sense of it; what that raises otherwise."""

    def validate(value: str) -> str:
        if value:
            read(value)
        return value

    return validate


def check_assignor_names(names: AssignorNames) -> AssignorNames:
    """The names again. Raises ValueError when one is no assignor, or two are of one name."""
    if not split_list(names):
        raise ValueError("name an assignor or more")
    assignor_words_by_name(split_list(names))
    return names


def assignor_words_by_name(words: Iterable[str]) -> dict[str, str]:
    """By the name of each assignor the word that finds it. Raises ValueError."""
    found: dict[str, str] = {}
    for word in words:
        assignor = resolve(word)
        if assignor.name in BUILT_IN and not is_ours(assignor):
            raise ValueError(f"{word!r} calls itself {assignor.name!r}, which is built in; give its class another name")
        if found.setdefault(assignor.name, word) != word and not is_ours(assignor):
            raise ValueError(f"{word!r} and {found[assignor.name]!r} have the same name {assignor.name!r}; rename one")
    return found


def split_list(text: str) -> tuple[str, ...]:
    """What a list by commas names.

    >>> split_list("range, lag,")
    ('range', 'lag')
    """
    return tuple(word.strip() for word in text.split(",") if word.strip())
