"""Which answers a member still waits for."""

from muster.client.members.types import RequestKind


class OutstandingRequests:
    """At most one of each kind is under way. Tokens are never used twice, so a late answer is known as such."""

    def __init__(self) -> None:
        self._last = 0
        self._waiting: dict[RequestKind, int] = {}

    def __contains__(self, kind: RequestKind) -> bool:
        return kind in self._waiting

    def ask(self, kind: RequestKind) -> int:
        """A fresh token; an answer to an earlier request of this kind is stale from here on."""
        self._last += 1
        self._waiting[kind] = self._last
        return self._last

    def answered(self, token: int) -> RequestKind | None:
        """What the token was for; None when nobody waits for it any more."""
        kind = next((kind for kind, waiting in self._waiting.items() if waiting == token), None)
        if kind is not None:
            del self._waiting[kind]
        return kind

    def drop(self, kind: RequestKind) -> int | None:
        return self._waiting.pop(kind, None)

    def token(self, kind: RequestKind) -> int | None:
        return self._waiting.get(kind)
