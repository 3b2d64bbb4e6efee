"""What operators have going on in a group beside holds, for whoever describes it: balance, a canary, fences."""

from typing import Final

from muster.coordinator.core.model.fences_records import FenceStored
from muster.coordinator.core.model.replies import CanaryReply
from muster.coordinator.core.model.value import frozen_value


@frozen_value
class BalanceView:
    """`heaviest`: the member that carried most when the group was judged last, `ratio` times the mean (None: it has
    not been). `paid`: evaluations in a row in which moves would have paid, `rounds`: how many it takes. `resting`:
    partitions that moved too recently to move again. `idle`: why nothing is measured, judged or done, in a sentence.
    """

    mode: str
    idle: str
    heaviest: str
    ratio: float | None
    paid: int
    rounds: int
    resting: int


@frozen_value
class Controls:
    """None and nothing where a group has no such thing. `canary`: only while it runs. `fences`: how many there are, and
    `newest_fences` some of them, those first that were claimed last.
    """

    canary: CanaryReply | None = None
    balance: BalanceView | None = None
    fences: int = 0
    newest_fences: tuple[FenceStored, ...] = ()


NO_CONTROLS: Final = Controls()
