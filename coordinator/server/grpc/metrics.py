"""What the edge counts, per method: plain numbers without I/O."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class MethodStats:
    """One method's calls. Long polls count their waiting time in `seconds` too."""

    in_flight: int = 0
    finished: int = 0
    seconds: float = 0.0
    refused: dict[str, int] = field(default_factory=dict)
    """gRPC status name -> calls that ended with it; answers that carry an `error_code` are not refused calls."""

    def refuse(self, status: str) -> None:
        self.refused[status] = self.refused.get(status, 0) + 1
