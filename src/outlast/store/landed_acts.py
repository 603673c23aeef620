"""Acts that have landed, found by their identity."""

from outlast.core.acts import KeyedAct, check_same
from outlast.core.rows.run_rows import TOKEN, Token
from outlast.store.port import Store


async def done_before(store: Store, act: KeyedAct | None) -> Token | None:
    """Return the token of an act that has landed, else None. Raises KeyRefused if its content was another."""
    before = await store.load(TOKEN, act.key) if act is not None else None
    if act is not None and before is not None:
        check_same(act, before)
    return before
