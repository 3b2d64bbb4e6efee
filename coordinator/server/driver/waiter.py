"""Who is answered by the driver."""

from typing import Protocol

from muster.coordinator.core.model.effects import Reply


class ReplyWaiter(Protocol):
    """Whoever waits for a reply: a future, or somebody who takes it in the same breath."""

    def done(self) -> bool:
        """Whether it waits no longer."""

    def set_result(self, reply: Reply, /) -> None: ...

    def set_exception(self, why: BaseException, /) -> None: ...
