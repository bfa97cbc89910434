"""The frames of one connection: bytes in, frames out. Does no IO.

A frame is a size (4 bytes, big-endian) and that many bytes. A reader holds one of three things:

    nothing         it is fed with what was read into the shared buffer; whole frames are served where they lie there
    kept bytes      read, but served later: `keep` copied them out of the shared buffer
    a partial frame its bytes are read straight into its buffer: `room`, `received`, until it `is_whole`

The buffer of a partial frame grows with the received bytes, not with the size that the peer announced. Its header is
checked as soon as it has arrived: a request with countless tagged fields in it is refused before they arrive.
"""

from struct import Struct
from typing import NoReturn

from leadline.broker.connection_state import CloseConnection, InvalidFrameSize
from leadline.broker.frame_memory import FrameMemory
from leadline.wire.frames import is_head_known
from leadline.wire.primitives import TooManyTags

SIZE_BYTES = 4
FIRST_BYTES = 4096  # of the buffer of a frame of which little has arrived

_unpack_size = Struct(">i").unpack_from
_NOTHING = memoryview(b"")


class FrameReader:
    __slots__ = ("_data", "_filled", "_is_head_known", "_memory", "at", "end", "partial", "reserved", "target")

    def __init__(self, memory: FrameMemory) -> None:
        self._memory = memory
        self._data = _NOTHING  # the bytes that it was fed, or those that it keeps
        self.at = self.end = 0  # the part of it that was not taken yet
        self.partial: bytearray | None = None  # the buffer of a partial frame: its size and bytes
        self._filled = 0  # bytes that have arrived there
        self.target = SIZE_BYTES  # bytes that it has room for; only the size, until that has arrived
        self._is_head_known = False
        self.reserved = 0  # bytes of memory that the partial frame counts for

    # Whole frames

    def feed(self, data: memoryview) -> None:
        """Take bytes that were read while there was no partial frame."""
        self._data, self.at, self.end = data, 0, len(data)

    def first_frame(self, data: memoryview) -> memoryview | None:
        """The first frame of the bytes that were fed; None if it has not arrived whole."""
        self.feed(data)
        return self.next_frame()

    def next_frame(self) -> memoryview | None:
        """The next frame, without its size; None if it has not arrived whole."""
        at, end = self.at, self.end
        if end - at < SIZE_BYTES:
            return None
        (size,) = _unpack_size(self._data, at)
        if not 0 <= size <= self._memory.max_frame_bytes:
            self._refuse(size)
        after = at + SIZE_BYTES + size
        if after > end:
            return None
        self.at = after
        return self._data[at + SIZE_BYTES : after]

    def put_back(self, frame: memoryview) -> None:
        """The frame that was taken last is served later."""
        self.at -= SIZE_BYTES + len(frame)

    def keep(self) -> None:
        """Copy the rest out of the shared buffer, to serve it later."""
        self.feed(memoryview(bytearray(self._data[self.at : self.end])))

    # A partial frame

    def begin_partial(self) -> None:
        """The rest is the beginning of a frame."""
        front = self._data[self.at : self.end]
        self._data, self.at, self.end = _NOTHING, 0, 0
        size = _unpack_size(front)[0] + SIZE_BYTES if len(front) >= SIZE_BYTES else SIZE_BYTES
        room = min(size, self._memory.growth_bytes, max(FIRST_BYTES, 4 * len(front)))
        self.partial = self._memory.buffer(max(room, len(front)))
        self.partial[: len(front)] = front
        self._filled, self.target = 0, SIZE_BYTES
        self._is_head_known = not self._memory.has_requests
        self.received(len(front))

    @property
    def is_whole(self) -> bool:
        """Whether a frame that was partial has arrived whole."""
        return self.partial is not None and self._filled == self.target

    def room(self) -> memoryview:
        """Where the next bytes of the partial frame belong."""
        assert self.partial is not None
        return memoryview(self.partial)[self._filled : self.target]

    def received(self, count: int) -> None:
        """`count` bytes have arrived in `room`.

        A larger buffer is another one: a view of a request that lay in this one before may not be gone yet.
        """
        assert self.partial is not None
        self._memory.arrived(count)
        self._filled += count
        if self._filled < SIZE_BYTES:
            return
        (size,) = _unpack_size(self.partial)
        whole = size + SIZE_BYTES
        if not self.reserved:
            if not 0 <= size <= self._memory.max_frame_bytes:
                self._refuse(size)
            self.reserved = whole
            self._memory.reserve(whole)
        if not self._is_head_known:
            self._check_head(self.partial)
        if self._filled == len(self.partial) < whole:
            self.partial = self._grown(self.partial, whole)
        self.target = min(whole, len(self.partial))

    def _grown(self, partial: bytearray, whole: int) -> bytearray:
        """A larger buffer with the same bytes: four times as large as what has arrived, or twice, if that is much."""
        size = max(2 * len(partial), min(4 * len(partial), self._memory.growth_bytes))
        grown = self._memory.buffer(min(whole, size))
        grown[: len(partial)] = partial
        self._memory.keep_spare(partial)
        return grown

    def _check_head(self, partial: bytearray) -> None:
        try:
            with memoryview(partial)[SIZE_BYTES : self._filled] as front:
                self._is_head_known = is_head_known(front)
        except TooManyTags as error:
            raise CloseConnection(f"malformed request: {error}") from None

    def take_partial(self) -> tuple[bytearray, int]:
        """The buffer of a frame that is whole now, and where the frame ends in it. It begins after its size."""
        assert self.partial is not None
        assert self.is_whole
        buffer, self.partial = self.partial, None
        self.release()
        return buffer, self.target

    def release(self) -> None:
        """The partial frame no longer counts for memory."""
        count, self.reserved = self.reserved, 0
        self._memory.arrived(-self._filled)
        self._filled = 0
        self._memory.release(count)

    def close(self) -> None:
        """Nothing more is received or served."""
        self.release()
        self.partial, self._data, self.at, self.end = None, _NOTHING, 0, 0

    def use(self, memory: FrameMemory) -> None:
        """Frames count for another memory from now on. There must be no partial one."""
        assert self.partial is None
        self._memory = memory

    def _refuse(self, size: int) -> NoReturn:
        memory = self._memory
        raise InvalidFrameSize(f"a request of {size} bytes; {memory.limit_name}={memory.max_frame_bytes}")
