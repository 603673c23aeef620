"""Lock-out of addresses that send invalid credentials (S12), shared by all processes of one service."""

import fcntl
import ipaddress
import mmap
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from struct import Struct
from time import sleep
from typing import Final

from outlast.clocks import new_credential
from outlast.core.clock_port import Clock

MOST: Final = 20
WITHIN_MS: Final = 60_000
LOCK_MS: Final = 60_000
LOCK_MAX_MS: Final = 900_000
LOCKS_MAX: Final = 4
"""Number of locks counted, because LOCK_MS doubled this often exceeds LOCK_MAX_MS."""
GOOD_MS: Final = 600_000
"""Time for which a token of ours that was valid is still accepted from an address that is locked out."""
GOOD_EVERY_MS: Final = 1_000
"""Minimum time between two writes of that, so that most requests only read."""
SUBNET: Final = 64  # bits: the holder of one IPv6 address usually has all addresses of its /64

BUCKETS: Final = 4_096
WAYS: Final = 8
SECRET_BYTES: Final = 32
NAME_BYTES: Final = 16
SLOT: Final = Struct(f"<{NAME_BYTES}s4q")
BUCKET_BYTES: Final = WAYS * SLOT.size
ADDRESSES: Final = 0
TOKENS: Final = 1
TABLES: Final = 2
WRITE_TRIES: Final = 100
WRITE_PAUSE_S: Final = 0.000_1
"""Pause between tries for the write lock. After WRITE_TRIES a process writes without it, because the one that
holds it may be frozen."""
Numbers = tuple[int, int, int, int]


class SlotTables:
    """Tables of fixed size in memory that processes may share: four numbers for each name.

    The first number is the time of the write. In a full bucket the slot written longest ago is replaced.
    """

    def __init__(self, fd: int | None = None, *, buckets: int = BUCKETS) -> None:
        """`fd`: a descriptor of `shared_file`, inherited. Without it the memory belongs to this process alone."""
        self._fd = fd
        self._buckets = buckets
        self._memory = mmap.mmap(-1 if fd is None else fd, _size(buckets))
        if fd is None:
            self._memory[:SECRET_BYTES] = _secret()
        self._secret = self._memory[:SECRET_BYTES]

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Keep other processes from writing, so that no count is lost between a read and a write."""
        locked = self._fd is not None and _lock(self._fd)
        try:
            yield
        finally:
            if locked and self._fd is not None:
                fcntl.lockf(self._fd, fcntl.LOCK_UN)

    def name_of(self, text: str) -> bytes:
        """Return a keyed hash of caller-controlled text, so that callers cannot aim at a bucket."""
        return blake2b(text.encode(), digest_size=NAME_BYTES, key=self._secret).digest()

    def get(self, table: int, name: bytes) -> Numbers | None:
        """Return the numbers under a name of NAME_BYTES, or None if the table does not have it."""
        start = self._bucket(table, name)
        at = self._memory.find(name, start, start + BUCKET_BYTES)
        return None if at < 0 else SLOT.unpack_from(self._memory, at)[1:]

    def put(self, table: int, name: bytes, numbers: Numbers) -> None:
        """Write the numbers under a name."""
        start = self._bucket(table, name)
        at = self._memory.find(name, start, start + BUCKET_BYTES)
        if at < 0:
            slots = range(start, start + BUCKET_BYTES, SLOT.size)
            at = min(slots, key=lambda slot: int(SLOT.unpack_from(self._memory, slot)[1]))
        SLOT.pack_into(self._memory, at, name, *numbers)

    def _bucket(self, table: int, name: bytes) -> int:
        bucket = table * self._buckets + int.from_bytes(name[:4], "little") % self._buckets
        return SECRET_BYTES + bucket * BUCKET_BYTES


def shared_file() -> int:
    """Return the descriptor of an unnamed file for the `SlotTables` of processes that inherit it."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("outlast-failures")
    else:
        with tempfile.TemporaryFile() as file:
            fd = os.dup(file.fileno())
    os.truncate(fd, _size(BUCKETS))
    os.pwrite(fd, _secret(), 0)
    return fd


def _size(buckets: int) -> int:
    return SECRET_BYTES + TABLES * buckets * BUCKET_BYTES


def _secret() -> bytes:
    return new_credential().encode()[:SECRET_BYTES]


def _lock(fd: int) -> bool:
    """Return True once this process may write, False if another one has kept it waiting for WRITE_TRIES pauses."""
    for _ in range(WRITE_TRIES):
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            sleep(WRITE_PAUSE_S)
        else:
            return True
    return False


class FailedCredentials:
    """Failed credentials by address, and the tokens of ours that were good lately."""

    def __init__(self, clock: Clock, tables: SlotTables | None = None) -> None:
        self._clock = clock
        self._tables = tables or SlotTables()

    def locked_ms(self, client: str) -> int:
        """Return for how long this address is locked out, 0 if it is not."""
        record = self._tables.get(ADDRESSES, self._tables.name_of(address_group(client)))
        return min(max(record[3] - self._clock.boot(), 0), LOCK_MAX_MS) if record else 0

    def note(self, client: str) -> None:
        """Count a guess. The address is locked out at MOST within WITHIN_MS, longer each time."""
        now, address = self._clock.boot(), self._tables.name_of(address_group(client))
        with self._tables.writing():
            _, since, counted, until = self._tables.get(ADDRESSES, address) or (0, now, 0, 0)
            locks, count = divmod(counted, MOST)
            if now - since >= WITHIN_MS:
                locks = 0 if now - since >= LOCK_MAX_MS else locks
                since, count = now, 0
            count += 1
            if count == MOST:
                until = now + min(LOCK_MS << locks, LOCK_MAX_MS)
                locks, since, count = min(locks + 1, LOCKS_MAX), until, 0
            self._tables.put(ADDRESSES, address, (now, since, locks * MOST + count, until))

    def good_ago(self, digest: bytes) -> int:
        """Return how long ago the token with this digest was good, GOOD_MS if that is not remembered."""
        record = self._tables.get(TOKENS, digest[:NAME_BYTES])
        return min(max(self._clock.boot() - record[0], 0), GOOD_MS) if record else GOOD_MS

    def good(self, digest: bytes) -> None:
        """Remember that the token with this digest is good."""
        with self._tables.writing():
            self._tables.put(TOKENS, digest[:NAME_BYTES], (self._clock.boot(), 0, 0, 0))


def address_group(client: str) -> str:
    """Return the group of addresses that counts as one: of version 6 a /64."""
    try:
        address = ipaddress.ip_address(client)
    except ValueError:
        return client
    if isinstance(address, ipaddress.IPv6Address):
        if address.ipv4_mapped:
            return str(address.ipv4_mapped)
        return str(ipaddress.ip_network((address, SUBNET), strict=False))
    return client
