"""Stop signs of operators and of breakers: put up, taken down, known to a worker within one heartbeat (S-23)."""

from collections.abc import Sequence
from typing import Literal

from outlast.core.commit import Commit, Put, Wake
from outlast.core.limits import TEXT_CHARS_MAX
from outlast.core.overlay import WaitingFor, waiting_of
from outlast.core.rows import HOLD, RUN, Hold, Run, is_over
from outlast.errors import Conflict, InvalidInput, NotFound, Stale
from outlast.store.port import Store

TENANT = "tenant"
What = Literal["activity", "provider", "workflow", "tenant"]
OPERATOR, BREAKER = "operator", "breaker"
WAKES_AT_ONCE = 90
PAGE = 500


def held_key(what: str, name: str = "") -> str:
    """The key of a stop sign: `activity/NAME`, `provider/NAME`, `workflow/NAME`, `tenant`. Raises InvalidInput."""
    if what == TENANT and not name:
        return TENANT
    if what in ("activity", "provider", "workflow") and name:
        return f"{what}/{name}"
    raise InvalidInput(
        f"{what} {name} cannot be held", "an activity, a provider, a workflow or the tenant can", "hold activity NAME"
    )


class PauseCache:
    """The stop signs as this worker last read them; one that seems to be up is read again before it stops a run."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._up: dict[tuple[str, str], Hold] = {}

    async def refresh(self) -> None:
        """Read them anew. Raises StoreError."""
        rows = await self._store.rows(HOLD, ())
        self._up = {(h.tenant, h.key): h for h in rows if isinstance(h, Hold) and h.up}

    def learn(self, hold: Hold) -> None:
        """This worker has just written it, or read it."""
        if hold.up:
            self._up[hold.tenant, hold.key] = hold
        else:
            self._up.pop((hold.tenant, hold.key), None)

    async def first(self, tenant: str, keys: Sequence[str]) -> Hold | None:
        """The first of these that is up. Raises StoreError."""
        for key in keys if self._up else ():
            if (tenant, key) in self._up:
                row = await self._store.load(HOLD, (tenant, key))
                if isinstance(row, Hold) and row.up:
                    return row
                self._up.pop((tenant, key), None)  # released since: a run it woke goes on at once
        return None


def waiting_for(hold: Hold) -> WaitingFor:
    """What a run that meets a stop sign waits for."""
    reason = f": {hold.reason}" if hold.reason else ""
    return WaitingFor("hold", f"{hold.key}{reason}", who=hold.by, since=hold.since, then="goes on when it is released")


async def put_up(store: Store, tenant: str, key: str, *, actor: str, reason: str) -> None:
    """Stop new intents under `key`; a breaker that is up there becomes an operator's hold, which only people release.

    Raises Conflict when it is held already, InvalidInput without a reason.
    """
    if not reason.strip() or len(reason) > TEXT_CHARS_MAX:
        raise InvalidInput("a hold needs a reason", "people will read it while they wait", "say why")
    now = await store.now()
    found = await store.load(HOLD, (tenant, key))
    version = found.version if isinstance(found, Hold) else 0
    if isinstance(found, Hold) and found.up and found.kind == OPERATOR:
        raise Conflict(
            f"{key} is held already", f"{found.by}: {found.reason}", f"outlast release {key.replace('/', ' ')}"
        )
    row = Hold(tenant, key, version + 1, 1, actor, reason, now.business)
    try:
        await store.commit(Commit((Put(HOLD, row, version),), label=f"hold {key}"))
    except Stale:
        raise Conflict(f"{key} was held or released by another just now", "", "look again: outlast holds") from None


async def take_down(store: Store, tenant: str, key: str, *, actor: str) -> int:
    """Release `key` and make due every run that waits for it. Answers how many. Raises NotFound, Conflict."""
    found = await store.load(HOLD, (tenant, key))
    if not isinstance(found, Hold) or not found.up:
        raise NotFound(f"{key} is not held", f"tenant {tenant} has no such hold", "list them: outlast holds")
    row = found._replace(version=found.version + 1, up=0, by=actor)
    try:
        await store.commit(Commit((Put(HOLD, row, found.version),), label=f"release {key}"))
    except Stale:
        raise Conflict(f"{key} was held or released by another just now", "", "look again: outlast holds") from None
    return await wake_all(store, tenant, key)


async def wake_all(store: Store, tenant: str, key: str) -> int:
    """Runs that park a moment later with the old sign in mind look again by themselves (holds.LOOK_AGAIN)."""
    woken, cursor = 0, ""
    while True:
        page = await store.page(RUN, tenant, {}, cursor=cursor, limit=PAGE)
        waiting = [r for r in page.rows if isinstance(r, Run) and not is_over(r) and _waits_for(r, key)]
        for i in range(0, len(waiting), WAKES_AT_ONCE):
            wakes = tuple(Wake(r.tenant, r.run) for r in waiting[i : i + WAKES_AT_ONCE])
            await store.commit(Commit(wakes, label=f"release {key}"))
        woken += len(waiting)
        cursor = page.cursor
        if not cursor:
            return woken


def _waits_for(run: Run, key: str) -> bool:
    return any(w.kind == "hold" and w.what.split(":")[0] == key for w in waiting_of(run))
