"""A store with healthy runs and faulty ones of the same shapes, and values that a faulty row may hold.

`played` makes the store. `cases` lists each column of the rows of a run with each value that an earlier version or
another program could have stored there. `Spoilt` stores one of them for a moment.
"""

import asyncio
import json
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, NamedTuple

from pydantic import BaseModel

from outlast import Context, Fail, Refused, activity, lookup, role, workflow
from outlast.core.approvals import Actor
from outlast.core.commit import Commit, Put
from outlast.core.machine import DeliveryStatus
from outlast.core.rows.effect_columns import ANSWER, EvidenceAnswer
from outlast.core.rows.effect_rows import EVIDENCE, Evidence
from outlast.core.rows.outbox_rows import DELIVERY, Delivery
from outlast.core.rows.row_kind import AnyKind
from outlast.core.rows.run_rows import TOKEN
from outlast.operations.run_operations import ListRuns
from outlast.runtime.in_process import InProcessRuntime
from outlast.runtime.operations import Operations
from outlast.runtime.stores import open_store, until
from outlast.store.port import RUN_KINDS

WITHIN_S: Final = 60


class Part(BaseModel):
    name: str
    price: int


@lookup(durable=True)
async def price(name: str) -> Part:
    return Part(name=name, price=7)


@activity(key="order/{name}", no_undo="a test")
async def order(name: str) -> Part:
    return Part(name=name, price=7)


@activity(
    key="take/{name}",
    once_per="run",
)
async def take(name: str) -> str:
    return f"took {name}"


@take.undo
async def give_back(done: str, name: str) -> None:
    pass


@activity(key="rent/{name}", once_per="tenant", no_undo="a test")
async def rent(name: str) -> str:
    return f"rented {name}"


@activity(key="lose/{name}", no_undo="a test")
async def lose(name: str) -> str:
    raise RuntimeError("the answer was lost")


@activity(key="refuse/{name}", no_undo="a test")
async def refuse(name: str) -> str:
    raise Refused("no_part", "no such part")


class Word(BaseModel):
    text: str = ""


@workflow
async def goods(ctx: Context[Any], name: str, shape: str) -> str:
    """Do what its shape says: ask, hear, sleep, lose, refuse or end."""
    found = await ctx.do(price, name)
    await ctx.do(order, name)
    await ctx.do(rent, name)
    ctx.log("priced", f"{found.price} for {name}", price=found.price)
    await ctx.emit(found, key=name)
    if shape == "refuse":
        await ctx.do(take, name)
        try:
            await ctx.do(refuse, name)
        except Refused as error:
            raise Fail(f"{name} cannot be had: {error.code}") from error
    if shape == "lose":
        await ctx.do(lose, name)
    if shape == "ask":
        await ctx.approval(take.plan(name), summary=f"take {name}", by=role("finance"), within=timedelta(days=2))
    if shape == "sleep":
        await ctx.sleep("12h")
    if shape == "hear":
        await ctx.receive("word", Word, timeout="4d")
    return name


@workflow
async def later(ctx: Context[Any], name: str) -> str:
    """Is started, and no worker serves it while the store is made."""
    await ctx.do(order, name)
    return name


SHAPES: Final = ("ask", "hear", "sleep", "lose", "refuse", "end", "later")
GOOD, BAD = "ok", "bad"
DUE_AGAIN: Final = "UPDATE run SET due_at = 1 WHERE run LIKE 'bad-%' AND ended_at = 0 AND owner = ''"


async def play(url: str) -> None:
    """Make runs of every shape, healthy and to be spoilt, in an empty store."""
    store = await open_store(url)
    try:
        async with InProcessRuntime(store, [goods]) as runtime:
            ops = runtime.operations
            hook = (await ops.webhooks.add("https://93.184.216.34/hook", name="hook")).webhook
            for kind in (GOOD, BAD):
                for shape in SHAPES[:-1]:
                    given = {"name": f"{kind}-{shape}", "shape": shape}
                    await ops.start_run("goods", given, run_id=f"{kind}-{shape}", key=f"{kind}-{shape}")

            async def rests() -> bool | None:
                rows = (await ops.rows.runs(ListRuns(limit=100)))[0]
                return True if all(row.ended_at or row.waiting_for_text for row in rows) else None

            assert await until(store, rests, within_s=WITHIN_S), (await ops.rows.runs(ListRuns(limit=100)))[0]
        ops = Operations(store, tenant="default", actor=Actor("local"), workflows={"later": later})
        for kind in (GOOD, BAD):
            await ops.start_run("later", {"name": f"{kind}-later"}, run_id=f"{kind}-later")
            await ops.signal(f"{kind}-hear", "noise", {"text": "x"}, signal_id="s1")
            await store.commit(
                Commit((Put(EVIDENCE, _late(f"{kind}-lose"), 0), Put(DELIVERY, _dead(f"{kind}-end", hook), 0)))
            )
    finally:
        await store.close()


def _late(run: str) -> Evidence:
    answer = ANSWER.encode(EvidenceAnswer("done", response_text='"lost"', attempt=1))
    return Evidence("default", run, 1, f"lose/{run}", 1, answer, 1_700_000_000_000)


def _dead(run: str, hook: str) -> Delivery:
    at = 1_700_000_000_000
    return Delivery("default", run, hook, 1, 1, DeliveryStatus.DEAD, f"{run}/1", "dev.outlast.workflow.started", 3, at,
                    at, 0, 500, "no", "it answered 500", 5, "")  # fmt: skip


def played(path: Path) -> Path:
    """Make a store with runs of every shape, healthy and to be spoilt, in a file."""
    asyncio.run(play(f"sqlite:{path}"))
    return path


# --- values ----------------------------------------------------------------------------------
HALF: Final = b"\xed\xa0\xbd"
"""Half of a surrogate pair in a form of UTF-8 that no writer of this package produces."""
CONTROLS: Final = "\x1b[31m\r\n\t\x7f\u202e<script>alert(1)</script>{{7*7}}"
LONG: Final = "x" * 300_000
NUMBERS: Final[dict[str, object]] = {
    "least": -(2**63), "greatest": 2**63 - 1, "minus one": -1, "zero": 0, "year 10000": 253_402_300_800_000,
    "year 3000": 32_503_680_000_000, "text": "nan",
}  # fmt: skip
TEXTS: Final[dict[str, object]] = {
    "empty": "", "long": LONG, "controls": CONTROLS, "nul": "a\0b", "half": HALF, "unknown": "no_such_member",
    "nan": "NaN", "blob": b"\xff\xfe",
}  # fmt: skip
JSONS: Final[dict[str, object]] = {
    "empty": "", "null": "null", "nan": "NaN", "list": "[]", "dict": "{}", "text": '"x"', "number": "1e999",
    "deep": "[" * 50_000, "bytes": b"\xff\xfe", "half": b'"\xed\xa0\xbd"', "long": json.dumps(LONG),
}  # fmt: skip
LEAVES: Final[dict[str, Callable[[Any], Any]]] = {
    "huge numbers": lambda leaf: 10**30 if type(leaf) is int else leaf,
    "far numbers": lambda leaf: 2**63 - 1 if type(leaf) is int else leaf,
    "least numbers": lambda leaf: -(2**63) if type(leaf) is int else leaf,
    "fractions": lambda leaf: 1.5 if type(leaf) is int else leaf,
    "no numbers": lambda leaf: float("nan") if type(leaf) is int else leaf,
    "nulls": lambda leaf: None,
    "lists": lambda leaf: [],
    "numbers": lambda leaf: 7,
    "halves": lambda leaf: "\ud83d" if isinstance(leaf, str) else leaf,
    "control characters": lambda leaf: CONTROLS if isinstance(leaf, str) else leaf,
    "long texts": lambda leaf: LONG if isinstance(leaf, str) else leaf,
    "other texts": lambda leaf: "no_such_member" if isinstance(leaf, str) else leaf,
}
"""Changes of each leaf of a JSON value."""
SHAPES_OF_JSON: Final[dict[str, Callable[[str], str]]] = {
    "cut": lambda text: text[: len(text) // 2],
    "without keys": lambda text: json.dumps(_without_first(json.loads(text))),
    "one more": lambda text: json.dumps(_one_more(json.loads(text))),
}


def _without_first(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_first(each) for name, each in list(value.items())[1:]}
    return [_without_first(each) for each in value] if isinstance(value, list) else value


def _one_more(value: Any) -> Any:
    if isinstance(value, dict):
        return {**{name: _one_more(each) for name, each in value.items()}, "a later field": 1}
    return [*map(_one_more, value), None] if isinstance(value, list) else value


def _leaves(value: Any, change: Callable[[Any], Any]) -> Any:
    if isinstance(value, dict):
        return {name: _leaves(each, change) for name, each in value.items()}
    return [_leaves(each, change) for each in value] if isinstance(value, list) else change(value)


def _is_json(values: Sequence[object]) -> bool:
    given = [v.decode(errors="replace") if isinstance(v, bytes) else v for v in values if v]
    return any(isinstance(v, str) and v[0] in "[{" for v in given)


class Case(NamedTuple):
    """A column of the rows of the faulty runs, and the value that it gets."""

    table: str
    column: str
    value: str

    def of(self, old: object) -> object:
        """Return the value that replaces a stored one."""
        if isinstance(old, int):
            return NUMBERS[self.value]
        if self.value in TEXTS and self.value not in JSONS:
            return TEXTS[self.value]
        if self.value in JSONS:
            new = JSONS[self.value]
            return new.encode() if isinstance(old, bytes) and isinstance(new, str) else new
        text = old.decode() if isinstance(old, bytes) else str(old)
        try:
            if self.value in SHAPES_OF_JSON:
                changed = SHAPES_OF_JSON[self.value](text)
            else:
                changed = json.dumps(_leaves(json.loads(text), LEAVES[self.value]))
        except ValueError:
            return old
        return changed.encode() if isinstance(old, bytes) else changed


_OF_BAD: Final = {
    "token": "(run LIKE 'bad-%' OR target LIKE 'bad-%')", "effect": "(run LIKE 'bad-%' OR by_run LIKE 'bad-%')",
}  # fmt: skip
KINDS_SPOILT: Final[tuple[AnyKind, ...]] = (*RUN_KINDS, TOKEN)


def _where(table: str) -> str:
    return _OF_BAD.get(table, "run LIKE 'bad-%'")


def cases(path: Path) -> list[Case]:
    """Return each column of the rows of the faulty runs with each value that it may get."""
    db, found = sqlite3.connect(path), []
    for kind in KINDS_SPOILT:
        for column in kind.columns:
            if column in ("tenant", "run"):
                continue
            rows = db.execute(f"SELECT {column} FROM {kind.name} WHERE {_where(kind.name)}").fetchall()
            values = [value for (value,) in rows if value is not None]
            if not values:
                continue
            if any(isinstance(value, int) for value in values):
                named: Iterable[str] = NUMBERS
            elif _is_json(values):
                named = (*JSONS, *LEAVES, *SHAPES_OF_JSON)
            else:
                named = TEXTS
            found += [Case(kind.name, column, value) for value in named]
    db.close()
    return found


def execute(path: Path, statement: str) -> None:
    """Change the store as another program does."""
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    db.execute(statement)
    db.close()


@contextmanager
def spoilt(path: Path, case: Case) -> Iterator[int]:
    """Store a case in the rows of the faulty runs, and put the old values back afterwards. Yield how many changed."""
    db = sqlite3.connect(path, isolation_level=None, timeout=30)
    db.text_factory = bytes
    table, column = case.table, case.column
    typed = f"typeof({column})"
    rows = db.execute(f"SELECT rowid, {column}, {typed} FROM {table} WHERE {_where(table)}").fetchall()
    kind = next(kind for kind in KINDS_SPOILT if kind.name == table)
    if column in kind.columns[: kind.key]:
        rows = rows[-1:]  # one, because keys differ
    old = {row: (value.decode() if of == b"text" else value) for row, value, of in rows if value is not None}
    put = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"
    put_text = f"UPDATE {table} SET {column} = CAST(? AS TEXT) WHERE rowid = ?"
    try:
        for row, value in old.items():
            new = case.of(value)
            as_text = isinstance(new, bytes) and isinstance(value, str) and case.value != "blob"
            db.execute(put_text if as_text else put, (new, row))
        yield len(old)
    finally:
        for row, value in old.items():  # a worker may have written the row with this key again
            db.execute(put.replace("UPDATE", "UPDATE OR IGNORE", 1), (value, row))
        db.close()
