"""Texts that may not be what they look like: characters nobody sees, letters that look like others (S14)."""

import re
import unicodedata
from typing import Any, Final

from outlast.core.unseen import UNSEEN

_WORD: Final = re.compile(r"\w+")
_ALIKE: Final = ("LATIN", "CYRILLIC", "GREEK")  # scripts whose letters are easily taken for one another's
_LATIN: Final = re.compile("[A-Za-z]")
_WORD_MIN: Final = 3  # «а», «у» and «со» are words of their own
_SEEN: Final = frozenset("\n\t ")
# Cyrillic and Greek letters that look like Latin ones, each above its twin: a word of these alone mixes nothing.
_TWINS: Final = str.maketrans(
    "аеорсухіјѕԁһԛԝӏАВЕКМНОРСТУХІЈЅονρκιυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdhqwlABEKMHOPCTYXIJSovpkiuABEZHIKMNOPTYX",
)


def confusable_texts(value: Any, path: str = "") -> list[str]:
    """One sentence for each text in this JSON value that a reader may take for another."""
    if isinstance(value, dict):
        inside = [(f"{path}.{name}" if path else str(name), each) for name, each in value.items()]
        return [*confusable_texts([*value], path), *(w for name, each in inside for w in confusable_texts(each, name))]
    if isinstance(value, list):
        return [w for each in value for w in confusable_texts(each, path)]
    if not isinstance(value, str) or (value.isascii() and value.isprintable()):
        return []
    where = f"{path}: " if path else ""
    found = [f"{where}{_name(c)} cannot be seen" for c in dict.fromkeys(_invisible(value))]
    foreign = not _LATIN.search(value) and not _twin(value).isascii()  # a text of another script, all of it
    for word in dict.fromkeys(_WORD.findall(value)):
        if len(_scripts(word)) > 1:
            found.append(f"{where}«{word}» mixes {' and '.join(sorted(_scripts(word)))} letters")
        elif len(word) >= _WORD_MIN and not foreign and (twin := _twin(word)) != word:
            found.append(f"{where}«{word}» is not «{twin}»: its letters are others")
    return found


def _invisible(text: str) -> list[str]:
    odd = ("Cf", "Cc", "Co", "Cn", "Zs", "Zl", "Zp")
    return [m[0] for m in UNSEEN.finditer(text)] + [
        c for c in text if c not in _SEEN and unicodedata.category(c) in odd
    ]


def _twin(text: str) -> str:
    """The Latin text that it looks like; itself where it looks like none."""
    plain = "".join(_plain(char) for char in text).translate(_TWINS)
    return plain if plain.isascii() else text


def _plain(char: str) -> str:
    """Letters made wide, bold or round are those letters; a raised one (1º) is no disguise."""
    disguised = char.isalpha() and not unicodedata.decomposition(char).startswith("<super>")
    return unicodedata.normalize("NFKC", char) if disguised else char


def _name(char: str) -> str:
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()


def _scripts(word: str) -> set[str]:
    first = (unicodedata.name(char, "").split(" ")[0] for char in word if char.isalpha())
    return {name.title() for name in first if name in _ALIKE}
