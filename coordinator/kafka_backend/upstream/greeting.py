"""How a connection to the upstream begins: which versions both speak, then who we are."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeAlias

from muster.coordinator.config import Address
from muster.coordinator.kafka.codec.codec import struct
from muster.coordinator.kafka_backend.upstream.errors import (
    Unreached,
    UpstreamError,
    UpstreamRefused,
    describe_address,
    describe_code,
)
from muster.coordinator.kafka_backend.upstream.line import UpstreamConnection
from muster.coordinator.kafka_backend.upstream.reach import UpstreamAddress, UpstreamCredentials
from muster.coordinator.kafka_backend.upstream.speaking import negotiate_versions

SOFTWARE: Final = "muster"
UNSUPPORTED_VERSION: Final = 35
Say: TypeAlias = Callable[[bytes], Awaitable[bytes]]
"""One round of SaslAuthenticate."""

OF_LIFETIME: Final = 0.8
"""After this share of a login's time another connection is made."""


async def open_connection(address: Address, reach: UpstreamAddress) -> UpstreamConnection:
    """A connection that is greeted and logged in, within `reach.connect_s`. Raises UpstreamError."""
    try:
        async with asyncio.timeout(reach.connect_s):
            line = await UpstreamConnection.opened(address, reach)
            try:
                await negotiate(line, reach.connect_s)
                if reach.login is not None:
                    await log_in(line, reach.login, reach.connect_s)
            except BaseException:
                line.close()
                raise
            line.let_in()
            return line
    except TimeoutError:
        raise Unreached(f"{describe_address(address)} did not let us in within {reach.connect_s:g} s") from None


async def negotiate(line: UpstreamConnection, deadline_s: float) -> None:
    """Ask for versions. An upstream that does not know this version of the question answers in the first one."""
    request = struct("ApiVersionsRequest")(client_software_name=SOFTWARE, client_software_version="1")
    frame = await line.ask_in(3, "ApiVersions", request, deadline_s)
    code = int.from_bytes(frame[4:6], "big", signed=True)
    if code == UNSUPPORTED_VERSION:
        frame = await line.ask_in(0, "ApiVersions", request, deadline_s)
        code = int.from_bytes(frame[4:6], "big", signed=True)
        answer = line.read("ApiVersions", 0, frame)
    else:
        answer = line.read("ApiVersions", 3, frame)
    if code:
        raise UpstreamRefused(f"greeting {describe_address(line.address)}", code)
    line.versions = negotiate_versions({one.api_key: (one.min_version, one.max_version) for one in answer.api_keys})


async def log_in(line: UpstreamConnection, login: UpstreamCredentials, deadline_s: float) -> None:
    """Raises UpstreamError; no secret is in it, nor what the upstream makes of one."""
    where = describe_address(line.address)
    shaken = await line.ask("SaslHandshake", struct("SaslHandshakeRequest")(mechanism=login.mechanism), deadline_s)
    if shaken.error_code:
        offered = ", ".join(shaken.mechanisms) or "none"
        raise UpstreamError(
            f"{where} does not take {login.of}sasl.mechanism {login.mechanism}: {describe_code(shaken.error_code)}; "
            f"it offers {offered}"
        )

    lifetimes = [0]

    async def say(data: bytes) -> bytes:
        answer = await line.ask("SaslAuthenticate", struct("SaslAuthenticateRequest")(auth_bytes=data), deadline_s)
        if answer.error_code:
            raise UpstreamError(f"{where} refuses the login by {login.mechanism}: {describe_code(answer.error_code)}")
        lifetimes.append(answer.session_lifetime_ms)
        return bytes(answer.auth_bytes)

    if login.mechanism == "PLAIN":
        await say(f"\0{login.username}\0{login.password}".encode())
    elif login.mechanism == "OAUTHBEARER":
        if await say(f"n,,\x01auth=Bearer {login.token()}\x01\x01".encode()):
            await say(b"\x01")  # it has said why in JSON, and refuses in its next answer
            raise UpstreamError(f"{where} refuses the token")
    else:
        await by_scram(say, login, where)
    if lifetimes[-1] > 0:
        line.stale_s = asyncio.get_running_loop().time() + lifetimes[-1] / 1000 * OF_LIFETIME


async def by_scram(say: Say, login: UpstreamCredentials, where: str) -> None:
    """Both ends prove that they know the password; it is never sent."""
    try:
        from scramp import ScramClient, ScramException
    except ImportError:
        raise UpstreamError(
            f"{login.mechanism} needs the package scramp, which is not installed; install muster-groups[security]"
        ) from None
    client = ScramClient([login.mechanism], login.username, login.password)
    try:
        client.set_server_first((await say(client.get_client_first().encode())).decode())
        # In a thread: the password is hashed as often as the broker says, and clients come in many at once.
        final = await asyncio.to_thread(client.get_client_final)
        client.set_server_final((await say(final.encode())).decode())
    except (ScramException, UnicodeDecodeError) as error:
        raise UpstreamError(f"{where} did not prove by {login.mechanism} that it knows the password") from error
