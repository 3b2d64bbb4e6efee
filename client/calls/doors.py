"""What listens at an address that takes connections and does not speak gRPC: so that a wrong port is told as one."""

import asyncio
import contextlib
import struct

from muster.client.errors import Unreachable, WrongPort

CLOSED_AT_ONCE = ("Socket closed", "Connection reset", "Endpoint closing")
NOT_HTTP2 = "Failed parsing HTTP/2"
"""What gRPC's detail says of a connection that came about and was not understood, by the other side or by us."""

PROBE_S = 1.0
API_VERSIONS, CORRELATION_ID = 18, 0x6D7573
MAX_ANSWER_BYTES = 1 << 20

SPEAKS_KAFKA = (
    "speaks Kafka's protocol and not gRPC: it is a port for Kafka's clients; bootstrap.servers takes a node's gRPC "
    "port here (listeners in its properties, --listen; 9290 unless told otherwise); a broker other than Muster has none"
)
NO_GRPC = "takes connections, but what listens there does not speak gRPC; is the port the one of a Muster node?"


SPEAKS_TLS = "speaks TLS, and this client does not; set security.protocol=SSL, and the CA in ssl.truststore.location"


async def diagnose_unreachable(error: Unreachable) -> Unreachable:
    """The same error, or a WrongPort that says what listens there instead of a node that talks plainly."""
    if error.address.startswith("unix:") or not any(sign in error.detail for sign in (*CLOSED_AT_ONCE, NOT_HTTP2)):
        return error
    if await speaks_kafka(error.address):
        return WrongPort(error, SPEAKS_KAFKA)
    if await speaks_tls(error.address):
        return WrongPort(error, SPEAKS_TLS)
    return WrongPort(error, NO_GRPC) if NOT_HTTP2 in error.detail else error


async def speaks_kafka(address: str) -> bool:
    """Whether an ApiVersions request, which every broker answers to anybody, is answered there."""
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_S):
            reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
            try:
                header = struct.pack(">hhih", API_VERSIONS, 0, CORRELATION_ID, -1)
                writer.write(struct.pack(">i", len(header)) + header)
                size, correlation_id = struct.unpack(">ii", await reader.readexactly(8))
            finally:
                writer.close()
                with contextlib.suppress(OSError):
                    await writer.wait_closed()
    except (OSError, asyncio.IncompleteReadError, ValueError):
        # TimeoutError is an OSError.
        return False
    return bool(correlation_id == CORRELATION_ID and 4 < size <= MAX_ANSWER_BYTES)


async def speaks_tls(address: str) -> bool:
    """Whether a TLS handshake comes about there; nobody is trusted for it, and nothing is said over it."""
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_alpn_protocols(["h2"])
    host, _, port = address.rpartition(":")
    try:
        async with asyncio.timeout(PROBE_S):
            _, writer = await asyncio.open_connection(host.strip("[]"), int(port), ssl=context)
            writer.transport.abort()
    except (OSError, ValueError):
        # TimeoutError and ssl.SSLError are OSErrors.
        return False
    return True
