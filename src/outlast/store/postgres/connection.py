"""Addresses of PostgreSQL stores, and connections whose settings make a commit durable."""

import asyncio
import re
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from outlast.errors import StoreUnusable, Unavailable

SCHEMES: Final = ("postgresql", "postgres")
SHOWN: Final = (
    "host",
    "port",
    "user",
    "database",
    "dbname",
)  # parameters that name the place of the store and are not secret
SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
CONNECT_S: Final = 5.0
ANSWER_S: Final = 15.0  # a statement unanswered for longer: the connection is taken for dead
CHORE_S: Final = 600.0  # for statements over many runs
LOCK_TIMEOUT_MS: Final = (
    5_000  # our transactions wait for no row; another program's lock must not hold a batch for long
)
IDLE_MS: Final = 10_000  # a stopped process keeps its rows locked for this long, then its runs can be taken over

# Lets the server notice a client that vanished without closing the connection.
DEAD_PEER: Final = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
    "tcp_user_timeout": "15000",
}

# Prevents table scans that the planner would choose for a table that was empty a minute ago (docs/scaling.md).
PLANNER: Final = {
    "enable_seqscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "plan_cache_mode": "force_generic_plan",
    "jit": "off",
}
AWAY: Final = (
    OSError,
    EOFError,
    asyncio.TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.PostgresConnectionError,
    asyncpg.ConnectionDoesNotExistError,
    asyncpg.InsufficientResourcesError,
    asyncpg.OperatorInterventionError,
    asyncpg.InternalClientError,
    asyncpg.PostgresSystemError,  # the server's disk fails
    asyncpg.ReadOnlySQLTransactionError,  # a standby, or a primary that became one
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
)
"""Errors of a server that did not answer or cannot answer now. The request itself is valid."""
AGAIN: Final = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidCachedStatementError,  # another process migrated the schema
)
"""Errors of a transaction that lost a race. It is safe to repeat as a whole."""


class Address(NamedTuple):
    """Address of a store: asyncpg's DSN, the schema in it, and the address without the password."""

    dsn: str
    schema: str
    shown: str  # without password

    @classmethod
    def parse(cls, url: str) -> "Address":
        """Parse `postgresql://user:password@host:port/database?schema=outlast`.

        Raises StoreUnusable.
        """
        parts = urlsplit(url)
        query = dict(parse_qsl(parts.query))
        schema = query.pop("schema", "outlast")
        if parts.scheme not in SCHEMES or not SCHEMA_NAME.fullmatch(schema):
            raise StoreUnusable(
                f"{parts.scheme}://… names no PostgreSQL store",
                f"the schema is {schema!r}",
                "postgresql://USER@HOST:PORT/DATABASE?schema=outlast",
            )
        netloc = parts.netloc.replace(f":{parts.password}@", ":***@") if parts.password else parts.netloc
        dsn = urlunsplit((*parts[:3], urlencode(query), ""))
        place = {name: value for name, value in query.items() if name in SHOWN}
        shown = urlencode({**place, "schema": schema}, safe="/:@,")
        # Not urlunsplit: it writes an empty host as `postgresql:/DATABASE`.
        return cls(dsn, schema, f"{parts.scheme}://{netloc}{parts.path}?{shown}")


def required_settings(address: Address, *, writes: bool) -> dict[str, str]:
    """Return the settings that a connection must have, as the server shows them in its base units."""
    return {
        "search_path": address.schema,
        "synchronous_commit": "on",
        "default_transaction_isolation": "read committed",
        "default_transaction_read_only": "off" if writes else "on",
        "lock_timeout": str(LOCK_TIMEOUT_MS),
        "idle_in_transaction_session_timeout": str(IDLE_MS),
        **PLANNER,
    }


async def connect(address: Address, *, writes: bool, answer_s: float | None = ANSWER_S) -> "asyncpg.Connection[Any]":
    """Open a connection with our settings, whatever the role or the database sets.

    A statement unanswered for `answer_s` raises TimeoutError, and the connection cannot be used afterwards. Raises
    asyncpg's errors.
    """
    settings = {"application_name": "outlast", **required_settings(address, writes=writes), **DEAD_PEER}
    return await asyncpg.connect(
        address.dsn, timeout=CONNECT_S, command_timeout=answer_s, server_settings=settings, statement_cache_size=512
    )


async def reconnect(address: Address, *, writes: bool, answer_s: float | None = ANSWER_S) -> "asyncpg.Connection[Any]":
    """Open a connection for a store that is already open. Raises Unavailable and the errors in AWAY.

    A server that refuses the connection now, for instance while a database is restored, is away: no commit is refused
    for good.
    """
    try:
        return await connect(address, writes=writes, answer_s=answer_s)
    except AWAY:
        raise
    except asyncpg.PostgresError as error:
        raise Unavailable("the store refuses connections", f"{type(error).__name__}: {error}") from error


async def check_durability(db: "asyncpg.Connection[Any]", address: Address) -> None:
    """Read back the settings that make a commit durable, over a writing connection.

    Raises StoreUnusable.
    """
    ours = required_settings(address, writes=True)
    read = "SELECT name, setting FROM pg_settings WHERE name = ANY($1)"
    records = await db.fetch(read, [*ours, "fsync", "full_page_writes"])
    found = {record["name"]: record["setting"] for record in records}
    if found["fsync"] != "on" or found["full_page_writes"] != "on":
        raise StoreUnusable(
            f"the store {address.shown} does not make commits durable",
            f"fsync is {found['fsync']}, full_page_writes is {found['full_page_writes']}; both must be on",
            "set fsync = on and full_page_writes = on on the server",
        )
    lost = [f"{name} is {found[name]}, not {value}" for name, value in ours.items() if found[name] != value]
    if lost:
        raise _behind_a_pooler(address, f"the server does not apply our settings: {', '.join(lost)}")


def _behind_a_pooler(address: Address, why: str) -> StoreUnusable:
    return StoreUnusable(
        f"the store {address.shown} is behind a pooler that does not give each client its own session",
        why,
        "connect to the server directly; a worker keeps its few connections open (docs/postgres.md)",
    )


_LIMITS: Final = {
    "statement timeout": "statement_timeout",
    "idle-session timeout": "idle_session_timeout",
    "transaction timeout": "transaction_timeout",
}
"""Settings that a role may have and our connections do not set, by the end of the sentence of the server."""


def limit_of(error: BaseException) -> str:
    """Return the setting of the server because of which it stopped a statement or a session; '' for another reason."""
    text = str(error)
    return next((name for end, name in _LIMITS.items() if text.endswith(f"due to {end}")), "")


def remedy(error: BaseException) -> str:
    """Return what to do about a server that answered and stopped a statement; '' if waiting may help."""
    name = limit_of(error)
    return f"set {name} = 0, or a longer time, for the role: ALTER ROLE … SET {name} = 0" if name else ""


def unusable(address: Address, error: BaseException) -> StoreUnusable:
    """Return the error of a store that cannot be opened."""
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return StoreUnusable(f"the store {address.shown} refuses this user", str(error), "check the user and password")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return StoreUnusable(f"the store {address.shown} has no such database", str(error), "create it with createdb")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreUnusable(
            f"the store {address.shown} may not be set up by this user",
            str(error),
            f"GRANT CREATE ON DATABASE … TO …, or have its owner run: CREATE SCHEMA {address.schema} AUTHORIZATION …",
        )
    if isinstance(error, asyncpg.DuplicatePreparedStatementError | asyncpg.InvalidSQLStatementNameError):
        return _behind_a_pooler(address, str(error))
    if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error):  # the text of PgBouncer
        return _behind_a_pooler(address, str(error))
    if limit := limit_of(error):
        return StoreUnusable(
            f"the store {address.shown} answers, but its {limit} is too short", str(error), remedy(error)
        )
    if isinstance(error, AWAY):
        text = str(error) or type(error).__name__
        return StoreUnusable(
            f"the store {address.shown} cannot be reached", text, "check that the server runs at this address"
        )
    return StoreUnusable(f"the store {address.shown} cannot be opened", f"{type(error).__name__}: {error}")
