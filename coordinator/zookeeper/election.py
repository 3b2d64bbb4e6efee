"""One of many: whoever makes the ephemeral znode first is elected, the others wait for it to go.

Every election raises a counter beside it, in the same transaction, so that each reign has an epoch of its own and an
order that comes late from an earlier reign can be told apart (`Reign`).

A reign is a lease on the candidate's own clock: a session timeout, counted from when it *sent* the last request that
proved it. When the connection broke, or was noticed to have broken, does not matter.
"""

import asyncio
from collections.abc import Callable
from typing import NamedTuple

import structlog

from muster.coordinator.zookeeper.connect import Fired, Session, SessionState
from muster.coordinator.zookeeper.errors import BadVersion, NodeExists, ZooKeeperError
from muster.coordinator.zookeeper.paths import read_epoch

RETRY_S = 0.5
PROOFS_PER_SESSION = 4
"""How often one that is elected asks whether it still is: two questions may be lost, and the third is in time."""

log = structlog.get_logger("muster.zookeeper")


class Reign(NamedTuple):
    """What the elected one may say it is: its epoch, and the version of the counter that proves it.

    A transaction that checks the counter's znode for `version` fails once somebody else was elected.
    """

    epoch: int
    version: int


class Election:
    """A candidate for the place at `path`; `reign` is set while it is elected.

    `on_elected` and `on_resigned` are called on the loop, in turn. A candidate that could not prove for a session
    timeout that it is elected resigns: by then another may have been. It stands again by itself.
    """

    def __init__(
        self,
        session: Session,
        path: str,
        body: Callable[[], bytes],
        *,
        epoch_path: str,
        on_elected: Callable[[Reign], None] = lambda reign: None,
        on_resigned: Callable[[], None] = lambda: None,
    ) -> None:
        self._reign: Reign | None = None
        self._session = session
        self._path = path
        self._body = body
        self._epoch_path = epoch_path
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._look = asyncio.Event()
        self._lease_ends = 0.0
        self._doubt: asyncio.TimerHandle | None = None
        self._proofs: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    @property
    def reign(self) -> Reign | None:
        """None, too, to who looks after the lease ended and before the loop got to say so."""
        return self._reign if asyncio.get_running_loop().time() < self._lease_ends else None

    def start(self) -> None:
        """Stand for election from now on. Once."""
        self._session.on_state(self._session_changed)
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Stand no longer; one that is elected makes room at once."""
        if self._task is None:
            return
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self._task = None
        elected = self._reign is not None
        self._resign()
        if elected and self._session.state is SessionState.CONNECTED:
            try:
                await self._session.delete(self._path)
            except ZooKeeperError as error:
                log.warning("the elected place goes when the session ends", path=self._path, why=str(error))

    async def holder(self) -> bytes | None:
        """What the one who is elected has written there; None while nobody is."""
        found = await self._session.get(self._path)
        return None if found is None else found.data

    async def _run(self) -> None:
        while True:
            self._look.clear()
            await self._session.connected()
            try:
                await self._stand()
            except (NodeExists, BadVersion):
                continue  # another candidate was faster: see who
            except ZooKeeperError as error:
                log.debug("no election for now", path=self._path, why=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            await self._look.wait()

    async def _stand(self) -> None:
        """Look who is elected; if nobody is, take the place."""
        asked_s = asyncio.get_running_loop().time()
        found = await self._session.get(self._path, self._fired)
        if found is None:
            reign = await self._take()
            # From here on the place is watched, too: somebody might delete it by hand.
            await self._session.exists(self._path, self._fired)
            self._elected(reign, asked_s)
        elif found.owner != self._session.id:
            self._resign()
        elif self._reign is None:
            # Ours, though we were not told: the answer was lost on the way, or we had begun to doubt.
            reign = await self._counter()
            asked_s = asyncio.get_running_loop().time()
            await self._prove(reign)  # a server that lags shows what was: only the quorum knows what is
            self._elected(reign, asked_s)

    async def _take(self) -> Reign:
        """Raise the counter and take the place, both or neither. Raises NodeExists or BadVersion to a slower one."""
        last = await self._counter()
        if parent := self._path.rpartition("/")[0]:
            await self._session.ensure(parent)
        reign = Reign(last.epoch + 1, last.version + 1)
        await self._session.commit(
            lambda together: (
                together.create(self._path, self._body(), ephemeral=True),
                together.set_data(self._epoch_path, str(reign.epoch).encode(), last.version),
            )
        )
        return reign

    async def _counter(self) -> Reign:
        found = await self._session.get(self._epoch_path)
        if found is None:
            try:
                await self._session.create(self._epoch_path, b"0")
            except NodeExists:
                return await self._counter()
            return Reign(0, 0)
        return Reign(read_epoch(self._epoch_path, found.data), found.version)

    def _elected(self, reign: Reign, proved_s: float) -> None:
        self._reign = reign
        self._extend(proved_s)
        self._proofs = asyncio.get_running_loop().create_task(self._keep_proving(reign))
        self._on_elected(reign)

    def _resign(self) -> None:
        if self._doubt is not None:
            self._doubt.cancel()
        if self._proofs is not None:
            self._proofs.cancel()
        self._doubt = self._proofs = None
        if self._reign is not None:
            self._reign = None
            self._on_resigned()

    async def _keep_proving(self, reign: Reign) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._session_s / PROOFS_PER_SESSION)
            await self._session.connected()
            asked_s = loop.time()
            try:
                await self._prove(reign)
            except BadVersion:
                self._ended("another one was elected")
                return
            except ZooKeeperError as error:
                log.debug("whether this one is still elected is not known", path=self._path, why=str(error))
            else:
                self._extend(asked_s)

    async def _prove(self, reign: Reign) -> None:
        """Raises BadVersion once another was elected. A transaction takes a quorum; a read, any server answers."""
        await self._session.commit(lambda together: together.check(self._epoch_path, reign.version))

    def _extend(self, proved_s: float) -> None:
        """What was proved by a question sent at `proved_s` (monotonic) holds for a session from then."""
        self._lease_ends = proved_s + self._session_s
        if self._doubt is not None:
            self._doubt.cancel()
        self._doubt = asyncio.get_running_loop().call_at(
            self._lease_ends, self._ended, "ZooKeeper has not answered for a session"
        )

    def _ended(self, why: str) -> None:
        log.warning("elected no longer", path=self._path, why=why)
        self._resign()
        self._look.set()

    @property
    def _session_s(self) -> float:
        return self._session.session_timeout_ms / 1000

    def _fired(self, fired: Fired) -> None:
        self._look.set()

    def _session_changed(self, state: SessionState) -> None:
        if self._task is None:
            return
        match state:
            case SessionState.LOST:
                self._resign()
            case SessionState.CONNECTED:
                self._look.set()
            case SessionState.SUSPENDED:
                pass  # the lease runs on, and only a proof makes it longer
