"""How a receiver of the hostile world takes one request: does it act, and what does the caller hear of it?"""

from dataclasses import dataclass
from datetime import timedelta
from typing import Literal


@dataclass(frozen=True)
class Behaviour:
    """One way to take a request. Made by the functions below."""

    name: str
    acts: bool = True
    status: int = 200
    headers: tuple[tuple[str, str], ...] = ()
    ending: Literal["answer", "silence", "reset", "garbage"] = "answer"
    after_s: float = 0.0
    padding: int = 0  # bytes added to the answer


ok = Behaviour("ok")
"""Acts, and answers."""


def status(code: int, *, acts: bool = False, retry_after: timedelta | None = None) -> Behaviour:
    """Answers this status; `acts`: and has acted nevertheless."""
    headers = (("Retry-After", str(int(retry_after.total_seconds()))),) if retry_after is not None else ()
    return Behaviour(f"status({code})", acts, code, headers)


def times_out(*, acts: bool = True) -> Behaviour:
    """Acts, then says nothing until the caller goes away: the caller's own timeout ends it."""
    return Behaviour("times_out", acts, ending="silence")


def resets(*, acts: bool = True) -> Behaviour:
    """Acts, then cuts the connection."""
    return Behaviour("resets", acts, ending="reset")


def slow(seconds: float) -> Behaviour:
    """Acts, and answers after so many real seconds."""
    return Behaviour(f"slow({seconds})", after_s=seconds)


def too_many(retry_after: timedelta = timedelta(seconds=1)) -> Behaviour:
    """429 with Retry-After; nothing happened."""
    return status(429, retry_after=retry_after)


def huge(megabytes: int = 50) -> Behaviour:
    """Acts, and answers far more than anybody wants."""
    return Behaviour(f"huge({megabytes})", padding=megabytes * 1_000_000)


def garbage() -> Behaviour:
    """Acts, and answers 200 with bytes that are no JSON."""
    return Behaviour("garbage", ending="garbage")
