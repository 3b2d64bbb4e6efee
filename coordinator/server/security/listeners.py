"""The certificates of a node's listeners: loaded before anybody is answered, and anew when their files change."""

import asyncio
import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final

import structlog

from muster.coordinator.config import Settings
from muster.coordinator.config.tls import LISTENER_NAMES, REPLICATION, BadCertificate, CertificateSettings
from muster.coordinator.edge.seldom import LogThrottle
from muster.coordinator.edge.tls import ListenerTls
from muster.coordinator.runtime.conditions import Conditions
from muster.coordinator.security.identity import ANONYMOUS, Identity, Principal
from muster.coordinator.server.security.certificates import CertificatePrincipals, UnmappedCertificate
from muster.coordinator.server.security.contexts import CurrentTlsContext, make_client_context, make_listener_context
from muster.coordinator.server.security.material import (
    CertificateMaterial,
    check_client_use,
    covers_host,
    load_material,
)

if TYPE_CHECKING:
    from ssl import SSLContext, SSLObject

LOOK_S: Final = 1.0
"""How often the files are looked at."""

SOON_S: Final = 14 * 86_400
"""A certificate that ends within so long is told."""

TELL_EVERY_S: Final = 10.0
"""Of certificates that are nobody's, one from an address in so many seconds is told."""

log = structlog.get_logger("muster.tls")


class ListenerCertificates:
    """Of one listener: what its next handshakes show and believe."""

    def __init__(
        self,
        door: str,
        given: CertificateSettings,
        wall_s: Callable[[], float],
        handshake_s: float,
        *,
        by_login: bool,
    ) -> None:
        """`by_login`: who speaks is told by a login, whatever certificate is shown."""
        self.door = door
        self.given = given
        self._wall_s = wall_s
        self._handshake_s = handshake_s
        self._by_login = by_login
        self._told = LogThrottle(TELL_EVERY_S)
        self._seen = stamp_certificate_files(given)
        self.material, context = self._made()
        self.context = CurrentTlsContext(context)
        self.names = CertificatePrincipals(given.ssl_principal_mapping_rules, given.mapping_rules)

    def changed(self) -> bool:
        """Whether the files are others than when they were last read. Blocks for some calls of the system."""
        return stamp_certificate_files(self.given) != self._seen

    def reload(self) -> None:
        """For handshakes that begin from now on. Blocks. Raises BadCertificate, and all stays as it was."""
        seen = stamp_certificate_files(self.given)
        try:
            material, context = self._made()
        finally:
            self._seen = seen  # What cannot be used is not read again before it changes.
        self.material = material
        self.context.replace(context)

    def tls(self) -> ListenerTls:
        """For a listener that asyncio serves."""
        return ListenerTls(
            self.door, self.context, self.identity_of, self._handshake_s, self.context.on_name, self.covers
        )

    def covers(self, name: str) -> bool:
        """Whether clients that check names take the certificate for a host of this one."""
        return covers_host(name, self.material.hosts)

    def calling(self) -> "SSLContext":
        """For the next connection to another node, with the same certificate as is shown here. Raises
        BadCertificate."""
        return make_client_context(self.material, self.given)

    def identity_of(self, handshake: "SSLObject | None", host: str) -> Identity | None:
        """Who speaks on a connection, after its handshake; None, and a line in the log, where the rules name nobody."""
        certificate = None if handshake is None else handshake.getpeercert(binary_form=True)
        if certificate is None or self._by_login:
            return Identity(ANONYMOUS, host)
        try:
            return self.names.identity_of(certificate, host)
        except UnmappedCertificate as error:
            untold = self._told.due(host, time.monotonic())
            if untold is not None:
                log.warning("no TLS connection", door=self.door, peer=host, why=str(error), untold=untold)
            return None

    def _made(self) -> "tuple[CertificateMaterial, SSLContext]":
        try:
            material = load_material(self.given, self._wall_s())
            if self.door == REPLICATION:
                check_client_use(material)
            return material, make_listener_context(material, self.given)
        except BadCertificate as error:
            raise BadCertificate(f"{LISTENER_NAMES[self.door]} speaks TLS: {error}") from error


class NodeCertificates:
    """Of all listeners of a node that speak TLS."""

    def __init__(self, settings: Settings, *, wall_s: Callable[[], float] = time.time) -> None:
        """Reads all of them. Blocks. Raises BadCertificate."""
        self._wall_s = wall_s
        self._of = {
            name: ListenerCertificates(
                name,
                settings.certificates_of(name),
                wall_s,
                settings.connection_setup_timeout_ms / 1000,
                by_login=door.asks_by_sasl,
            )
            for name, door in settings.doors.items()
            if door.encrypted
        }
        self._looking: asyncio.Task[None] | None = None

    def of(self, door: str) -> ListenerCertificates | None:
        return self._of.get(door)

    def principal_of(self, certificate: bytes, door: str) -> Principal:
        """Whose certificate (PEM or DER) a door was shown. Raises NotNamed."""
        return self._of[door].names.principal_of(certificate)

    def expiries(self) -> Mapping[str, float]:
        """Per listener, when what it shows ends, by the clock of the wall."""
        return {LISTENER_NAMES[name]: each.material.expires_s for name, each in self._of.items()}

    def start(self, conditions: Conditions) -> None:
        """From now on look after them, on this loop."""
        self._looking = asyncio.get_running_loop().create_task(self._look_after(conditions))

    def stop(self) -> None:
        if self._looking is not None:
            self._looking.cancel()

    async def _look_after(self, conditions: Conditions) -> None:
        while True:
            await self.look(conditions)
            await asyncio.sleep(LOOK_S)

    async def look(self, conditions: Conditions) -> None:
        """Read what has changed, and say of each listener what is wrong with its certificate."""
        for name, each in self._of.items():
            await self._renew(name, each, conditions)
            update_expiry_condition(conditions, name, each.material, self._wall_s())

    async def _renew(self, name: str, each: ListenerCertificates, conditions: Conditions) -> None:
        condition = f"certificate-not-read:{name}"
        try:
            if not await asyncio.to_thread(each.changed):
                return
            await asyncio.to_thread(each.reload)
        except BadCertificate as error:
            conditions.report(
                condition,
                f"{error}; the certificate of before ({each.material.subject}) is shown until the file is mended",
            )
        except Exception as error:  # whatever it was: the files must be looked at again
            log.error("certificates could not be looked at", door=name, exc_info=error)
        else:
            conditions.clear(condition)
            log.info(
                "certificates read", door=name, subject=each.material.subject, ends=format_day(each.material.expires_s)
            )


def update_expiry_condition(conditions: Conditions, name: str, material: CertificateMaterial, now_s: float) -> None:
    """While it is near, or past: each once."""
    near, past = f"certificate-ends:{name}", f"certificate-ended:{name}"
    shown = f"the certificate that {LISTENER_NAMES[name]} shows ({material.subject})"
    cure = "put a new one in its file, no restart is needed"
    told = {}
    if material.expires_s <= now_s:
        told[past] = f"{shown} ended {format_day(material.expires_s)}, and clients refuse to connect; {cure}"
    elif material.expires_s - now_s <= SOON_S:
        told[near] = f"{shown} ends {format_day(material.expires_s)}; {cure}"
    for condition in (near, past):
        if condition not in told:
            conditions.clear(condition)
        elif conditions.sentence(condition) != told[condition]:
            conditions.report(condition, told[condition])


def stamp_certificate_files(given: CertificateSettings) -> tuple[object, ...]:
    """What tells of each file whether it is another, or was written again: also behind links (Kubernetes swaps one)."""
    return tuple(stamp_path(path) for path in given.certificate_files)


def stamp_path(path: str) -> object:
    try:
        real = os.path.realpath(path)
        told = os.stat(real)
    except OSError as error:
        return error.errno
    return real, told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns


def format_day(at_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at_s))
