"""Whose a data directory is: lock, identity and the mark of a clean shutdown.

Nothing is written into a directory before it is known to be ours or empty.
"""

import json
import logging
import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from muster.storage.errors import DataDirectoryError
from muster.storage.files import Files, Lock, LockHeld, read_file, replace_file
from muster.storage.topics.catalog import CATALOG, format_id

logger = logging.getLogger("muster.storage")

META = "meta.properties"
META_VERSION = "1"
GUARDED_VERSION = "2"
"""Of a directory whose node asks callers who they are: versions of Muster that would ask nobody know version 1 only,
and refuse it."""
LOCK = ".lock"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
PRIVATE_POINTS = "private-recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_POINTS = "cleaner-offset-checkpoint"
HIGH_WATERMARKS = "replication-offset-checkpoint"
PENDING_SECURITY = "security.pending"
"""Who is to be known to the cluster once the node is started: written by hand, before anything else may be there."""

_AN_ID = re.compile(r"[A-Za-z0-9_-]{22}")
_NO_ID = "-" * 22

# What a first start that was cut short may leave behind.
_BEGINNINGS = {
    *(LOCK, META, META + ".tmp", CATALOG + ".tmp", "lost+found"),
    *(PENDING_SECURITY, PENDING_SECURITY + ".tmp"),
}


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """Who writes here: the cluster's 22 characters and the node's number.

    `directory_id`, 22 characters as well, is this directory's alone: another disk has another one. Empty where it could
    not be written down, for then the next start has another. `boot_id` is the start of the machine in which the
    directory was last used, "" where that is unknown. `unclean` says that records which nobody was promised to be
    flushed may have gone with a former one, and nobody has reckoned with that yet. `guarded`: the node that used it
    last had an authorizer.
    """

    cluster_id: str
    node_id: int
    directory_id: str = ""
    boot_id: str = ""
    unclean: bool = False
    guarded: bool = False

    def text(self) -> str:
        """`meta.properties`. Programs that know fewer of its lines skip the others.

        The last line is one that must be there, so that a file which is cut short is seen to be.
        """
        lines = {
            "version": GUARDED_VERSION if self.guarded else META_VERSION,
            "boot.id": self.boot_id,
            "unclean": "true" if self.unclean else "",
            "directory.id": self.directory_id,
            "cluster.id": self.cluster_id,
            "node.id": self.node_id,
        }
        return "".join(f"{key}={value}\n" for key, value in lines.items() if value != "")


def known_cluster_id(files: Files, path: str) -> str | None:
    """The cluster that the directory belongs to, looked up without taking it; None while it belongs to none.

    Whoever takes the directory afterwards finds out what is wrong with one that cannot be read.
    """
    try:
        lines = read_file(files, f"{path}/{META}").decode().splitlines()
    except (OSError, ValueError):
        return None
    return next((line.partition("=")[2] for line in lines if line.startswith("cluster.id=")), None)


def take_directory(
    files: Files, path: str, node_id: int, random_bytes: Callable[[int], bytes], cluster_id: str | None = None
) -> tuple[Lock, DirectoryIdentity, bool]:
    """Lock the directory for this process; its identity, and whether it was new.

    `cluster_id` is for a directory that is new; None draws one. DataDirectoryError when it is foreign, unreadable, of
    another node, or held by another process.
    """
    try:
        fresh = is_fresh(files, path)
        _make_durable(files, path)
        lock = files.lock(f"{path}/{LOCK}")
    except LockHeld as error:
        raise DataDirectoryError(
            f"The data directory {path} is in use by process {error.holder or 'unknown'}. Stop that process, "
            "or choose another directory.",
            error.holder,
        ) from None
    except OSError as error:
        raise _unusable(path, error) from error
    _tighten(files, path)
    try:
        return lock, _identity(files, path, node_id, random_bytes, cluster_id), fresh
    except BaseException:
        lock.release()
        raise


def _tighten(files: Files, path: str) -> None:
    """Older versions let everybody read; who may not enter the directory reaches nothing in it."""
    try:
        before = files.tighten(path)
    except OSError as error:
        logger.warning(
            "Others than the owner may enter the data directory %s, and its mode cannot be changed: %s. Run chmod 700 "
            "on it as its owner.", path, error.strerror or error,
        )  # fmt: skip
        return
    if before is not None:
        logger.warning("The data directory %s had mode %04o; it has 0700 now, for its owner alone.", path, before)


def _unusable(path: str, error: OSError) -> DataDirectoryError:
    return DataDirectoryError(
        f"The data directory {path} cannot be used: {error.strerror or error}. Check that it exists, is a "
        "directory and may be written to."
    )


def _make_durable(files: Files, path: str) -> None:
    """Make the directory and those above it, each with its entry on disk."""
    missing = []
    while path not in ("", "/") and not files.exists(path):
        missing.append(path)
        path = path.rsplit("/", 1)[0]
    for directory in reversed(missing):
        files.make_dir(directory)
        files.sync_dir(directory.rsplit("/", 1)[0] or "/")


def is_fresh(files: Files, path: str) -> bool:
    """Whether it holds no more than a first start that was cut short. Raises DataDirectoryError when it is foreign."""
    try:
        if not files.exists(path):
            return True
        names = set(files.names(path))
    except OSError as error:
        raise _unusable(path, error) from error
    if META in names and CATALOG in names:
        return False
    if names <= _BEGINNINGS:
        return True
    foreign = sorted(names - _BEGINNINGS)
    raise DataDirectoryError(
        f"The directory {path} is not empty and is no Muster data directory (it holds '{foreign[0]}'"
        f"{f' and {len(foreign) - 1} more' if len(foreign) > 1 else ''}). Nothing was changed. "
        "Choose an empty directory."
    )


def _identity(
    files: Files, path: str, node_id: int, random_bytes: Callable[[int], bytes], cluster_id: str | None
) -> DirectoryIdentity:
    meta = f"{path}/{META}"
    try:
        if not files.exists(meta):
            of_cluster = cluster_id or format_id(random_bytes(16))
            made = DirectoryIdentity(of_cluster, node_id, format_id(random_bytes(16)), files.boot_id())
            replace_file(files, meta, made.text().encode())
            return made
        lines = read_file(files, meta).decode().splitlines()
        found = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
        if missing := [key for key in ("version", "cluster.id", "node.id") if key not in found]:
            raise ValueError(f"it has no line {missing[0]}=...")
        if not _AN_ID.fullmatch(found.get("directory.id", _NO_ID)):
            raise ValueError(f"its directory.id={found['directory.id']} has not the 22 characters of an id")
        known = DirectoryIdentity(
            found["cluster.id"],
            int(found["node.id"]),
            found.get("directory.id", ""),
            found.get("boot.id", ""),
            found.get("unclean") == "true",
            found["version"] == GUARDED_VERSION,
        )
    except (OSError, ValueError) as error:
        raise DataDirectoryError(
            f"{meta} cannot be read: {error}. Expected lines version, cluster.id and node.id; restore it from a copy."
        ) from None
    if found["version"] not in (META_VERSION, GUARDED_VERSION):
        raise DataDirectoryError(
            f"{meta} has version {found['version']}, this program knows versions {META_VERSION} and {GUARDED_VERSION}. "
            "Nothing was changed. Use the program that wrote it, or choose another directory."
        )
    if known.node_id != node_id:
        raise DataDirectoryError(
            f"{meta} belongs to node {known.node_id}, this is node {node_id}. Start with "
            f"--set node.id={known.node_id}, or choose another directory."
        )
    return known


def note_start(
    files: Files, path: str, known: DirectoryIdentity, random_bytes: Callable[[int], bytes], *, loose: bool
) -> DirectoryIdentity:
    """What is to be known of the directory from this start on, written down before the mark of a clean shutdown goes.

    `loose`: it holds a log that acknowledges before it flushes. Such a log has lost records if the machine stopped
    while it was open: the mark is missing, and this is not the boot in which that was. A process that is killed leaves
    its writes with the system, and loses none.
    """
    boot_id = files.boot_id()
    same = bool(boot_id) and boot_id == known.boot_id
    lost = loose and not same and not files.exists(f"{path}/{CLEAN_SHUTDOWN}")
    now = replace(
        known,
        directory_id=known.directory_id or format_id(random_bytes(16)),
        boot_id=boot_id,
        unclean=known.unclean or lost,
    )
    return write_identity(files, path, known, now)


def count_as_another(files: Files, path: str) -> None:
    """The next start draws another directory id: a cluster then takes what lies here for a new disk's, which is in sync
    with nobody before it has copied what it lacks. Raises OSError."""
    meta = f"{path}/{META}"
    lines = read_file(files, meta).decode().splitlines(keepends=True)
    kept = [line for line in lines if not line.startswith("directory.id=")]
    replace_file(files, meta, "".join(kept).encode())


def write_identity(files: Files, path: str, known: DirectoryIdentity, now: DirectoryIdentity) -> DirectoryIdentity:
    """Write the identity as it is now. A disk that takes nothing keeps nobody from starting."""
    if now == known:
        return known
    try:
        replace_file(files, f"{path}/{META}", now.text().encode())
    except OSError as error:
        logger.warning(
            "Could not bring %s/%s up to date: %s. The next start tries again.", path, META, error.strerror or error
        )
        return replace(now, directory_id=known.directory_id)
    return now


def take_clean_mark(files: Files, path: str) -> bool:
    """Whether the last process shut down in order. The mark is gone afterwards: it counts once."""
    mark = f"{path}/{CLEAN_SHUTDOWN}"
    if not files.exists(mark):
        return False
    try:
        clean: bool = json.loads(read_file(files, mark)) == {"version": 0, "brokerEpoch": 0}
    except (OSError, ValueError):
        clean = False
    files.remove(mark)
    files.sync_dir(path)
    return clean


def leave_clean_mark(files: Files, path: str) -> None:
    replace_file(files, f"{path}/{CLEAN_SHUTDOWN}", b'{"version":0,"brokerEpoch":0}')
