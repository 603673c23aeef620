"""A classification cache that also matches similar texts: the nearest one, if it is near enough.

It compares the text of a purchase and ignores the readings of supply risk and profit impact. A similar purchase gets
the stored classification, whatever its own readings. For this reason the cache must be configured explicitly.
"""

import functools
import importlib
import math
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from typing_extensions import override

from outlast import RetryLater

from .cache import Classifications, Sought
from .governance import ALIKE_FROM
from .kraljic import Classification

KEPT_AT_MOST = 1000
"""Maximum number of texts to compare with. The oldest is removed first."""


class Embedder(Protocol):
    """Converter of texts to vectors. Texts with the same meaning have the same direction."""

    def embed(self, text: str) -> Sequence[float]:
        """Return the vector of a text. Its length is not zero."""


class WordLlama(Embedder):
    """The model in the wheel of `wordllama`. It runs on the CPU without network access."""

    def __init__(self) -> None:
        try:
            package = importlib.import_module("wordllama")
        except ImportError as missing:
            raise RetryLater("the semantic cache needs: pip install 'outlast[semantic]'") from missing
        # Without cache_dir, wordllama 0.4 looks for its tokenizer in the user's cache and then on the network.
        bundled = Path(str(package.__file__)).parent
        self._model: Any = package.WordLlama.load(cache_dir=bundled, disable_download=True)

    @override
    def embed(self, text: str) -> Sequence[float]:
        vector: list[float] = self._model.embed(text)[0].tolist()
        return vector


@functools.cache
def bundled() -> WordLlama:
    """Return the model, loaded once per process. Raises RetryLater if it is not installed."""
    return WordLlama()


class _Known(NamedTuple):
    text: str
    thresholds: tuple[int, int]
    vector: tuple[float, ...]
    placed: Classification


class Semantic(Classifications):
    """A cache that looks up the exact key, then the nearest text with the same thresholds.

    Texts are compared with the purchases that this process has seen. A classification found by similarity is not
    stored again, so that errors do not accumulate from one purchase to the next.
    """

    def __init__(self, exact: Classifications, embedder: Embedder, alike_from: float = ALIKE_FROM) -> None:
        self._exact, self._embedder, self._alike_from = exact, embedder, alike_from
        self._known: dict[str, _Known] = {}
        self._lock = threading.Lock()

    @override
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

    @override
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
