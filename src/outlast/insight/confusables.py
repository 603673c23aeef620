"""Detection of text that can be mistaken for other text: invisible characters and look-alike letters (S14)."""

import re
import unicodedata
from typing import Any, Final

from outlast.core.visible import INVISIBLE

_WORD: Final = re.compile(r"\w+")
_ALIKE: Final = ("LATIN", "CYRILLIC", "GREEK")  # scripts with look-alike letters
_LATIN: Final = re.compile("[A-Za-z]")
_WORD_MIN: Final = 3  # «а», «у» and «со» are Russian words
_SEEN: Final = frozenset("\n\t ")
# Homoglyphs, each above its Latin twin. A word written only in these letters is not flagged as mixed-script.
_TWINS: Final = str.maketrans(
    "аеорсухіјѕԁһԛԝӏАВЕКМНОРСТУХІЈЅονρκιυΑΒΕΖΗΙΚΜΝΟΡΤΥΧ",
    "aeopcyxijsdhqwlABEKMHOPCTYXIJSovpkiuABEZHIKMNOPTYX",
)


def confusable_texts(value: Any, path: str = "") -> list[str]:
    """Return one warning for each text in a JSON value that a reader may mistake for another."""
    if isinstance(value, dict):
        inside = [(f"{path}.{name}" if path else str(name), each) for name, each in value.items()]
        return [*confusable_texts([*value], path), *(w for name, each in inside for w in confusable_texts(each, name))]
    if isinstance(value, list):
        return [w for each in value for w in confusable_texts(each, path)]
    if not isinstance(value, str) or (value.isascii() and value.isprintable()):
        return []
    where = f"{path}: " if path else ""
    found = [f"{where}{_name(c)} is invisible" for c in dict.fromkeys(_invisible(value))]
    foreign = not _LATIN.search(value) and not _twin(value).isascii()  # the whole text is of another script
    for word in dict.fromkeys(_WORD.findall(value)):
        if len(_scripts(word)) > 1:
            found.append(f"{where}«{word}» mixes {' and '.join(sorted(_scripts(word)))} letters")
        elif len(word) >= _WORD_MIN and not foreign and (twin := _twin(word)) != word:
            found.append(f"{where}«{word}» is not «{twin}»: its letters are from another script")
    return found


def marked(text: str) -> list[tuple[str, str]]:
    """Return a text in pieces, each with a warning or ''. Joined, the pieces are the text.

    Marked are invisible characters, words of mixed or look-alike letters, and white space at the ends.
    """
    odd = {c: f"{_name(c)} is invisible" for c in _invisible(text)}
    foreign = not _LATIN.search(text) and not _twin(text).isascii()
    for word in dict.fromkeys(_WORD.findall(text)):
        if len(_scripts(word)) > 1:
            odd[word] = f"mixes {' and '.join(sorted(_scripts(word)))} letters"
        elif len(word) >= _WORD_MIN and not foreign and (twin := _twin(word)) != word:
            odd[word] = f"is not «{twin}»: its letters are from another script"
    body = text.strip()
    start = text.index(body) if body else len(text)
    ends = (text[:start], text[start + len(body) :])
    pieces = re.split(f"({'|'.join(map(re.escape, sorted(odd, key=len, reverse=True)))})", body) if odd else [body]
    found = [(piece, odd.get(piece, "")) for piece in pieces if piece]
    before, after = (
        [(end, f"{len(end)} character{'' if len(end) == 1 else 's'} of white space")] if end else [] for end in ends
    )
    return [*before, *found, *after]


def _invisible(text: str) -> list[str]:
    odd = ("Cf", "Cc", "Co", "Cn", "Zs", "Zl", "Zp")
    return [m[0] for m in INVISIBLE.finditer(text)] + [
        c for c in text if c not in _SEEN and unicodedata.category(c) in odd
    ]


def _twin(text: str) -> str:
    """Return the Latin text that this text resembles, else the text itself."""
    plain = "".join(_plain(char) for char in text).translate(_TWINS)
    return plain if plain.isascii() else text


def _plain(char: str) -> str:
    """Return the plain letter of a wide, bold or circled one; superscripts (1º) are kept."""
    disguised = char.isalpha() and not unicodedata.decomposition(char).startswith("<super>")
    return unicodedata.normalize("NFKC", char) if disguised else char


def _name(char: str) -> str:
    return f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()


def _scripts(word: str) -> set[str]:
    first = (unicodedata.name(char, "").split(" ")[0] for char in word if char.isalpha())
    return {name.title() for name in first if name in _ALIKE}
