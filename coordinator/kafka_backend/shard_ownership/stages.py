"""Where a shard that was dealt to this node stands, in order.

READ      the log as it is, up to its end: who owned it last is told nowhere else, and the turn follows his
INIT      InitProducerId: the next epoch of the shard's producer
OWN       the owner record, sequence 0: from here on the owner before is fenced (KB-F4)
CATCH     what came in until then; the owner record has to be the newest
WAIT      KB-F6, only where the one before is not fenced: for a session, then
BEHIND    what came in since
TRUTH     KB-S7, only where something void is the newest of its key: what counts for these, by a second pass
REPAIR    that is written again, and owner records of turns before go
FINISH    the engine loads
SERVE     until it is taken away, or LEAVE: no new requests, until all is acknowledged (KB-F8)
LOST      its log, or the whole topic, has lost something: looked at again until an operator has said what counts
"""

from enum import Enum


class Stage(Enum):
    READ = "reads its log"
    INIT = "asks for its producer"
    OWN = "writes its owner record"
    CATCH = "reads up to its owner record"
    WAIT = "waits until nobody else can write"
    BEHIND = "reads what was written behind its owner record"
    TRUTH = "looks for what void records hide"
    REPAIR = "writes that again"
    FINISH = "loads"
    SERVE = "serves"
    LEAVE = "lets go"
    LOST = "waits for an operator"


SERVING = (Stage.SERVE, Stage.LEAVE)
"""A tuple: to find a stage in a set takes a call of the interpreter, and it is looked for with each commit."""
READING = frozenset({Stage.READ, Stage.CATCH, Stage.WAIT, Stage.BEHIND, Stage.TRUTH, Stage.LOST})
"""What goes on without a lease."""
