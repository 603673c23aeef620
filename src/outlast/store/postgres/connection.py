"""A PostgreSQL address, and connections with the settings that make a commit durable, read back and insisted on."""

import asyncio
import re
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import asyncpg

from outlast.errors import StoreUnusable, Unavailable

SCHEMES: Final = ("postgresql", "postgres")
SHOWN: Final = ("host", "port", "user", "database", "dbname")  # parameters that say where it is; none is a secret
SCHEMA_NAME: Final = re.compile(r"[a-z_][a-z0-9_]{0,62}")
CONNECT_S: Final = 5.0
ANSWER_S: Final = 15.0  # a statement without an answer for so long: the line is taken for dead, a COMMIT is asked after
CHORE_S: Final = 600.0  # of statements that go over many runs at once
LOCK_TIMEOUT_MS: Final = 5_000  # nobody of ours waits for a row; a stranger's lock must not hold a batch for ever
IDLE_MS: Final = 10_000  # a frozen process keeps its rows locked no longer than this, so its runs can be taken over

# The server, too, finds out that nobody is at the other end, though nothing was closed.
DEAD_PEER: Final = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "2",
    "tcp_user_timeout": "15000",
}

# The planner's guesses about a table that was empty a minute ago must not cost a scan of it (docs/scaling.md).
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
    asyncpg.PostgresSystemError,  # its disk does not read or write
    asyncpg.ReadOnlySQLTransactionError,  # a standby, or a primary that has become one
    asyncpg.IdleInTransactionSessionTimeoutError,
    asyncpg.TransactionTimeoutError,
)
"""The server did not answer, or will not now: nothing is wrong with what was asked."""
AGAIN: Final = (
    asyncpg.SerializationError,
    asyncpg.DeadlockDetectedError,
    asyncpg.LockNotAvailableError,
    asyncpg.InvalidCachedStatementError,  # a migration of another process came between
)
"""The transaction lost a race and is safe to repeat as a whole."""


class Address(NamedTuple):
    """Where the store is: what asyncpg connects to, our schema in it, and how people are shown it."""

    dsn: str
    schema: str
    shown: str  # without the password

    @classmethod
    def parse(cls, url: str) -> "Address":
        """`postgresql://user:password@host:port/database?schema=outlast`. Raises StoreUnusable."""
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


def rested_on(address: Address, *, writes: bool) -> dict[str, str]:
    """The settings without which a connection is not ours, as the server shows them in its base units."""
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
    """A connection whose settings are ours, whatever the role or the database set. Raises asyncpg's errors.

    A statement that is not answered within `answer_s` raises TimeoutError; the connection is then of no further use.
    """
    settings = {"application_name": "outlast", **rested_on(address, writes=writes), **DEAD_PEER}
    return await asyncpg.connect(
        address.dsn, timeout=CONNECT_S, command_timeout=answer_s, server_settings=settings, statement_cache_size=512
    )


async def reconnect(address: Address, *, writes: bool, answer_s: float | None = ANSWER_S) -> "asyncpg.Connection[Any]":
    """`connect`, for a store that is open: a server that turns us away now (a password that was changed, a database
    that is being restored) is away, and refuses no commit. Raises Unavailable, AWAY."""
    try:
        return await connect(address, writes=writes, answer_s=answer_s)
    except AWAY:
        raise
    except asyncpg.PostgresError as error:
        raise Unavailable("the store lets nobody in", f"{type(error).__name__}: {error}") from error


async def insist_on_durability(db: "asyncpg.Connection[Any]", address: Address) -> None:
    """Read back what makes an acknowledged commit survive, over a connection that writes. Raises StoreUnusable."""
    ours = rested_on(address, writes=True)
    read = "SELECT name, setting FROM pg_settings WHERE name = ANY($1)"
    records = await db.fetch(read, [*ours, "fsync", "full_page_writes"])
    found = {record["name"]: record["setting"] for record in records}
    if found["fsync"] != "on" or found["full_page_writes"] != "on":
        raise StoreUnusable(
            f"the store {address.shown} does not keep what it acknowledges",
            f"fsync is {found['fsync']}, full_page_writes is {found['full_page_writes']}; both have to be on",
            "set fsync = on and full_page_writes = on on the server",
        )
    lost = [f"{name} is {found[name]}, not {value}" for name, value in ours.items() if found[name] != value]
    if lost:
        raise _behind_a_pooler(address, f"our settings do not arrive: {', '.join(lost)}")


def _behind_a_pooler(address: Address, why: str) -> StoreUnusable:
    return StoreUnusable(
        f"the store {address.shown} is behind a pooler that gives no session of our own",
        why,
        "connect to the server directly; a worker keeps its few connections open (docs/postgres.md)",
    )


def unusable(address: Address, error: BaseException) -> StoreUnusable:
    """The one sentence for an error met while opening."""
    if isinstance(error, asyncpg.InvalidAuthorizationSpecificationError):
        return StoreUnusable(f"the store {address.shown} refuses this user", str(error), "check the user and password")
    if isinstance(error, asyncpg.InvalidCatalogNameError):
        return StoreUnusable(f"the store {address.shown} has no such database", str(error), "createdb it first")
    if isinstance(error, asyncpg.InsufficientPrivilegeError):
        return StoreUnusable(
            f"the store {address.shown} may not be set up by this user",
            str(error),
            f"GRANT CREATE ON DATABASE … TO …, or have its owner run: CREATE SCHEMA {address.schema} AUTHORIZATION …",
        )
    if isinstance(error, asyncpg.DuplicatePreparedStatementError | asyncpg.InvalidSQLStatementNameError):
        return _behind_a_pooler(address, str(error))
    if isinstance(error, asyncpg.ProtocolViolationError) and "startup parameter" in str(error):  # as PgBouncer says it
        return _behind_a_pooler(address, str(error))
    if isinstance(error, AWAY):
        said = str(error) or type(error).__name__
        return StoreUnusable(f"the store {address.shown} cannot be reached", said, "is the server running there?")
    return StoreUnusable(f"the store {address.shown} cannot be opened", f"{type(error).__name__}: {error}")
