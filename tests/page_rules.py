"""The rules about pages of rows: `pages` reads one after another, and a page is filtered only in such a loop.

A filter after a limit hides rows: the first page of a list may have none that fits although a later one has. What
filters belongs into the query, or into a loop that follows the cursor, as `TenantRows._kept` does.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import outlast
from tests.tidy_rules import Finding, Function, Source

PACKAGE = Path(outlast.__file__).parent
SIZES = frozenset({"limit", "cursor"})
"""Keywords of a call that reads one page."""


def _queries_with_a_limit() -> Iterator[str]:
    for name in PACKAGE.rglob("store/*.py"):
        for node in ast.walk(ast.parse(name.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and any("Query[" in ast.unparse(base) for base in node.bases):
                names = {getattr(each.target, "id", "") for each in node.body if isinstance(each, ast.AnnAssign)}
                if "limit" in names:
                    yield node.name


QUERIES = frozenset(_queries_with_a_limit())
"""Queries of the store with a limit, which may be given by position."""
LOOPS = (ast.While, ast.For, ast.AsyncFor)

# Functions that filter one page on purpose: (path, name) and why no row is hidden.
WHOLE: dict[tuple[str, str], str] = {
    ("outlast/engine/admission.py", "_first"): "it reads ten times as many until one fits or none is left",
    ("outlast/outbox/dispatcher.py", "_round"): "it passes over its own streams, of which a page is a multiple",
    ("outlast/outbox/unpublished.py", "backfill"): "it reads on after the last run of the page",
    ("outlast/insight/tenant_rows.py", "ledger"): "rows come by the instant that is filtered, so that none follows",
    ("outlast/insight/tenant_rows.py", "_own_facts"): "it leaves out events that are newer than the row of the run",
    ("outlast/runtime/graph_threads.py", "threads"): "it leaves out threads that are being deleted",
    ("outlast/runtime/webhooks.py", "_detail"): "it says that there are more, from the page before the filter",
    ("outlast/store/dynamodb/plans.py", "_of_lanes"): "it leaves out counts that are 0, not rows",
    ("outlast/ui/routes/run_list.py", "list_runs"): "it looks for the first row of a page, and says if it is not there",
}


def filtered_pages(source: Source) -> Iterator[Finding]:
    """Filter no page of rows outside a loop that reads the next one."""
    for function in source.functions:
        if (source.path, function.name) in WHOLE:
            continue
        pages = _pages(function)
        for node in ast.walk(function):
            if _filters(node, pages):
                text = "filters a page: rows on later ones are hidden; filter in the query, or follow the cursor"
                yield source.found(getattr(node, "lineno", function.lineno), f"{function.name} {text}")


def cursor_loops(source: Source) -> Iterator[Finding]:
    """Read pages with `pages`. A loop by hand carries the cursor itself, and may forget it or the end."""
    for loop in source.nodes:
        if not isinstance(loop, ast.While):
            continue
        inside = list(ast.walk(loop))
        changed = {each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)}
        for each in inside:
            carries = isinstance(each, ast.keyword) and each.arg == "cursor" and bool(_names(each.value) & changed)
            if carries or (isinstance(each, ast.Attribute) and each.attr == "next_cursor"):
                text = "carries a cursor through a loop: write `async for page in pages(…)`"
                yield source.found(getattr(each, "lineno", loop.lineno), text)


def _pages(function: Function) -> set[str]:
    """Return the names of what a function reads as one page, but for pages that a loop reads one after another."""
    inside = {id(node) for loop in ast.walk(function) if isinstance(loop, LOOPS) for node in ast.walk(loop)}
    assigned = [node for node in ast.walk(function) if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr)]
    found: set[str] = set()
    for node in sorted(assigned, key=lambda each: each.lineno):
        if id(node) in inside or node.value is None:
            continue
        if _reads_page(node.value) or (_names(node.value) & found and isinstance(node.value, ast.Attribute | ast.Name)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {name for target in targets for name in _names(target)}
    return found


def _reads_page(value: ast.AST) -> bool:
    """Return True if an expression calls something with a limit or a cursor."""
    if isinstance(value, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp):
        return False
    for node in ast.walk(value):
        if not isinstance(node, ast.Call):
            continue
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in QUERIES or SIZES & {each.arg for each in node.keywords}:
            return True
    return False


def _names(node: ast.AST) -> set[str]:
    return {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}


def _filters(node: ast.AST, pages: set[str]) -> bool:
    """Return True if a node passes over rows of one of these pages, or of one that it reads itself."""
    if isinstance(node, ast.comprehension):
        return bool(node.ifs) and (bool(_names(node.iter) & pages) or _reads_page(node.iter))
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "filter":
        return any(_names(each) & pages or _reads_page(each) for each in node.args)
    if isinstance(node, ast.For) and (_names(node.iter) & pages or _reads_page(node.iter)):
        return any(isinstance(each, ast.Continue) or _keeps_some(each) for each in node.body for each in ast.walk(each))
    return False


def _keeps_some(node: ast.AST) -> bool:
    """Return True for an `if` without `else` that appends."""
    if not isinstance(node, ast.If) or node.orelse:
        return False
    calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
    return any(isinstance(each, ast.Attribute) and each.attr in ("append", "add") for each in calls)


RULES = (filtered_pages, cursor_loops)
