"""Errors of ZooKeeper and of the way to it, in Muster's own classes, so that no caller needs kazoo to catch them."""

INSTALL = "install it with: pip install 'muster-groups[zookeeper]'"


class ZooKeeperError(Exception):
    """Anything that ZooKeeper, or the way to it, refused. The message says what and what helps.

    step: of a transaction, which of its steps failed, counted from 0; None where that is not known."""

    step: int | None = None


class ExtraMissing(ZooKeeperError):
    """A package of the extra `zookeeper` is not installed."""

    def __init__(self, package: str) -> None:
        super().__init__(f"the Python package {package} is not installed; {INSTALL}")


class ZooKeeperUnreachable(ZooKeeperError):
    """No server answered within the connection timeout."""


class LoginUnreadable(ZooKeeperError):
    """The file with the login cannot be read, or holds none."""


class NoAuth(ZooKeeperError):
    """The znode is for others: this session has not logged in as one of them."""


class MissingChroot(ZooKeeperError):
    """The chroot is not there, and whoever asks does not make one."""


class ConnectionLost(ZooKeeperError):
    """The connection broke while the answer was awaited: the request may have taken effect, or not."""


class SessionExpired(ZooKeeperError):
    """The session is over; its ephemeral znodes are gone or about to go."""


class NoNode(ZooKeeperError):
    """The znode, or for a create its parent, is not there."""


class NodeExists(ZooKeeperError):
    """Somebody has made this znode before."""


class BadVersion(ZooKeeperError):
    """The znode was changed since it was read."""


class NotEmpty(ZooKeeperError):
    """The znode has children."""


class ZooKeeperRequestTooLarge(ZooKeeperError):
    """More than ZooKeeper takes in one request: it would close the connection, and all that waits there with it."""

    def __init__(self, path: str, size: int, most: int) -> None:
        super().__init__(
            f"{path} would be written in a request of {size} bytes; ZooKeeper takes less than {most} (jute.maxbuffer); "
            "write less at once"
        )


class ForeignTopics(ZooKeeperError):
    """A node that joins a cluster has topics of its own, and the cluster has others."""


class MalformedZnode(ZooKeeperError, ValueError):
    """A znode holds something else than its place in the layout promises."""

    def __init__(self, path: str, data: bytes, expected: str) -> None:
        super().__init__(f"{path} holds {data[:200]!r}; expected {expected}; mend or delete it")
        self.path = path
