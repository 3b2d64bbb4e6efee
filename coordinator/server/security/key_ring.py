"""The public keys by which signed tokens are checked: from a file, or by HTTPS; read again as they change."""

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, NoReturn
from urllib.parse import unquote, urlsplit
from urllib.request import HTTPRedirectHandler, build_opener

import structlog

from muster.coordinator.config.authentication import AuthenticationSettings
from muster.coordinator.config.values import split_list
from muster.coordinator.errors import Overloaded
from muster.coordinator.security.limits import MOST_JWKS_BYTES, REFRESH_LEAST_S
from muster.coordinator.security.signed_tokens import (
    SigningKeySet,
    TokenRequirements,
    TokenSubject,
    UnknownSigningKey,
    parse_key_set,
    verify_token,
)
from muster.coordinator.server.security.gate import SignedIdentity
from muster.coordinator.server.security.hashing import HashingQueueFull, HashingThreads
from muster.storage.errors import DataDirectoryError

LOOK_S: Final = 1.0
"""How often it is looked whether a file has changed."""
FETCH_S: Final = 5.0

log = structlog.get_logger("muster.security")


class SigningKeysUnreadable(DataDirectoryError):
    """`sasl.oauthbearer.jwks.endpoint.url` leads to no keys: the node does not start."""


class NoRedirect(HTTPRedirectHandler):
    def redirect_request(self, *arguments: object) -> NoReturn:
        raise OSError("it leads somewhere else; name that place itself")


class SigningKeyRing:
    """The keys, and who a token speaks of by them. `verify_token` may run in a thread; all else on the node's loop."""

    def __init__(self, settings: AuthenticationSettings) -> None:
        self._url = settings.oauthbearer_jwks_url
        self._parts = urlsplit(self._url)
        self._refresh_s = settings.oauthbearer_refresh_ms / 1000
        self._expected = TokenRequirements(
            settings.oauthbearer_issuer,
            frozenset(split_list(settings.oauthbearer_audience)),
            settings.oauthbearer_sub_claim,
            settings.oauthbearer_skew_s,
        )
        self._checking = HashingThreads("muster-tokens")
        self._keys = SigningKeySet()
        self._document = b""
        self.changed: Callable[[], None] = lambda: None
        """Called on the loop when other keys count: what was believed by one that is gone is not any more."""
        self._seen: object = None
        self._tried_s = float("-inf")
        self._reading: asyncio.Task[bool] | None = None
        self._turning: asyncio.Task[None] | None = None

    @property
    def _file(self) -> Path | None:
        return Path(unquote(self._parts.path)) if self._parts.scheme == "file" else None

    async def start(self) -> None:
        """Read the keys. Raises KeysUnreadable for a file that has none; what is elsewhere may come later."""
        try:
            await asyncio.to_thread(self._read)
        except (OSError, ValueError) as error:
            if self._file is not None:
                raise SigningKeysUnreadable(
                    f"sasl.oauthbearer.jwks.endpoint.url is {self._url}, where no keys can be read: {error}"
                ) from error
            log.warning("no keys for signed tokens", url=self._url, why=str(error))
        self._turning = asyncio.create_task(self._turn())

    def close(self) -> None:
        self._checking.close()
        for task in (self._turning, self._reading):
            if task is not None:
                task.cancel()

    def believe(self, token: str) -> TokenSubject:
        """Raises Unbelieved; UnknownKey where newer keys may help."""
        return verify_token(token, self._keys, self._expected, time.time())

    async def verify(self, token: str) -> SignedIdentity:
        """The same, for the gate: off the loop, and with newer keys where they help. Raises ValueError,
        Overloaded."""
        try:
            try:
                speaker = await self._checking.run(partial(self.believe, token))
            except UnknownSigningKey:
                if not await self.refreshed():
                    raise
                speaker = await self._checking.run(partial(self.believe, token))
        except HashingQueueFull:
            raise Overloaded("too many signed tokens wait to be checked; come again") from None
        return SignedIdentity(speaker.name, speaker.until_s)

    async def refreshed(self) -> bool:
        """Whether the keys were read anew: at most so often, however many tokens ask for it."""
        if self._reading is None or self._reading.done():
            if time.monotonic() - self._tried_s < REFRESH_LEAST_S:
                return False
            self._reading = asyncio.create_task(self._refresh())
        return await asyncio.shield(self._reading)

    async def _turn(self) -> None:
        file = self._file
        while True:
            await asyncio.sleep(LOOK_S if file is not None else self._refresh_s)
            if file is None or await asyncio.to_thread(partial(stamp_file, file)) != self._seen:
                await self._refresh()

    async def _refresh(self) -> bool:
        self._tried_s, before = time.monotonic(), self._document
        try:
            await asyncio.to_thread(self._read)
        except (OSError, ValueError) as error:
            log.warning("no keys for signed tokens", url=self._url, why=str(error))
            return False
        if self._document != before:
            self.changed()
        return True

    def _read(self) -> None:
        """Blocks. What cannot be read leaves the keys as they are. Raises OSError, ValueError."""
        file = self._file
        if file is not None:
            self._seen = stamp_file(file)
            with file.open("rb") as opened:
                document = opened.read(MOST_JWKS_BYTES + 1)
        else:
            with build_opener(NoRedirect).open(self._url, timeout=FETCH_S) as answer:
                document = answer.read(MOST_JWKS_BYTES + 1)
        if len(document) > MOST_JWKS_BYTES:
            raise ValueError(f"it has more than {MOST_JWKS_BYTES} bytes")
        self._keys, self._document = parse_key_set(document), document


def stamp_file(file: Path) -> object:
    """What changes when the file does, by whatever way it was replaced."""
    try:
        found = os.stat(file)
    except OSError as error:
        return error.errno
    return found.st_mtime_ns, found.st_size, found.st_ino
