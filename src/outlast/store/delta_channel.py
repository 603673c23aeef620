"""Channels for deltas: between the event loops of a process, and between the processes of one SQLite file.

A listening process of a SQLite file has a datagram socket in a folder beside the file. A sender finds the sockets by
listing the folder. Nothing waits: a datagram that does not fit is lost.
"""

import asyncio
import contextlib
import os
import socket
import stat
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Final

from outlast.core.limits import KIB
from outlast.core.state.delta_packets import Delta, packets, read_packet
from outlast.store.threads import Subscribers

DeltaCallback = Callable[[Sequence[Delta]], None]
FOLDER: Final = "-streams"
"""Appended to the name of the file."""
DATAGRAM_BYTES: Final = 32 * KIB
PER_TURN: Final = 64  # datagrams read in one turn of the event loop
PATH_BYTES_MAX: Final = 100  # of the name of a socket


class FileDeltas:
    """Deltas between the processes that have one file open."""

    def __init__(self, path: str, writer: str) -> None:
        """`path`: of the store's file. `writer`: unique for this opened store."""
        self._folder = Path(f"{path}{FOLDER}")
        self._writer = writer
        self._local = Subscribers[Sequence[Delta]]()
        self._mine: set[str] = set()  # sockets of this opened store
        self._numbers = count(1)
        self._sender: socket.socket | None = None
        self._closed = False

    def subscribe(self, callback: DeltaCallback) -> Callable[[], None]:
        """Call `callback` in the current event loop from now on. Return the function that unsubscribes."""
        ends = [self._local.subscribe(callback)]
        with contextlib.suppress(OSError, AttributeError):  # without sockets, deltas of this process are heard only
            ends.append(self._listen(callback))

        def end() -> None:
            for each in ends:
                each()
            ends.clear()

        return end

    def publish(self, deltas: Sequence[Delta]) -> None:
        """Send deltas to the subscribers of this process and to those of others."""
        self._local.report([(deltas,)])
        try:
            names = [name for name in os.listdir(self._folder) if name not in self._mine]
            if names and not self._closed and _is_private(self._folder):
                self._send(names, packets(deltas, DATAGRAM_BYTES, sender=self._writer))
        except (OSError, AttributeError):  # no process listens, or this platform has no such sockets
            pass

    def close(self) -> None:
        """Release the socket that sends; later deltas stay in this process."""
        self._closed = True
        if self._sender is not None:
            self._sender.close()
            self._sender = None

    def _send(self, names: Sequence[str], texts: Sequence[str]) -> None:
        if self._sender is None:
            self._sender = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
            self._sender.setblocking(False)
        with _address(self._folder) as folder:
            for name in names:
                try:
                    for text in texts:
                        self._sender.sendto(text.encode(), f"{folder}/{name}")
                except ConnectionRefusedError:  # its process was killed
                    (self._folder / name).unlink(missing_ok=True)
                except OSError:  # it is behind
                    pass

    def _listen(self, callback: DeltaCallback) -> Callable[[], None]:
        """Open a socket and read it in the current event loop. Return the function that removes it."""
        loop, name = asyncio.get_running_loop(), f"{self._writer}.{next(self._numbers)}"
        self._folder.mkdir(mode=0o700, exist_ok=True)
        if not _is_private(self._folder):
            raise PermissionError(f"{self._folder} belongs to others")
        receiver = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        try:
            receiver.setblocking(False)
            self._mine.add(name)
            with _address(self._folder) as folder:
                receiver.bind(f"{folder}/{name}")
            loop.add_reader(receiver, _receive, receiver, callback)
        except BaseException:  # the socket is closed, and the error raised again
            receiver.close()
            raise

        def end() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.remove_reader(receiver)
            receiver.close()
            (self._folder / name).unlink(missing_ok=True)
            self._mine.discard(name)
            with contextlib.suppress(OSError):  # others listen
                self._folder.rmdir()

        return end


def _receive(receiver: socket.socket, callback: DeltaCallback) -> None:
    for _ in range(PER_TURN):
        try:
            data = receiver.recv(2 * DATAGRAM_BYTES)
        except OSError:  # nothing is left
            return
        if (packet := read_packet(data)) is not None:
            callback(packet.deltas)


def _is_private(folder: Path) -> bool:
    """Return True if no other user can create sockets in the folder, and so read the deltas."""
    found = folder.lstat()
    return stat.S_ISDIR(found.st_mode) and found.st_uid == os.geteuid() and not found.st_mode & 0o077


@contextlib.contextmanager
def _address(folder: Path) -> Iterator[str]:
    """Give a name of the folder that is short enough for the address of a socket."""
    if len(os.fsencode(folder)) <= PATH_BYTES_MAX - 50:
        yield str(folder)
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{opened}"
    finally:
        os.close(opened)
