"""Safeguards of the PostgreSQL store.

Modules are imported in the functions, so that a process that removes another safeguard does not load asyncpg.
"""

from typing import Any

from outlast.errors import Unavailable
from tests.removals import Patch, replace


def unanswered_commit_repeated(patch: Patch) -> None:
    from outlast.store.postgres.session import PostgresSession

    async def forget(self: PostgresSession, error: BaseException) -> None:
        raise Unavailable("the store does not answer", str(error))

    replace(patch, PostgresSession.resolve, forget)


def commits_not_durable(patch: Patch) -> None:
    from outlast.store.postgres import session

    kept = session.reconnect

    async def careless(*args: Any, **kwargs: Any) -> Any:
        db = await kept(*args, **kwargs)
        await db.execute("SET synchronous_commit = off")
        return db

    patch.setattr(session, "reconnect", careless)


def expected_rows_not_locked(patch: Patch) -> None:
    from outlast.store.postgres import statements

    kept = statements.find
    replace(patch, kept, lambda kind, lock: kept(kind, lock=False))


def mapping_change_without_lock(patch: Patch) -> None:
    from outlast.store.postgres import store

    patch.setattr(store, "BEGIN_MAPPING", "BEGIN")


def batch_without_lock(patch: Patch) -> None:
    from outlast.store.postgres import statements

    patch.setattr(statements, "BEGIN_MOVES", "BEGIN")


# --- the statement that lands a batch in one round trip -----------------------------------------
def statement_without_inbox(patch: Patch) -> None:
    _without(patch, "AND t.inbox_seq = k.inbox_seq", "")


def statement_without_version(patch: Patch) -> None:
    _without(patch, "t.version = k.version AND t.inbox_seq", "t.inbox_seq")


def statement_without_owner(patch: Patch) -> None:
    _without(patch, "(SELECT all_ FROM ours)", "true")


def statement_without_subscriptions(patch: Patch) -> None:
    _without(patch, "IS NOT DISTINCT FROM $13::text", "IS NULL OR $13::text IS NULL")


def _without(patch: Patch, check: str, instead: str) -> None:
    """Take a condition out of the text of the statement."""
    from outlast.core.rows.effect_rows import EFFECT
    from outlast.store.postgres import statements

    kept = statements.write_alone
    assert check in kept((statements.WriteForm(EFFECT, True),)), check
    replace(patch, kept, lambda forms: kept(forms).replace(check, instead))
