"""When a log is not to be trusted, or its disk does not do its work: one sentence, told to all who ask."""

import logging
from typing import TYPE_CHECKING

from muster.storage.errors import LogFenced, StorageError
from muster.storage.logs import reshape

if TYPE_CHECKING:
    from muster.storage.logs.log import Log

logger = logging.getLogger("muster.storage")


def fence_log(log: "Log", why: str) -> StorageError:
    """The log takes no more appends; what its producers hear from now on."""
    log.failure = LogFenced(f"{why}. The log takes no appends until the node is restarted and has checked it.")
    logger.error("%s", log.failure)
    log.troubles.fenced(log.partition, log.failure)
    return log.failure


def check_active_file(log: "Log") -> None:
    """Raises LogFenced if the log's file has been removed or replaced."""
    cuts = log.cuts.seen
    active = log.segment_list.active
    if log.failure or reshape.open_active(active).is_at(active.path()):
        return
    # Whoever rolls, truncates or removes the log has good reason.
    if active is log.segment_list.active and log.cuts.none_since(cuts) and not log.retired:
        raise fence_log(
            log,
            f"{active.path()} has been removed or replaced while the node uses it: its records are not in the data "
            "directory any more",
        )


def read_refusal(log: "Log", error: OSError) -> StorageError:
    """What a reader hears whom the system lets down."""
    refusal = StorageError(
        f"Could not read {error.filename or log.directory}: {error.strerror or error}. Nothing is known to be "
        "lost; mend what the system complains of, then fetch again."
    )
    log.troubles.refused(log.partition, refusal, error)
    return refusal
