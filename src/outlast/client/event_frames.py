"""Server-sent events as bytes of a stream become frames.

Lines end with LF, CR LF or CR only: a text may contain U+2028 and U+0085, at which `str.splitlines` would split it.
What is no stream of Outlast raises BrokenStream, and the caller opens it again.
"""

import re
from collections.abc import AsyncGenerator, AsyncIterator
from typing import Final, NamedTuple

import httpx2

FRAME_BYTES_MAX: Final = 4 * 1024 * 1024
"""Bytes of one frame. Outlast's are shorter, because the data of an event has a limit."""
LINE_END: Final = re.compile(rb"\r\n|\n|\r")
MARK: Final = b"\xef\xbb\xbf"


class BrokenStream(httpx2.RemoteProtocolError):
    """Bytes that are no stream of Outlast: a page, a frame that was cut, an event of another run."""


class Frame(NamedTuple):
    """One event of a stream, '' for a missing id or type. `comment` is True for a comment, which has neither."""

    id: str
    type: str
    data: str
    comment: bool = False


async def lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the lines of a stream without their ends. A line that the stream cuts off is left out."""
    frame, after_cr = bytearray(), False
    async for chunk in chunks:
        if after_cr:
            chunk = chunk.removeprefix(b"\n")
        after_cr = chunk.endswith(b"\r")
        first, *others = LINE_END.split(chunk)
        frame += first
        if len(frame) > FRAME_BYTES_MAX:
            raise BrokenStream("a line of the stream has no end")
        for line in others:
            yield bytes(frame)
            frame = bytearray(line)


async def frames(chunks: AsyncIterator[bytes]) -> AsyncGenerator[Frame]:
    """Yield each frame of a stream. Raises BrokenStream."""
    number, type_, data, size, first = "", "", list[str](), 0, True
    async for line in lines(chunks):
        if first:
            line, first = line.removeprefix(MARK), False
        if not line:
            if data:
                yield Frame(number, type_, "\n".join(data))
            number, type_, data, size = "", "", [], 0
            continue
        size += len(line)
        if size > FRAME_BYTES_MAX:
            raise BrokenStream("a frame of the stream has no end")
        if line.startswith(b":"):
            yield Frame("", "", "", comment=True)
            continue
        try:
            name, _, value = line.decode().partition(":")
        except UnicodeDecodeError as error:
            raise BrokenStream("a frame of the stream is not UTF-8") from error
        value = value.removeprefix(" ")
        if name == "id":
            number = value
        elif name == "event":
            type_ = value
        elif name == "data":
            data.append(value)
