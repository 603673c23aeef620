"""Characters of a text that a reader does not see."""

import re
from typing import Final

# Unicode's default ignorable code points, blank letters, direction marks, line and paragraph
# separators, annotations, lone surrogates. A variation selector after an emoji is allowed.
INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f\u2800\u3164"
    "\ufe00-\ufe0e\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff]"
    "|(?<![#*0-9\u00a9\u00ae\u203c-\u3299\U0001f000-\U0001faff])\ufe0f"
)


def code_point(char: str) -> str:
    """Return the code point of a character as text."""
    return f"U+{ord(char):04X}"


def is_blank(text: str) -> bool:
    """Return True for a text without a visible character."""
    return not any(each.isprintable() and not each.isspace() for each in INVISIBLE.sub("", text))
