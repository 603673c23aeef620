"""The search for duplicates finds a copy with other names, and no functions that are alike because they are short."""

import ast

from tests import duplicates

FIRST = '''
async def on_store(ctx, address, fn):
    """Open the store of a command."""
    bound = await open_store(address, writer=ctx.writer)
    try:
        for attempt in range(ATTEMPTS):
            if await bound.ready(attempt):
                return await fn(bound, limit=attempt + 1)
    finally:
        await bound.close()
'''
COPY = '''
async def on_client(ctx, url, call):
    """Another text."""
    client: Client = await open_store(url, writer=ctx.writer)
    try:
        for n in range(ATTEMPTS):
            if await client.ready(n):
                return await call(client, limit=n + 1)
    finally:
        await client.close()
'''
OTHER = """
async def rows(store, tenant):
    found = []
    async for page in store.pages(tenant, limit=100):
        for row in page.rows:
            if row.status in OPEN and not row.owner:
                found.append(row._replace(owner=tenant))
    return found
"""
SHORT = "def a(rows):\n    return [row.key for row in rows]\ndef b(rows):\n    return [row.key for row in rows]\n"


def shapes_of(text: str) -> list[duplicates.Shape]:
    """Return the shapes of the functions of a text."""
    return [*duplicates.shapes("a.py", ast.parse(text))]


def test_a_copy_with_other_names_is_found() -> None:
    (pair,) = duplicates.pairs(shapes_of(FIRST + COPY + OTHER))
    assert (pair.one, pair.other) == ("a.py:2 on_store", "a.py:12 on_client")
    assert duplicates.pairs(shapes_of(FIRST + OTHER)) == []


def test_short_functions_and_inner_ones_are_not_compared() -> None:
    assert shapes_of(SHORT) == []
    inner = FIRST.replace("\n", "\n    ")
    assert [each.place for each in shapes_of(f"def outer():\n    x = 1\n{inner}\n")] == ["a.py:1 outer"]


def test_a_signature_of_two_modules_is_found() -> None:
    one = ast.parse("def runs(self, status: str, *, a: int, b: int, c: int, d: int) -> None: ...\n")
    other = ast.parse("def found(status: str, *, a: int, b: int, c: int, d: int) -> str: ...\n")
    differs = ast.parse("def found(status: str, *, a: int, b: int, c: int, d: str) -> str: ...\n")
    short = ast.parse("def found(status: str, *, a: int, b: int) -> str: ...\n")
    assert duplicates.repeated_signatures({"a.py": one, "b.py": other}) == ["b.py:1 found"]
    assert duplicates.repeated_signatures({"a.py": one, "b.py": differs}) == []
    assert duplicates.repeated_signatures({"a.py": short, "b.py": short}) == []
    checked = ast.parse("@override\ndef runs(self, status: str, *, a: int, b: int, c: int, d: int) -> None: ...\n")
    assert duplicates.repeated_signatures({"a.py": one, "b.py": checked}) == []
