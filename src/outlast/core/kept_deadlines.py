"""Rows that keep a deadline in business days beside its run: that of a visit's node, and the ceiling.

The instant is computed once. A holiday table that changes later does not move it (S-14).
"""

from collections.abc import Iterable
from typing import Final

from outlast.core.business_days import DUE, Due
from outlast.core.rows.effect_rows import MEMO, Memo
from outlast.core.rows.run_rows import RunKey
from outlast.errors import Corrupt

WITHIN: Final = "deadline?within"  # no template of a key renders a ?
"""Key of the memo of a visit: the deadline of its node, if it is counted in business days."""
CEILING: Final = "deadline?ceiling?"


def deadline_memo(tenant: str, run: str, visit: int, key: str, due: Due, now: int) -> Memo:
    """Return the row that keeps a deadline in business days."""
    return Memo(tenant, run, visit, key, "", "", DUE.encode(due).encode(), "", now)


def kept_due(memo: Memo) -> Due:
    """Return the deadline in a memo. Raises Corrupt."""
    due = MEMO.decode(DUE, (memo.response or b"").decode(errors="replace"), memo)
    if due is None:
        raise Corrupt(f"memo {memo.run}/{memo.key}: it keeps no deadline")
    return due


def ceiling_key(ms: int, node: str = "") -> str:
    """Return the key of the memo of a ceiling: its instant, and the node whose entry set it."""
    return f"{CEILING}{ms:016d}?{node}"


def kept_ceiling(memos: Iterable[Memo], node: str) -> Memo | None:
    """Return the memo of the ceiling that an earlier entry into a node has set."""
    return next((each for each in memos if each.key.startswith(CEILING) and each.key.endswith(f"?{node}")), None)


def ceiling_memo(run: RunKey, node: str, due: Due, now: int) -> Memo:
    """Return the row that keeps a ceiling in business days."""
    return deadline_memo(*run, 0, ceiling_key(due.ms, node), due, now)
