"""A cache that answers for purchases that read alike: the nearest text, if it is near enough.

It looks at what is bought, in words, and not at the readings of supply risk and profit impact: a purchase that it finds
alike is placed where the other one was, whatever its own readings say. That is why it is chosen, never the default.
"""

import functools
import importlib
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from outlast import RetryLater

from .cache import Classifications, Sought
from .governance import ALIKE_FROM
from .kraljic import Classification

KEPT_AT_MOST = 1000
"""Texts to compare with; the oldest goes first."""


class Embedder(Protocol):
    """Turns a text into a vector; texts that mean the same lie in one direction."""

    def embed(self, text: str) -> Sequence[float]:
        """The vector of this text, of any length but nought."""


class WordLlama:
    """The small model that PyPI's `wordllama` carries in its wheel: on the CPU, and without a network."""

    def __init__(self) -> None:
        try:
            package = importlib.import_module("wordllama")
        except ImportError as missing:
            raise RetryLater("the semantic cache needs: pip install 'outlast[semantic]'") from missing
        # Left to itself, 0.4 looks for its own tokenizer in the user's cache only, and then on the network.
        bundled = Path(str(package.__file__)).parent
        self._model: Any = package.WordLlama.load(cache_dir=bundled, disable_download=True)

    def embed(self, text: str) -> Sequence[float]:
        vector: list[float] = self._model.embed(text)[0].tolist()
        return vector


@functools.cache
def bundled() -> WordLlama:
    """The model, loaded once in a process. Raises RetryLater if it is not installed."""
    return WordLlama()


class _Known(NamedTuple):
    text: str
    thresholds: tuple[int, int]
    vector: tuple[float, ...]
    placed: Classification


class Semantic:
    """A cache that looks for an equal key first, then for the most similar purchase under the same thresholds.

    A classification taken from a similar purchase is not stored, so that similarity never drifts.
    """

    def __init__(self, exact: Classifications, embedder: Embedder, alike_from: float = ALIKE_FROM) -> None:
        self._exact, self._embedder, self._alike_from = exact, embedder, alike_from
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    def get(self, sought: Sought) -> Classification | None:
        if (found := self._exact.get(sought)) is not None:
            self._learn(sought, found)
            return found
        vector = _unit(self._embedder.embed(sought.text))
        with self._lock:
            known = [one for one in self._known.values() if one.thresholds == sought.thresholds]
        near = max(known, key=lambda one: _cosine(vector, one.vector), default=None)
        if near is None or _cosine(vector, near.vector) < self._alike_from:
            return None
        return near.placed.model_copy(deep=True, update={"like": near.text})

    def put(self, sought: Sought, placed: Classification) -> None:
        self._exact.put(sought, placed)
        self._learn(sought, placed)

    def _learn(self, sought: Sought, placed: Classification) -> None:
        vector = _unit(self._embedder.embed(sought.text))
        with self._lock:
            self._known.pop(sought.key, None)
            self._known[sought.key] = _Known(sought.text, sought.thresholds, vector, placed.model_copy(deep=True))
            while len(self._known) > KEPT_AT_MOST:
                del self._known[next(iter(self._known))]


def _unit(vector: Sequence[float]) -> tuple[float, ...]:
    length = math.hypot(*vector)
    return tuple(x / length for x in vector) if length else tuple(vector)


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))
