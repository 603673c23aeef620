"""Texts of requests to models, as a worker keeps them in the store, and their removal."""

from typing import Final

from outlast.core.durations import MINUTE
from outlast.core.limits import MODEL_TEXTS_PER_DAY_MAX
from outlast.core.model_texts import CONFIRMED_EVERY, confirmed, forgotten, is_unused
from outlast.core.rows.row_kind import Key, key_of
from outlast.core.rows.run_rows import Run
from outlast.core.rows.text_rows import MODEL_TEXT
from outlast.core.usage import ModelText, Used
from outlast.errors import Stale, StoreError
from outlast.store.port import Store

AT_ONCE: Final = 100
"""Texts that one read finds: at most some megabytes."""
LOOKED_AGAIN: Final = CONFIRMED_EVERY + 10 * MINUTE
"""Business time after which a worker reads a row again that it has written or found."""


class ModelTextWriter:
    """Writes each text that requests name, once for a tenant, and confirms it once a day. One for each worker.

    A tenant whose instructions differ in each request gets MODEL_TEXTS_PER_DAY_MAX new rows a day from a worker; the
    requests name further texts by digest only.
    """

    def __init__(self, store: Store) -> None:
        self._store = store
        self._known: dict[tuple[str, str], int] = {}  # instant at which the row was read or written
        self._since = 0
        self._new: dict[str, int] = {}  # rows of a tenant since then

    async def keep(self, run: Run, used: list[Used], now: int) -> None:
        """Store the texts that these reports name, if their rows are missing or old.

        Never raises: a text that cannot be stored now is stored with a later request.
        """
        if now - self._since >= CONFIRMED_EVERY:
            self._since, self._new = now, {}
            self._known = {key: at for key, at in self._known.items() if now - at < LOOKED_AGAIN}
        for text in {text.digest: text for each in used for text in each.asked.texts if text.chars}.values():
            key = (run.tenant, text.digest)
            at = self._known.get(key)
            if (at is not None and now - at < LOOKED_AGAIN) or self._new.get(run.tenant, 0) >= MODEL_TEXTS_PER_DAY_MAX:
                continue
            try:
                await self._keep(run, text, now)
            except StoreError:
                continue
            self._known[key] = now

    async def _keep(self, run: Run, text: ModelText, now: int) -> None:
        row = await self._store.load(MODEL_TEXT, (run.tenant, text.digest))
        commit = confirmed(row, text, run.tenant, run.lane, now)
        if commit is None:
            return
        self._new[run.tenant] = self._new.get(run.tenant, 0) + 1
        try:
            await self._store.commit(commit)
        except Stale:
            pass  # another worker did it now


async def forget_unused(store: Store, before: int) -> int:
    """Delete the texts of all tenants that were last used before a business instant, and return how many."""
    n, after = 0, Key()
    while page := await store.rows(MODEL_TEXT, (), after=after, limit=AT_ONCE):
        after = key_of(MODEL_TEXT, page[-1])
        for row in page:
            if not is_unused(row, before):
                continue
            try:
                await store.commit(forgotten(row))
                n += 1
            except Stale:
                pass  # it is in use again
    return n
