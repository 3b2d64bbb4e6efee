"""How nodes that speak in the clear show each other that they belong to one cluster (CL-N4).

They share a secret of 256 random bits, which each reads from ZooKeeper. Caller and listener draw a nonce each, and each
sends an HMAC-SHA-256 over both, the cluster, the caller's id and which end it is (mutual authentication in three
passes, ISO/IEC 9798-4). The secret never crosses the wire, and a proof is worth nothing on another connection or in
the other direction. What is said afterwards is not protected: that takes TLS, by which nodes show certificates
instead.

A node that is registered says whether it can do that. While one cannot (it is of an earlier version), the listener
answers who proves nothing, too.
"""

import hmac
import os
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

import structlog

from muster.coordinator.edge.overload import LogThrottle
from muster.coordinator.errors import ErrorCode
from muster.coordinator.replication.protocol.cluster_metadata import ClusterImage, ClusterNodeStatus

log = structlog.get_logger("muster.replication")

TELL_EVERY_S: Final = 10.0
"""Of links to one node that were not believed, one in so many seconds is told."""

NONCE_BYTES: Final = 32
LISTENER: Final = b"listener"
CALLER: Final = b"caller"
"""The two ends of a connection."""

FOREIGN_SECRET: Final = (
    "it has another secret than the one that this node read from ZooKeeper when it started, or none; start those nodes "
    "again that started before the secret there was made anew"
)


class ProofExchange(NamedTuple):
    """What both ends of one connection know when they prove themselves."""

    cluster_id: str
    node: int
    """The caller's."""
    nonces: bytes
    """The caller's, then the listener's."""

    def proof(self, secret: bytes, end: bytes) -> bytes:
        """Of one end (`LISTENER` or `CALLER`)."""
        said = b"\0".join((b"muster", end, self.cluster_id.encode(), str(self.node).encode(), self.nonces))
        return hmac.digest(secret, said, "sha256")

    def is_proof(self, secret: bytes, end: bytes, given: bytes) -> bool:
        return hmac.compare_digest(self.proof(secret, end), given)


class Doubt(NamedTuple):
    """A registered node with which no connection could be made, for want of a proof: the last time, and how often."""

    host: str
    why: str
    times: int
    at_s: float


class NodeProofs:
    """What one node proves itself by, and whom it believes. image: of its cluster; now_s: a monotonic clock."""

    def __init__(
        self,
        cluster_id: str,
        secret: bytes,
        image: Callable[[], ClusterImage],
        now_s: Callable[[], float],
        draw: Callable[[int], bytes] = os.urandom,
    ) -> None:
        self.cluster_id = cluster_id
        self.secret = secret
        self._image = image
        self._now_s = now_s
        self._draw = draw
        self.refused = 0
        """Connections that were not answered, or not gone on with, for want of a proof."""
        self._doubts: dict[int, Doubt] = {}
        self._told = LogThrottle(TELL_EVERY_S)

    def nonce(self) -> bytes:
        return self._draw(NONCE_BYTES)

    def unable(self) -> tuple[int, ...]:
        """Registered nodes that cannot prove themselves."""
        return tuple(sorted(node.id for node in self._image().live() if not node.proves))

    @property
    def required(self) -> bool:
        """Whether the listener answers nobody without a proof; so it is, too, before it is known who is registered."""
        return not self.unable()

    def expects(self, node: int | None) -> bool:
        """Whether a node that is called has to prove itself."""
        view = None if node is None else self._image().nodes.get(node)
        return view is not None and view.status is not ClusterNodeStatus.GONE and view.proves

    def doubt(self, node: int | None, host: str, why: str) -> None:
        """No proof came from there, or not the right one."""
        self.refused += 1
        if node is not None and node in self._image().nodes:
            before = self._doubts.get(node)
            self._doubts[node] = Doubt(host, why, 1 if before is None else before.times + 1, self._now_s())

    def doubt_called(self, node: int | None, host: str, why: str) -> None:
        """As `doubt`, of a node that was called: its own log, too, says so."""
        self.doubt(node, host, why)
        untold = self._told.count_suppressed(host, self._now_s())
        if untold is not None:
            log.warning("a node is not believed, or does not believe this one", node=node, why=why, untold=untold)

    def doubts(self, within_s: float) -> dict[int, Doubt]:
        """Of registered nodes, as far as they are not older."""
        live = {node.id for node in self._image().live()}
        since_s = self._now_s() - within_s
        self._doubts = {node: doubt for node, doubt in self._doubts.items() if node in live and doubt.at_s >= since_s}
        return dict(self._doubts)


class ProofAnswer(NamedTuple):
    """The listener's to one request. why: what its log says of a caller that is not let in; "": it goes on."""

    error: ErrorCode = ErrorCode.NONE
    nonce: bytes = b""
    proof: bytes = b""
    why: str = ""


class ListenerProof:
    """Of one connection, at the listener: the first request brings the caller's nonce, the second its proof."""

    def __init__(self, proofs: NodeProofs, host: str, proven: Callable[[], None]) -> None:
        self._proofs = proofs
        self._host = host
        self._proven = proven
        self._exchange: ProofExchange | None = None

    def answer(self, node: int, nonce: bytes, proof: bytes) -> ProofAnswer:
        proofs, exchange = self._proofs, self._exchange
        if exchange is None:
            if len(nonce) != NONCE_BYTES:
                return self._refusal(node, f"its nonce has {len(nonce)} bytes; expected {NONCE_BYTES}")
            own = proofs.nonce()
            exchange = self._exchange = ProofExchange(proofs.cluster_id, node, nonce + own)
            return ProofAnswer(nonce=own, proof=exchange.proof(proofs.secret, LISTENER))
        self._exchange = None
        if exchange.node != node or not exchange.is_proof(proofs.secret, CALLER, proof):
            return self._refusal(node, FOREIGN_SECRET)
        self._proven()
        return ProofAnswer()

    def _refusal(self, node: int, why: str) -> ProofAnswer:
        self._proofs.doubt(node, self._host, why)
        return ProofAnswer(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            why=f"it calls itself node {node}, and does not prove that it is a node of this cluster: {why}",
        )


def describe_unable(nodes: Collection[int]) -> str:
    """
    >>> describe_unable([2, 3])[:72]
    'nodes 2, 3 cannot prove that they belong to this cluster (of an earlier '
    """
    named = f"node {next(iter(nodes))}" if len(nodes) == 1 else f"nodes {', '.join(map(str, nodes))}"
    whose = "it belongs" if len(nodes) == 1 else "they belong"
    return (
        f"{named} cannot prove that {whose} to this cluster (of an earlier version): until all can, whoever knows the "
        "cluster's id is answered at inter.broker.listeners"
    )
