"""Causes: why runs need a person or failed, as one short name for all runs with the same trouble.

A cause is a digest of the reason, the workflow, the node, the activity or the type of the exception, and the normal
form of the message. The normal form has a mark in place of each part that differs from run to run. The digest has the
version of these rules: a run keeps the cause of the version that flagged it.
"""

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final, NamedTuple

from outlast.core.codec import digest
from outlast.core.machine import Reason, RunStatus
from outlast.core.rows.columns import CACHED_TEXTS
from outlast.core.rows.run_columns import ATTENTION, Attention, until_of
from outlast.core.rows.run_rows import Run

RULE: Final = "1"
"""Version of `normal_form` and of the digest. A change of either raises it."""
CAUSE_CHARS: Final = 12
CAUSES_MAX: Final = 12
"""Most distinct causes of one run. Further entries have the cause of their reason alone."""
FORM_CHARS_MAX: Final = 300
READ_CHARS_MAX: Final = 4_000
NAME_CHARS_MAX: Final = 100
FAILED: Final = RunStatus.FAILED.value
"""Reason in the cause of a run that has failed."""
MARK: Final = "◇"
# Each pattern is linear: its repeated classes exclude what ends them.
_QUOTED: Final = (
    ('"', re.compile(r"(?<![\w\"])\"(?:[^\"\\]|\\.)*+(?:\"|\Z)")),
    ("'", re.compile(r"(?<![\w'])'(?:[^'\\]|\\.)*+(?:'(?!\w)|\Z)")),
    ("`", re.compile(r"`[^`]*+(?:`|\Z)")),
    ("“„", re.compile(r"[“„][^”]*+(?:”|\Z)")),
    ("«", re.compile(r"«[^»]*+(?:»|\Z)")),
)
"""Patterns, each with the characters with which it begins: most messages have none of them."""
_NESTED: Final = re.compile(r"\{[^{}\[\]]*+\}|\[[^{}\[\]]*+\]")
_CUT_OFF: Final = re.compile(r"[{\[].*+\Z", re.DOTALL)
_DEPTH_MAX: Final = 20
_URL: Final = re.compile(r"\b[A-Za-z][A-Za-z0-9+.-]{0,20}+://\S++")
_FOREIGN: Final = re.compile(r"[^\x20-\x7e\u00a0-\u024f◇…–—‘’“”„«»]++")
_IN_WORD: Final = r"\w.:/\\@#%+~$&?*^!-"
_LAST_IN_WORD: Final = r"\w/\\@#%+~$&*^-"  # without the punctuation of a sentence
_NO_SLASH: Final = r"\w.:\\@#%+~$&?*^!-"
_NO_BACKSLASH: Final = r"\w.:/@#%+~$&?*^!-"
_END_OF_WORD: Final = rf"[.:?!]*+(?![{_IN_WORD}])"
_DIFFERING: Final = re.compile(
    rf"(?<![{_IN_WORD}])(?:"
    rf"(?=[{_IN_WORD}]*?[\d²³¹@])"  # a number, an id or an address
    rf"|(?=[/\\~])|(?=[{_NO_SLASH}]*+/[{_NO_SLASH}]*+/)|(?=[{_NO_BACKSLASH}]*+\\[{_NO_BACKSLASH}]*+\\)"  # a path
    rf"|(?=[0-9a-fA-F]{{8,}}+{_END_OF_WORD})|(?=[A-Za-z0-9_-]{{40,}}+{_END_OF_WORD})"  # hexadecimal, or a long id
    rf")[{_IN_WORD}]*[{_LAST_IN_WORD}]"
)
"""A word that differs from run to run, without the punctuation behind it."""
_MARKS: Final = re.compile(rf"{MARK}(?:[\s,;:./|+&=-]*+{MARK})+")
_EXCEPTION: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_.]{0,99}+)(?::|$)")


@lru_cache(CACHED_TEXTS)
def normal_form(message: str) -> str:
    """Return the first line of a message with a mark in place of what differs from run to run.

    These are quoted texts, numbers, ids, hexadecimal texts, paths, addresses, dates, JSON and words of other scripts
    than Latin. At most FORM_CHARS_MAX characters.
    """
    lines = message[:READ_CHARS_MAX].strip().splitlines()
    text = lines[0] if lines else ""
    for begins, pattern in _QUOTED:
        if begins in text or (len(begins) > 1 and not text.isascii()):
            text = pattern.sub(MARK, text)
    for _ in range(_DEPTH_MAX if "{" in text or "[" in text else 0):
        text, n = _NESTED.subn(MARK, text)
        if not n:
            break
    text = _CUT_OFF.sub(MARK, text) if "{" in text or "[" in text else text
    text = (_URL.sub(MARK, text) if "://" in text else text).replace("\t", " ")
    text = text if text.isascii() and text.isprintable() else _FOREIGN.sub(MARK, text)
    text = _MARKS.sub(MARK, " ".join(_DIFFERING.sub(MARK, text).split()))
    return text if len(text) <= FORM_CHARS_MAX else text[: FORM_CHARS_MAX - 1] + "…"


def cause_of(reason: str, workflow: str, node: str, name: str, message: str) -> str:
    """Return the cause of a trouble. `name`: the activity or the type of the exception; '' without one."""
    return digest("\n".join((RULE, reason, workflow, node, name, normal_form(message))))[:CAUSE_CHARS]


def name_in(message: str) -> str:
    """Return the type of the exception with which a message begins; '' if it begins with none."""
    first = message[: NAME_CHARS_MAX + 1].partition("\n")[0]
    found = _EXCEPTION.match(first)
    return found[1] if found is not None and found[1][:1].isupper() else ""


def with_causes(run: Run, reasons: Iterable[Attention], beside: Iterable[Attention] = ()) -> list[Attention]:
    """Return new entries of a run's attention, each with its cause. `beside`: the entries that the run keeps."""
    known = {entry.cause for entry in beside}
    found: list[Attention] = []
    for entry in reasons:
        if not entry.cause:
            entry = _with_cause(run, entry, known)
        known.add(entry.cause)
        found.append(entry)
    return found


def _with_cause(run: Run, entry: Attention, known: set[str]) -> Attention:
    reason, name = entry.reason, entry.name
    if not name and reason is Reason.EXCEPTION:
        name = name_in(entry.detail)
    cause = cause_of(reason._value_, run.workflow, run.node, name, entry.detail)
    if cause not in known and len(known) >= CAUSES_MAX:
        cause = cause_of(reason.value, run.workflow, run.node, "", "")
    return entry._replace(name=name[:NAME_CHARS_MAX], cause=cause)


class CauseName(NamedTuple):
    """Reason and cause, as the column `causes` of a run has them."""

    reason: str
    cause: str


class Flags(NamedTuple):
    """Columns of a run's row that its attention determines, for the indexes of flagged runs."""

    causes: str
    """Reason and cause of each entry, between spaces; '' if the run needs no person."""
    flagged_at: int  # 0 = the run needs no person
    flagged_until: int


NO_FLAGS: Final = Flags("", 0, 0)


@lru_cache(CACHED_TEXTS)
def flags_of(attention_text: str) -> Flags:
    """Return the columns that follow from the attention of a run, as its row has it. Raises Corrupt."""
    return flags_from(ATTENTION.decode(attention_text))


def flags_from(entries: Sequence[Attention]) -> Flags:
    """Return the columns that follow from the attention of a run."""
    if not entries:
        return NO_FLAGS
    names = {CauseName(entry.reason._value_, entry.cause or entry.reason._value_) for entry in entries}
    ends = [until for entry in entries if (until := until_of(entry))]
    return Flags(causes_text(names), max(1, min([entry.since for entry in entries])), min(ends, default=0))


def flagged(run: Run) -> Run:
    """Return the row with the columns that follow from its attention. An ended run keeps the cause of its failure."""
    return run if run.ended_at else run._replace(**flags_of(run.attention_text)._asdict())


def failure(run: Run, reason: str) -> str:
    """Return the column `causes` of a run that fails for this reason."""
    cause = cause_of(FAILED, run.workflow, run.node, name_in(reason), reason)
    return causes_text([CauseName(FAILED, cause)])


def causes_text(names: Iterable[CauseName]) -> str:
    """Return the column `causes` that has these names."""
    return f" {' '.join(sorted([f'{reason}/{cause}' for reason, cause in names]))} "


def causes_in(text: str) -> tuple[CauseName, ...]:
    """Return the names in a column `causes`."""
    parts = (name.partition("/") for name in text.split())
    return tuple(CauseName(reason, cause) for reason, _, cause in parts)


def reason_mark(reason: str) -> str:
    """Return the text that the column `causes` has if, and only if, the run has this reason."""
    return f" {reason}/"


def cause_mark(cause: str) -> str:
    """Return the text that the column `causes` has if, and only if, the run has this cause."""
    return f"/{cause} "
