"""What clients say while they work (a node that is away, a callback that raised), as lines on standard error."""

import contextlib
import logging

from muster.cli.common.output import notice

CLIENTS = logging.getLogger("muster.client")


class ClientNoticeHandler(logging.Handler):
    """Prints as every other notice is printed."""

    def emit(self, record: logging.LogRecord) -> None:
        # With standard error closed (our reader went away) there is nobody to tell, and the client works on.
        with contextlib.suppress(OSError, ValueError):
            notice(self.format(record))


def show_client_warnings() -> None:
    """Warnings and worse; saying it again is harmless."""
    if not any(isinstance(handler, ClientNoticeHandler) for handler in CLIENTS.handlers):
        CLIENTS.addHandler(ClientNoticeHandler(logging.WARNING))
