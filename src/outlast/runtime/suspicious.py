"""Texts that may not be what they look like: characters nobody sees, and letters of two scripts in one word (S14)."""

import re
import unicodedata
from typing import Any, Final

_WORD: Final = re.compile(r"\w+")
_ALIKE: Final = ("LATIN", "CYRILLIC", "GREEK")  # scripts whose letters are easily taken for one another's
_SEEN: Final = frozenset("\n\t ")


def suspicious_texts(value: Any, path: str = "") -> list[str]:
    """One sentence for each text in this JSON value that a reader may take for another."""
    if isinstance(value, dict):
        inside = [(f"{path}.{name}" if path else str(name), each) for name, each in value.items()]
        return [*suspicious_texts([*value], path), *(w for name, each in inside for w in suspicious_texts(each, name))]
    if isinstance(value, list):
        return [w for each in value for w in suspicious_texts(each, path)]
    if not isinstance(value, str) or value.isascii():
        return []
    where = f"{path}: " if path else ""
    found = [f"{where}{_name(c)} cannot be seen" for c in dict.fromkeys(value) if _is_invisible(c)]
    mixed = [word for word in _WORD.findall(value) if len(_scripts(word)) > 1]
    return found + [f"{where}«{word}» mixes {' and '.join(sorted(_scripts(word)))} letters" for word in mixed]


def _is_invisible(char: str) -> bool:
    return char not in _SEEN and unicodedata.category(char) in ("Cf", "Cc", "Co", "Cn", "Zs", "Zl", "Zp")


def _name(char: str) -> str:
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()


def _scripts(word: str) -> set[str]:
    first = (unicodedata.name(char, "").split(" ")[0] for char in word if char.isalpha())
    return {name.title() for name in first if name in _ALIKE}
