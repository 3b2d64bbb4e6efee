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

    __slots__ = ("limit", "looked", "need", "part", "shortest", "unwanted")

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.shortest = SHORTEST
        """What holds for frames that have not begun to arrive."""
        self.part = bytearray()
        """What has come of an unfinished frame."""
        self.need = 0
        """How long that will be; 0 while it is not known, or there is none."""
        self.unwanted = 0
        """Bytes to come that nobody wants."""
        self.looked = False
        """Whether somebody looked at the unfinished frame: for whoever looks."""

    @property
    def missing(self) -> int:
        """Bytes that will come before the unfinished frame is at its end, wanted or not."""
        return self.need - len(self.part) + self.unwanted if self.need else self.unwanted

    @property
    def unfinished(self) -> tuple[bytearray, int]:
        """What arrived of a frame that has not come whole, and how long it will be; 0 while that is not known."""
        return self.part, self.need

    def give_up(self) -> None:
        """Keep nothing of the unfinished frame, and pass over the rest of it."""
        self.unwanted, self.need, self.part = self.need - len(self.part), 0, bytearray()

    def feed(self, data: bytes) -> list[Frame]:
        """Return the frames that `data` completes. Raises MalformedFrame for a length that no frame has."""
        found: list[Frame] = []
        position = 0
        if self.unwanted:
            position = min(self.unwanted, len(data))
            self.unwanted -= position
        elif self.part or self.need:
            position = self._finish(data, found)
        while len(data) - position >= LENGTH_BYTES:
            size = int.from_bytes(data[position : position + LENGTH_BYTES], "big", signed=True)
            if not self.shortest <= size <= self.limit:
                raise self._no_frame(size)
            begin, end = position + LENGTH_BYTES, position + LENGTH_BYTES + size
            if end > len(data):
                self.need, self.part, self.looked = size, bytearray(memoryview(data)[begin:]), False
                return found
            found.append(data[begin:end])
            position = end
        if position < len(data):
            self.part = bytearray(data[position:])
        return found

    def _finish(self, data: bytes, found: list[Frame]) -> int:
        """Go on with what began in earlier pieces; return how much of `data` that took."""
        position = 0
        if not self.need:
            position = min(LENGTH_BYTES - len(self.part), len(data))
            self.part += data[:position]
            if len(self.part) < LENGTH_BYTES:
                return position
            size = int.from_bytes(self.part, "big", signed=True)
            if not self.shortest <= size <= self.limit:
                raise self._no_frame(size)
            self.need, self.part, self.looked = size, bytearray(), False
        end = position + self.need - len(self.part)
        self.part += memoryview(data)[position:end]
        if len(self.part) == self.need:
            found.append(self.part)
            self.need, self.part = 0, bytearray()
        return min(end, len(data))

    def _no_frame(self, size: int) -> MalformedFrame:
        return MalformedFrame(f"a frame of {size} bytes; expected {self.shortest} to {self.limit}")
