"""Leader election: the candidate that creates the ephemeral znode is elected, the others wait for it to disappear.

Every election increments a counter in the same transaction, so each term (`ElectedTerm`) has an epoch of its own, and a
late order from an earlier term can be recognized.

A term is a lease on the candidate's own clock: two thirds of a session timeout, counted from the moment it *sent* the
last write that was answered. When the connection broke, or when that was noticed, does not matter. The last third
allows for clocks that run at different speeds: the next candidate is elected when ZooKeeper's clock ends the session.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import structlog

from muster.coordinator.edge.background_tasks import RestartedTask, SupervisedTasks
from muster.coordinator.zookeeper.errors import BadVersion, NodeExists, NoNode, ZooKeeperError
from muster.coordinator.zookeeper.layout import read_epoch
from muster.coordinator.zookeeper.session import SessionState, WatchEvent, ZooKeeperSession

RETRY_S = 0.5
PROOFS_PER_SESSION = 6
"""How often one that is elected asks whether it still is: two questions may be lost, and the third is in time."""
LEASE_FRACTION = 2 / 3
"""Of a session timeout: how long a proof holds, from its sending."""

log = structlog.get_logger("muster.zookeeper")


class ElectedTerm(NamedTuple):
    """What the elected one may say it is: its epoch, and the version of the counter that proves it.

    A transaction that checks the counter's znode for `version` fails once somebody else was elected.
    """

    epoch: int
    version: int


class ElectionCandidate:
    """A candidate for the place at `path`; `term` is set while it is elected.

    `on_elected` and `on_resigned` are called on the loop, in turn. A candidate that could not prove for two thirds of a
    session timeout that it is elected resigns: soon another may be. It stands again by itself. `on_seen` is told who
    has the place (what is written there), None when nobody has; never while this one does not know.

    resume: one that finds itself in the place after it had resigned goes on with its epoch. Without, each term has an
    epoch of its own, for whoever numbers what it does in it.
    """

    def __init__(
        self,
        session: ZooKeeperSession,
        path: str,
        body: Callable[[], bytes],
        *,
        epoch_path: str,
        on_elected: Callable[[ElectedTerm], None] = lambda term: None,
        on_resigned: Callable[[], None] = lambda: None,
        on_seen: Callable[[bytes | None], None] = lambda holder: None,
        resume: bool = True,
    ) -> None:
        self._term: ElectedTerm | None = None
        self._session = session
        self._path = path
        self._body = body
        self._epoch_path = epoch_path
        self._on_elected = on_elected
        self._on_resigned = on_resigned
        self._on_seen = on_seen
        self._resume = resume
        self._deposing: int | None = None
        self._look = asyncio.Event()
        self._lease_ends = 0.0
        self._doubt: asyncio.TimerHandle | None = None
        self._proofs: RestartedTask | None = None
        self._asked = SupervisedTasks(self._question_failed)
        self._standing: RestartedTask | None = None

    @property
    def term(self) -> ElectedTerm | None:
        """None, too, to who looks after the lease ended and before the loop got to say so."""
        return self._term if asyncio.get_running_loop().time() < self._lease_ends else None

    def start(self) -> None:
        """Stand for election from now on. Once."""
        self._session.on_state(self._session_changed)
        self._standing = RestartedTask(f"election at {self._path}", self._run)
        self._standing.start()

    async def stop(self) -> None:
        """Stand no longer; one that is elected makes room at once."""
        if self._standing is None:
            return
        await self._standing.stop()
        self._standing = None
        term = self._term
        self._resign()
        if term is not None and self._session.state is SessionState.CONNECTED:
            try:
                # What another has taken by `depose` is not this one's to give.
                await self._session.commit(
                    lambda together: (together.check(self._epoch_path, term.version), together.delete(self._path))
                )
            except (BadVersion, NoNode):
                pass
            except ZooKeeperError as error:
                log.warning("could not resign: the election ends with the session", path=self._path, why=str(error))

    def depose(self, epoch: int) -> None:
        """Stand in the place of the one that was elected with `epoch`, whose process is known to be gone: its session
        need not end first. If another epoch is reached by now, nobody is deposed."""
        self._deposing = epoch
        self._look.set()

    def resign(self, why: str) -> None:
        """End the term, and look anew who is elected. Nothing if there is none."""
        if self._term is not None:
            self._ended(why)

    def proved(self, sent_s: float) -> None:
        """A write that checks the term's version was answered; `sent_s`: when it was sent, by the loop's clock."""
        if self._term is not None and sent_s + self._belief_s > self._lease_ends:
            self._extend(sent_s)

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
            except (NodeExists, NoNode, BadVersion):
                continue  # another candidate was faster: see who
            except ZooKeeperError as error:
                log.debug("no election for now", path=self._path, why=str(error))
                await asyncio.sleep(RETRY_S)
                continue
            await self._look.wait()

    async def _stand(self) -> None:
        """Look who is elected; if nobody is, take the place."""
        deposing, self._deposing = self._deposing, None
        found = await self._session.get(self._path, self._fired)
        if found is None:
            self._resign()  # somebody deleted the place by hand: whoever is elected next begins a term of its own
            await self._take_place(None)
        elif found.owner != self._session.id:
            self._resign()
            self._on_seen(found.data)
            if deposing is not None:
                await self._take_place(deposing)
        elif self._term is None and not self._resume:
            await self._take_place((await self._counter()).epoch)
        elif self._term is None:
            # Ours, though we were not told: the answer was lost on the way, or we had begun to doubt.
            term = await self._counter()
            asked_s = asyncio.get_running_loop().time()
            await self._prove(term)  # a server that lags shows what was: only the quorum knows what is
            self._elected(term, asked_s)

    async def _take_place(self, instead_of: int | None) -> None:
        """Raise the counter and take the place, both or neither; with `instead_of`, from the one elected with that
        epoch, and not at all if it is another. Raises NodeExists, NoNode or BadVersion to a slower one."""
        last = await self._counter()
        if instead_of is None:
            self._on_seen(None)
            if parent := self._path.rpartition("/")[0]:
                await self._session.ensure(parent)
        elif last.epoch != instead_of:
            return
        term = ElectedTerm(last.epoch + 1, last.version + 1)

        def build(together: Any) -> None:
            together.set_data(self._epoch_path, str(term.epoch).encode(), last.version)
            if instead_of is not None:
                together.delete(self._path)
            together.create(self._path, self._body(), ephemeral=True)

        sent_s = asyncio.get_running_loop().time()
        await self._session.commit(build)
        # From here on the place is watched, too: somebody might delete it by hand.
        await self._session.exists(self._path, self._fired)
        self._elected(term, sent_s)

    async def _counter(self) -> ElectedTerm:
        found = await self._session.get(self._epoch_path)
        if found is None:
            try:
                await self._session.create(self._epoch_path, b"0")
            except NodeExists:
                return await self._counter()
            return ElectedTerm(0, 0)
        return ElectedTerm(read_epoch(self._epoch_path, found.data), found.version)

    def _elected(self, term: ElectedTerm, proved_s: float) -> None:
        self._term = term
        self._extend(proved_s)
        self._proofs = RestartedTask(f"proofs of being elected at {self._path}", partial(self._keep_proving, term))
        self._proofs.start()
        self._on_seen(self._body())
        self._on_elected(term)

    def _resign(self) -> None:
        if self._doubt is not None:
            self._doubt.cancel()
        if self._proofs is not None:
            self._proofs.cancel()
        self._asked.stop()
        self._doubt = self._proofs = None
        if self._term is not None:
            self._term = None
            self._on_resigned()

    async def _keep_proving(self, term: ElectedTerm) -> None:
        """One question after the other goes out, whether or not the last has been answered."""
        while True:
            await asyncio.sleep(self._session_s / PROOFS_PER_SESSION)
            await self._session.connected()
            self._asked.start(self._renew_proof(term))

    def _question_failed(self, error: BaseException) -> None:
        log.error("the election could not be checked", path=self._path, exc_info=error)

    async def _renew_proof(self, term: ElectedTerm) -> None:
        asked_s = asyncio.get_running_loop().time()
        try:
            await self._prove(term)
        except BadVersion:
            if self._term == term:
                self._ended("another one was elected")
        except ZooKeeperError as error:
            log.debug("the election cannot be checked now", path=self._path, why=str(error))
        else:
            if self._term == term:
                self.proved(asked_s)

    async def _prove(self, term: ElectedTerm) -> None:
        """Raises BadVersion once another was elected. A transaction takes a quorum; a read, any server answers."""
        await self._session.commit(lambda together: together.check(self._epoch_path, term.version))

    def _extend(self, proved_s: float) -> None:
        """What was proved by a question sent at `proved_s` (monotonic) holds for so long from then."""
        self._lease_ends = proved_s + self._belief_s
        if self._doubt is not None:
            self._doubt.cancel()
        self._doubt = asyncio.get_running_loop().call_at(
            self._lease_ends, self._ended, "ZooKeeper has not answered for two thirds of a session"
        )

    def _ended(self, why: str) -> None:
        log.warning("no longer elected", path=self._path, why=why)
        self._resign()
        self._look.set()

    @property
    def _session_s(self) -> float:
        return self._session.session_timeout_ms / 1000

    @property
    def _belief_s(self) -> float:
        return self._session_s * LEASE_FRACTION

    def _fired(self, fired: WatchEvent) -> None:
        self._look.set()

    def _session_changed(self, state: SessionState) -> None:
        if self._standing is None:
            return
        match state:
            case SessionState.LOST:
                self._resign()
            case SessionState.CONNECTED:
                self._look.set()
            case SessionState.SUSPENDED:
                pass  # the lease runs on, and only a proof makes it longer
