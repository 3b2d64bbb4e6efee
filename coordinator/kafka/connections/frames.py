"""Cut a stream of bytes into frames: four bytes of length, then that many. Pure; keeps only what has arrived."""

from struct import Struct

from muster.coordinator.kafka.codec.codec import Frame, MalformedFrame

HEAD = Struct(">hhi")
"""How every request begins: API key, version, correlation id."""

LENGTH_BYTES = 4
SHORTEST = 8
"""API key, version and correlation id; the client id is left out by the oldest clients only."""


class FrameBuffer:
    """The frames of one connection. A frame that comes in pieces is copied once."""

    __slots__ = ("_need", "_part", "_unwanted", "limit", "looked", "shortest")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.shortest = SHORTEST
        """What holds for frames that have not begun to arrive."""
        self._part = bytearray()
        self._need = 0
        self._unwanted = 0
        self.looked = False
        """Whether somebody looked at the unfinished frame: for whoever looks."""

    @property
    def missing(self) -> int:
        """Bytes that will come before the unfinished frame is at its end, wanted or not."""
        return self._need - len(self._part) + self._unwanted if self._need else self._unwanted

    @property
    def unfinished(self) -> tuple[bytearray, int]:
        """What arrived of a frame that has not come whole, and how long it will be; 0 while that is not known."""
        return self._part, self._need

    def give_up(self) -> None:
        """Keep nothing of the unfinished frame, and pass over the rest of it."""
        self._unwanted, self._need, self._part = self._need - len(self._part), 0, bytearray()

    @property
    def held(self) -> int:
        """Bytes of an unfinished frame."""
        return len(self._part)

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes. Raises MalformedFrame for a length that no frame has."""
        found: list[Frame] = []
        position = 0
        if self._unwanted:
            position = min(self._unwanted, len(data))
            self._unwanted -= position
        elif self._part or self._need:
            position = self._finish(data, found)
        while len(data) - position >= LENGTH_BYTES:
            size = self._length(data[position : position + LENGTH_BYTES])
            begin, end = position + LENGTH_BYTES, position + LENGTH_BYTES + size
            if end > len(data):
                self._need, self._part, self.looked = size, bytearray(memoryview(data)[begin:]), False
                return found
            found.append(data[begin:end])
            position = end
        if position < len(data):
            self._part = bytearray(data[position:])
        return found

    def _finish(self, data: bytes, found: list[Frame]) -> int:
        """Go on with what began in earlier pieces; return how much of `data` that took."""
        position = 0
        if not self._need:
            position = min(LENGTH_BYTES - len(self._part), len(data))
            self._part += data[:position]
            if len(self._part) < LENGTH_BYTES:
                return position
            self._need, self._part, self.looked = self._length(self._part), bytearray(), False
        end = position + self._need - len(self._part)
        self._part += memoryview(data)[position:end]
        if len(self._part) == self._need:
            found.append(self._part)
            self._need, self._part = 0, bytearray()
        return min(end, len(data))

    def _length(self, raw: bytes | bytearray) -> int:
        size = int.from_bytes(raw, "big", signed=True)
        if not self.shortest <= size <= self.limit:
            raise MalformedFrame(f"a frame of {size} bytes; expected {self.shortest} to {self.limit}")
        return size
