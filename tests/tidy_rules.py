"""The rules of `test_tidy`: functions from a parsed file to its violations.

Exceptions are listed in the tables at the top, each with its reason, and nowhere else.
"""

import ast
import io
import re
import tokenize
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from types import ModuleType

from outlast.flow.source import syntax_tree

FUNCTION_LINES_MAX = 70
FUNCTION_DEPTH_MAX = 4

# The ratchet: functions above the limit, with their size. An entry may only shrink.
RATCHET: dict[str, int] = {}

# The sources of time, ids and randomness. All other modules get them as arguments.
ALLOWED_TIME = {
    "outlast/store/sqlite/transactions.py",  # statements of authors hold the write lock for real time
    "outlast/core/clock_port.py",
    "outlast/clocks.py",
    "outlast/store/dynamodb/connection.py",  # a signature has the machine's time, whatever the store's clock is
}

# Statuses that are also ordinary words in a file: (path, word).
ORDINARY_WORDS: dict[tuple[str, str], str] = {
    ("outlast/core/verbs.py", "completed"): "a published field of the checkpoint event: the node that is done",
    ("outlast/engine/node_context.py", "approved"): "in the type of a decision, as the author compares it",
    ("outlast/engine/node_context.py", "raise"): "what do_all does with a refusal, not what is done to a budget",
    ("outlast/engine/node_context.py", "rejected"): "in the type of a decision, as the author compares it",
    ("outlast/engine/run_end.py", "not_started"): "the code of an undo whose run could not be started",
    ("outlast/flow/races.py", "extend"): "the method of a list",
    ("outlast/outbox/delivery_client.py", "accept"): "the name of an HTTP header",
    ("outlast/flow/context.py", "raise"): "what do_all does with a refusal, not what is done to a budget",
    ("outlast/flow/approval_rule.py", "approved"): "in the type of a decision, as the author compares it",
    ("outlast/flow/approval_rule.py", "rejected"): "in the type of a decision, as the author compares it",
    ("outlast/service/routes/history_routes.py", "completed"): "a published field of the checkpoint event",
    (
        "outlast/testing/run_snapshot.py",
        "completed",
    ): "a published field of the checkpoint event: the node that is done",
}

# Modules that are started from outside the package and therefore not imported.
ENTRY_POINTS = {
    "outlast": "the front door",
    "outlast.__main__": "python -m outlast",
    "outlast.cli": "the console script",
    "outlast.http": "for authors' activities",
}
# Modules for the tests of authors, which the package itself does not import.
AUTHORS_PACKAGE = "outlast.testing"

# Files that may import inside a function.
LATE_IMPORTS = {
    "outlast/__init__.py": "the front door opens a store only when asked, so importing it loads no driver",
    "outlast/agent/prices.py": "the list is a package of pydantic-ai, so only a model without its own price loads it",
    "outlast/agent/provided.py": "pydantic-ai is an extra, so only a model by name loads it",
    "outlast/client/__init__.py": "a client of a store loads no HTTP, a client of a service no store",
    "outlast/pydantic_ai/mcp_servers.py": "the client of MCP servers is an extra of pydantic-ai",
    "outlast/runtime/operations.py": "a handle that only reads loads neither a worker nor a driver",
    "outlast/runtime/stores.py": "opening one kind of store loads no driver of another",
    "outlast/runtime/webhooks.py": "what deliveries are signed with is an extra, so only sending loads it",
    "outlast/store/sqlite/store.py": "few programs have rows of their authors in the store's file",
    "outlast/testing/__init__.py": "pytest loads the plugin in every session, so naming one tool loads no other",
    "outlast/testing/plugin.py": "as above: a session that crashes nothing loads nothing",
}
# Packages whose names are loaded at their first use, from a constant table in the same file.
LAZY_EXPORTS = {
    "outlast/__init__.py": "importing the front door takes 10 ms",
    "outlast/cli/command_session.py": "a command over a service loads neither the engine nor a store",
    "outlast/client/__init__.py": "as in LATE_IMPORTS",
    "outlast/runtime/__init__.py": "commands that only read need no worker",
}
LATE_IMPORT_PACKAGE = "outlast/cli/"  # commands are loaded when called, so that --help is fast

CLOCKS_AND_DICE = {
    "datetime.date.today", "datetime.datetime.now", "datetime.datetime.today", "datetime.datetime.utcnow",
    "os.urandom", "time.monotonic", "time.monotonic_ns", "time.perf_counter", "time.perf_counter_ns", "time.time",
    "time.time_ns", "uuid.uuid1", "uuid.uuid4", "uuid.uuid6", "uuid.uuid7",
}  # fmt: skip
DICE_MODULES = {"random", "secrets"}
CODE_FROM_DATA = {"__import__", "eval", "exec", "yaml.full_load", "yaml.load", "yaml.unsafe_load"}
CODE_FROM_DATA_MODULES = {"cloudpickle", "dill", "jsonpickle", "marshal", "pickle", "shelve"}

SQL_ANYWHERE = re.compile(
    r"\b(SELECT\s.+\sFROM|INSERT\s+(OR\s+\w+\s+)?INTO|UPDATE\s+[\w{}]+\s+SET|DELETE\s+FROM)\b|\bBEGIN IMMEDIATE\b",
    re.DOTALL,
)
SQL_PACKAGE = "outlast/store/"
SQL_LITERAL = re.compile(r"'(\w+)'")  # also inside an f-string
SQL_AT_THE_START = re.compile(
    r"\s*(select\s.+\sfrom|insert\s+(or\s+\w+\s+)?into|update\s+\w+\s+set|delete\s+from"
    r"|(create|drop|alter)\s+(table|index|trigger|view)|pragma\s+\w+)\b",
    re.DOTALL | re.IGNORECASE,
)

# The parts of a run's session: each changes its own fields alone.
SESSION_PARTS = {"CommitChain", "HeldRun", "HolderClock", "LateRecords", "RunSession"}
SESSION_PACKAGE = "outlast/engine/"
CHANGES = {
    "add", "append", "clear", "discard", "extend", "insert", "pop", "popitem", "remove", "setdefault", "update",
}  # fmt: skip

BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Finding:
    """A violation of a rule at one place, with a text for the reader."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


@dataclass(frozen=True)
class Source:
    """One Python file: its text, and its path relative to `src` or the checkout."""

    path: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """The syntax tree of the file."""
        return syntax_tree(self.text)

    @cached_property
    def nodes(self) -> list[ast.AST]:
        """Every node of the file, parents before children."""
        return list(ast.walk(self.tree))

    @cached_property
    def module(self) -> str:
        """The dotted name of the module."""
        return self.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")

    @cached_property
    def comments(self) -> dict[int, str]:
        """Line number to comment, without its mark."""
        tokens = tokenize.generate_tokens(io.StringIO(self.text).readline)
        return {token.start[0]: token.string.lstrip("# ") for token in tokens if token.type == tokenize.COMMENT}

    @cached_property
    def docstrings(self) -> set[int]:
        """Ids of the string nodes that are docstrings or separate statements."""
        return {id(node.value) for node in self.nodes if isinstance(node, ast.Expr)}

    @cached_property
    def strings(self) -> list[ast.Constant]:
        """Every string that is not a docstring."""
        return [
            node
            for node in self.nodes
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in self.docstrings
        ]

    @cached_property
    def functions(self) -> list[Function]:
        """Every function and method at any depth."""
        return [node for node in self.nodes if isinstance(node, Function)]

    @cached_property
    def aliases(self) -> dict[str, str]:
        """Imported name to full name: `{"now": "time.time"}` after `from time import time as now`."""
        found: dict[str, str] = {}
        for node in self.nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    found[alias.asname or alias.name.partition(".")[0]] = (
                        alias.name if alias.asname else alias.name.partition(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    found[alias.asname or alias.name] = f"{self.imported_from(node)}.{alias.name}"
        return found

    def imported_from(self, node: ast.ImportFrom) -> str:
        """Return the absolute name of the module after `from`, relative imports included."""
        if not node.level:
            return node.module or ""
        package = self.module.split(".")
        if self.path.endswith("/__init__.py"):
            package.append("")
        return ".".join([*package[: -node.level], *([node.module] if node.module else [])])

    def dotted(self, node: ast.AST) -> str:
        """Return the full name that an expression refers to; empty if it is not a plain name."""
        if isinstance(node, ast.Name):
            return self.aliases.get(node.id, node.id)
        if isinstance(node, ast.Attribute) and (left := self.dotted(node.value)):
            return f"{left}.{node.attr}"
        return ""

    def imports(self) -> Iterator[tuple[ast.Import | ast.ImportFrom, str]]:
        """Return each import statement with every full name it can mean: `a` and `a.b` for `from a import b`."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((node, alias.name) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                module = self.imported_from(node)
                yield node, module
                yield from ((node, f"{module}.{alias.name}") for alias in node.names)

    def found(self, node: ast.AST | int, text: str) -> Finding:
        """Return a finding at this node or line."""
        return Finding(self.path, node if isinstance(node, int) else getattr(node, "lineno", 1), text)


Rule = Callable[[Source], Iterator[Finding]]


def depth_of(node: ast.AST, depth: int = 0) -> int:
    """Return the depth of nested blocks. A nested function starts at zero, and `elif` is as deep as its `if`."""
    deepest = depth
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or isinstance(child, Function | ast.ClassDef | ast.Lambda):
                continue
            is_elif = field == "orelse" and isinstance(node, ast.If) and isinstance(child, ast.If) and len(value) == 1
            deeper = isinstance(child, BLOCKS) and not is_elif
            deepest = max(deepest, depth_of(child, depth + deeper))
    return deepest


Measured = tuple[str, int, int, int, str]


def sizes(source: Source) -> Iterator[Measured]:
    """Yield the measured sizes: name, line, size, limit, unit."""
    for function in source.functions:
        name = f"{source.path}::{function.name}"
        lines = (function.end_lineno or function.lineno) - function.lineno + 1
        yield name, function.lineno, lines, FUNCTION_LINES_MAX, "lines"
        yield f"{name} depth", function.lineno, depth_of(function), FUNCTION_DEPTH_MAX, "levels"


def size(source: Source) -> Iterator[Finding]:
    """Limit a function to 70 lines, and blocks to a depth of 4."""
    yield from too_large(source, sizes(source))


def too_large(source: Source, measures: Iterable[Measured]) -> Iterator[Finding]:
    """Return the sizes above their limits."""
    for name, line, measured, law, unit in measures:
        if measured > RATCHET.get(name, law):
            yield source.found(line, f"{name} has {measured} {unit}, the law is {law}: split it")


def status_words(machine: ModuleType, verbs: Collection[str]) -> set[str]:
    """Return the values of the machine's enums, except choices that are also names of verbs."""
    enums = [one for one in vars(machine).values() if isinstance(one, type) and issubclass(one, StrEnum)]
    return {member.value for enum in enums for member in enum} - set(verbs)


def status_literals(words: Collection[str], in_sql: Collection[str] = ()) -> Rule:
    """Return the rule: code outside the machine names a status by its enum member, also in SQL.

    `in_sql` are further words of the machine that are forbidden in SQL only.
    """

    def status_literal(source: Source) -> Iterator[Finding]:
        if source.path == "outlast/core/machine.py":
            return
        has_sql = source.path.startswith(SQL_PACKAGE)
        for node in source.strings:
            if node.value in words and (source.path, node.value) not in ORDINARY_WORDS:
                yield source.found(node, f"{node.value!r} is a word of core/machine.py: use its member")
            for word in SQL_LITERAL.findall(str(node.value)) if has_sql else ():
                if word in words or word in in_sql:
                    yield source.found(node, f"'{word}' in SQL is a word of core/machine.py: insert its member")

    return status_literal


def clocks_and_dice(source: Source) -> Iterator[Finding]:
    """Pass time, ids and randomness as arguments, except in the modules that provide them."""
    if source.path in ALLOWED_TIME:
        return
    for node, name in source.imports():
        if name in DICE_MODULES or name in CLOCKS_AND_DICE:
            yield source.found(node, f"imports {name}: let time, ids and randomness arrive as arguments")
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and source.dotted(node) in CLOCKS_AND_DICE:
            yield source.found(node, f"uses {source.dotted(node)}: let time, ids and randomness arrive as arguments")


def sql_outside_the_store(source: Source) -> Iterator[Finding]:
    """Write SQL in the store only."""
    if source.path.startswith("outlast/store/"):
        return
    for node in source.strings:
        if SQL_ANYWHERE.search(node.value) or SQL_AT_THE_START.match(node.value):
            yield source.found(node, "SQL outside the store: ask the store's port instead")


def broad_excepts(source: Source) -> Iterator[Finding]:
    """Give the reason for `except Exception` in a comment on the same line."""
    for node in source.nodes:
        if not isinstance(node, ast.ExceptHandler):
            continue
        caught = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
        if not any(one is None or source.dotted(one) in {"Exception", "BaseException"} for one in caught):
            continue
        said = re.sub(r"(noqa|type: ignore|pragma)\S*(\s*[A-Z]+\d+,?)*", "", source.comments.get(node.lineno, ""))
        if len(said.split()) < 3:
            yield source.found(node, "catches everything without a comment on this line that says why")


def ignores_without_code(source: Source) -> Iterator[Finding]:
    """Name the error code in every `type: ignore`."""
    for line, comment in source.comments.items():
        if re.search(r"(type|pyright):\s*ignore(?!\[\w)", comment) or re.search(r"noqa(?!:\s*[A-Z]+\d)", comment):
            yield source.found(line, f"«{comment}» without a code: name what is ignored")


def missing_docstrings(source: Source) -> Iterator[Finding]:
    """A file says what it is for, a public function or class what it promises."""
    if source.tree.body and not ast.get_docstring(source.tree):
        yield source.found(1, "no docstring says what this file is for")
    for node in source.tree.body:
        if not isinstance(node, Function | ast.ClassDef) or node.name.startswith("_") or ast.get_docstring(node):
            continue
        if not any(source.dotted(one) == "typing.overload" for one in node.decorator_list):
            yield source.found(node, f"{node.name} is public and has no docstring")


def late_imports(source: Source) -> Iterator[Finding]:
    """Import at the top of the file, so that the import graph is complete."""
    if source.path in LATE_IMPORTS or source.path.startswith(LATE_IMPORT_PACKAGE):
        return
    for function in source.functions:
        for node in ast.walk(function):
            if isinstance(node, ast.Import | ast.ImportFrom):
                yield source.found(node, f"imports inside {function.name}: move it to the top")


def package_of(module: str) -> str:
    """Return the subpackage that a module belongs to."""
    return module.split(".")[1] if "." in module else ""


def imports_for_types_only(source: Source) -> Iterator[Finding]:
    """Put a type that two packages need into core, not behind TYPE_CHECKING. The package itself may re-export names."""
    if not package_of(source.module) or source.path in LAZY_EXPORTS:
        return
    for block in source.nodes:
        if not (isinstance(block, ast.If) and source.dotted(block.test) in {"typing.TYPE_CHECKING", "TYPE_CHECKING"}):
            continue
        inside = {id(node) for statement in block.body for node in ast.walk(statement)}
        lines = {
            node.lineno
            for node, name in source.imports()
            if id(node) in inside and name.startswith("outlast.") and package_of(name) != package_of(source.module)
        }
        for line in sorted(lines):
            yield source.found(line, "imports another package for its types only: the type belongs in core")


def import_circles(sources: Collection[Source]) -> Iterator[Finding]:
    """Break circles of imports, inside a package and across: also those behind TYPE_CHECKING or inside a function.

    Two modules in a circle are one subject, or share a type that belongs below both: in a separate module or in a
    Protocol of a few methods.
    """
    known = {source.module: source for source in sources if source.path not in LAZY_EXPORTS}
    imported: dict[str, set[str]] = {}
    for source in known.values():
        names = {name for _, name in source.imports() if name in known and name != source.module}
        imported[source.module] = {name for name in names if not source.module.startswith(f"{name}.")}
    reached = {module: _reached(module, imported) for module in imported}
    for module, names in sorted(reached.items()):
        if module in names:
            others = sorted(name for name in names if name != module and module in reached[name])
            yield known[module].found(1, f"is in a circle of imports with {', '.join(others)}")


def _reached(module: str, imported: Mapping[str, Collection[str]]) -> set[str]:
    found: set[str] = set()
    ahead = [*imported[module]]
    while ahead:
        if (name := ahead.pop()) not in found:
            found.add(name)
            ahead += imported[name]
    return found


def reads_past_operations(source: Source) -> Iterator[Finding]:
    """Read through the methods of Operations. Its `rows` are a member for itself and for `runtime`."""
    if package_of(source.module) in ("insight", "runtime"):
        return
    for node in source.nodes:
        if isinstance(node, ast.Attribute) and node.attr == "rows":
            of = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if of.strip("_") in ("ops", "operations", "client"):
                yield source.found(node, f"reads past Operations: {of}.rows is for `runtime` alone")


def code_from_data(source: Source) -> Iterator[Finding]:
    """Never turn data into code: no pickle, eval, exec, yaml.load, and no import of a module named by data."""
    for node, name in source.imports():
        if name.partition(".")[0] in CODE_FROM_DATA_MODULES:
            yield source.found(node, f"imports {name}: stored data is JSON")
    for node in source.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = source.dotted(node.func)
        late = source.path.startswith(("outlast/cli/", "outlast/testing/")) or source.path in LAZY_EXPORTS
        importing = name == "importlib.import_module" and not late
        constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
        if name in CODE_FROM_DATA or (importing and not constant):
            yield source.found(node, f"calls {name}: data must not become code")


def unimported_modules(sources: Collection[Source]) -> Iterator[Finding]:
    """Remove modules that are never imported, named as a lazy command, or started."""
    used = set(ENTRY_POINTS)
    for source in sources:
        used.update(name for _, name in source.imports() if name != source.module)
        used.update(node.value.partition(":")[0] for node in source.strings if node.value.startswith("outlast."))
    for name in list(used):
        parts = name.split(".")
        used.update(".".join(parts[:end]) for end in range(1, len(parts)))
    for source in sources:
        authors = source.module == AUTHORS_PACKAGE or source.module.startswith(f"{AUTHORS_PACKAGE}.")
        if source.module not in used and not authors:
            yield source.found(1, f"{source.module} is never imported")


NAMES_USED_TWICE = frozenset({"core", "models", "runtime"})
"""Packages of which one may have a module that is named like one of the others: users import both by their path."""


def equal_module_names(sources: Collection[Source]) -> Iterator[Finding]:
    """Name a module by what its package does with its subject; only stores have equal names for equal parts."""
    named: dict[str, list[Source]] = {}
    for source in sources:
        *folders, name = source.path.removesuffix(".py").split("/")
        if name != "__init__" and folders[:2] != ["outlast", "store"]:
            named.setdefault(name, []).append(source)
    for name, twins in named.items():
        packages = {twin.path.split("/")[1] for twin in twins}
        if len(twins) > len(packages & NAMES_USED_TWICE) and len(twins) > 1:
            yield from (twin.found(1, f"{len(twins)} modules are named {name}") for twin in twins)


MACHINE_PATH = re.compile(r"(?<![\w.~-])/(?:work|root|opt/wheels|home/\w+|Users/\w+)(?=/|\b)")
REGISTRY_HOST = re.compile(
    r"\b(?:pypi\.(?:org|python)|files\.python[h]osted|registry\.npm[j]s|test\.py[p]i)|--(?:extra-)?index-ur[l]\b"
)
DOCUMENT = re.compile(r"(?<![\w/.-])([A-Z][A-Z_-]+\.md)\b")


def foreign_text(path: str, text: str, documents: Collection[str]) -> Iterator[Finding]:
    """Name no local path, no registry host, and no document outside the repository."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := MACHINE_PATH.search(line):
            yield Finding(path, number, f"{match[0]} is a path of one machine")
        if match := REGISTRY_HOST.search(line):
            yield Finding(path, number, f"{match[0]} names a package registry")
        for match in DOCUMENT.finditer(line):
            if match[1] not in documents:
                yield Finding(path, number, f"{match[1]} is not a document of this project")


PASSING_STATUSES = {"queued", "running", "waiting"}


def statuses_read_once(source: Source) -> Iterator[Finding]:
    """Wait for a status that a worker changes by itself: a run that was just started is queued, then running.

    A comment on the line says why the status is certain.
    """
    if "status" not in source.text:
        return  # without a syntax tree of the file, which is most of the time of these rules
    asserted = [node for each in source.nodes if isinstance(each, ast.Assert) for node in ast.walk(each.test)]
    for node in asserted:
        if not (isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq)):
            continue
        sides = [node.left, *node.comparators]
        words = {side.value for side in sides if isinstance(side, ast.Constant)}
        read = words & PASSING_STATUSES and any(_is_read_of(side, "status") for side in sides)
        if read and len(source.comments.get(node.lineno, "").split()) < 3:
            yield source.found(node, "reads a status once, and a worker may still change it: wait until it holds")


def _is_read_of(node: ast.AST, field: str) -> bool:
    """Return True for `x.get(…).json()["field"]`: a field of the answer to one request."""
    if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant) and node.slice.value == field):
        return False
    called = node.value
    if not (isinstance(called, ast.Call) and isinstance(called.func, ast.Attribute) and called.func.attr == "json"):
        return False
    asked = called.func.value
    return isinstance(asked, ast.Call) and isinstance(asked.func, ast.Attribute) and asked.func.attr == "get"


def waits_for_anything(source: Source) -> Iterator[Finding]:
    """Name the kind of wait. A run that no worker has taken waits for a worker, so "it waits" is true at once."""
    for node in source.nodes if "waiting_for" in source.text else ():
        match node:
            case ast.Lambda(body=test) | ast.While(test=test) | ast.Assert(test=test):
                tests = [test]
            case ast.comprehension(ifs=tests):
                pass
            case _:
                continue
        for test in tests:
            for each in test.values if isinstance(test, ast.BoolOp) else [test]:
                if isinstance(each, ast.Subscript) and ast.unparse(each.slice) == "'waiting_for'":
                    yield source.found(each, "is true for a run that was just started: name the kind of its wait")


def sleeps_without_a_reason(source: Source) -> Iterator[Finding]:
    """Wait for a condition. A sleep of a test that is no step of a polling loop says on its line why it is right."""
    if "sleep" not in source.text:
        return
    looped = {
        id(node)
        for loop in source.nodes
        if isinstance(loop, ast.While | ast.For | ast.AsyncFor)
        for node in ast.walk(loop)
    }
    for node in source.nodes:
        if not (isinstance(node, ast.Call) and source.dotted(node.func) == "time.sleep") or id(node) in looped:
            continue
        said = re.sub(r"noqa:\s*[A-Z]+\d+(,\s*[A-Z]+\d+)*", "", source.comments.get(node.lineno, ""))
        if len(said.split()) < 3:
            yield source.found(node, "sleeps without a comment on this line that says why no condition is awaited")


def slots_of(sources: Collection[Source], names: Collection[str]) -> set[str]:
    """Return the fields of the classes of these names, as their `__slots__` list them."""
    found: dict[str, set[str]] = {}
    for source in sources:
        for node in source.tree.body:
            for statement in node.body if isinstance(node, ast.ClassDef) and node.name in names else ():
                if isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__slots__":
                    found[getattr(node, "name", "")] = {str(name) for name in ast.literal_eval(statement.value)}
    assert found.keys() == set(names), f"no slots of {set(names) - found.keys()}"
    return set().union(*found.values())


def foreign_fields(fields: Collection[str]) -> Rule:
    """Return the rule: only an object itself changes these fields, because other modules decide from them.

    It finds assignments and deletions, also of items, and calls of methods that change a collection. A local name for
    such a collection escapes it.
    """

    def foreign_field(source: Source) -> Iterator[Finding]:
        for node in source.nodes:
            if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
                field = _foreign(node, fields)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES:
                field = _foreign(node.func.value, fields)
            elif isinstance(node, ast.Call) and source.dotted(node.func) == "setattr":
                name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
                field = str(name) if name in fields and ast.unparse(node.args[0]) != "self" else ""
            else:
                continue
            if field:
                yield source.found(node, f"changes `{field}` of another object: call a method of its class")

    return foreign_field


def _foreign(node: ast.expr, fields: Collection[str]) -> str:
    """Return the field that `node` is, or is an item of, if it belongs to another object than `self`."""
    while isinstance(node, ast.Subscript):
        node = node.value
    if not isinstance(node, ast.Attribute) or node.attr not in fields:
        return ""
    return "" if isinstance(node.value, ast.Name) and node.value.id == "self" else node.attr


def loosened(measured: dict[str, int]) -> Iterator[str]:
    """Return ratchet entries that could be tighter."""
    for name, allowed in RATCHET.items():
        if measured.get(name, 0) < allowed:
            yield f"{name} is {measured.get(name, 0)} now: lower its entry in RATCHET from {allowed}, or remove it"


FILE_RULES: tuple[Rule, ...] = (
    clocks_and_dice, sql_outside_the_store, broad_excepts, ignores_without_code, missing_docstrings, late_imports,
    imports_for_types_only, reads_past_operations, code_from_data,
)  # fmt: skip
TEST_RULES: tuple[Rule, ...] = (statuses_read_once, waits_for_anything, sleeps_without_a_reason)
