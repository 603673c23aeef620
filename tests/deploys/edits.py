"""The corpus: edits that people make, and which of the runs in flight each would strand."""

from tests.deploys.code import Edit, swap

# Positions of the runs: queued · plan (reserve done, waits for a signal) · busy (reserve intended, between attempts)
# · lost (reserve uncertain, in the hands of people) · review (waits for an approval) · settle (paid, sleeps)
ALL = frozenset({"queued", "plan", "busy", "lost", "review", "settle"})
WALKED = ALL - {"queued"}
IN_PLAN = frozenset({"plan", "busy", "lost"})
RESERVED = frozenset({"plan", "review", "settle"})

SETTLE = "@orders.node\nasync def settle(ctx: Context[Order]) -> None:\n    ctx.state.receipt ="
HELLO = """@orders.node(start=True)
async def hello(ctx: Context[Order]) -> Literal["draft"]:
    return "draft"


@orders.node
async def draft"""
MORE = """

@orders.node
async def notify(ctx: Context[Order]) -> None:
    return None
"""
AUDIT = """

@orders.node
async def audit(ctx: Context[Order]) -> Literal["review"]:
    return "review"
"""
MIGRATION = """

@orders.migrate(from_=1)
def with_currency(old: dict) -> dict:
    return {**old, "currency": "EUR"}
"""
V2 = ("version=1)", "version=2)")
CURRENCY = ("    cents: int = 4200\n", "    cents: int = 4200\n    currency: str\n")

BREAKING = (
    Edit("rename a node", swap(("async def review(", "async def check("), ('"review"', '"check"')),
         frozenset({"review"}), "node"),
    Edit("delete a node", swap((SETTLE, SETTLE.replace("settle", "finish")), ('"settle"', '"finish"')),
         frozenset({"settle"}), "node"),
    Edit("drop a state field", swap(("    notes: list[str] = []\n", ""),
                                    ('ctx.state.notes.append("drafted")', "ctx.state.receipt = ''")), WALKED, "state"),
    Edit("narrow a field's type", swap(("cents: int = 4200", "cents: int = Field(default=1, le=1000)")), ALL, "state"),
    Edit("add a required field", swap(CURRENCY), ALL, "state"),
    Edit("change an edge", lambda text: swap(('-> Literal["review"]:', '-> Literal["audit"]:'))(text) + AUDIT,
         IN_PLAN, "edge"),
    Edit("change a key template", swap(('key="reserve/{order_id}"', 'key="reserve/{order_id}/{cents}"')),
         IN_PLAN, "key"),
    Edit("widen a key's scope", swap(('@activity(key="reserve/{order_id}")',
                                      '@activity(key="reserve/{order_id}", once_per="run")')), frozenset(), ""),
    Edit("rename an activity", swap(("async def reserve(", "async def book("), ("@reserve.undo", "@book.undo"),
                                    ("ctx.do(reserve,", "ctx.do(book,")), WALKED, ""),
    Edit("another answer", swap(("cents: int) -> str:\n    if", "cents: int) -> int:\n    if"),
                                ('return f"R-{order_id}"', "return 7"), ("free(done: str", "free(done: int")),
         frozenset({"plan"}), "answer"),
    Edit("change the approval's arguments", swap(("async def pay(order_id: str, cents: int)",
                                                  "async def pay(order_id: str, cents: int, currency: str)"),
                                                 ("ctx.state.cents)", 'ctx.state.cents, "EUR")'),
                                                 ("ctx.do(reserve, ctx.state.order_id, ctx.state.cents, \"EUR\")",
                                                  "ctx.do(reserve, ctx.state.order_id, ctx.state.cents)")),
         frozenset({"review", "settle"}), ""),
    Edit("change an approval's key", swap(('key="pay/{order_id}"', 'key="pay/{order_id}/{cents}"')),
         frozenset({"review", "settle"}), ""),
    Edit("remove an undo", swap(('key="reserve/{order_id}")', 'key="reserve/{order_id}", no_undo="too late")'),
                                ("@reserve.undo\n", "")), RESERVED, "undo"),
    Edit("wait for nothing any more", swap(("    await ctx.receive(\"go\", Go)\n", "")), frozenset({"plan"}), "wait"),
    Edit("raise the version without a migration", swap(V2), ALL, "version"),
    Edit("a migration that raises", lambda text: swap(V2, CURRENCY)(text) + MIGRATION.replace(
        'return {**old, "currency": "EUR"}', 'return {"currency": old["nothing"]}'), ALL, "version"),
)  # fmt: skip
SAFE = (
    Edit("change nothing", lambda text: text),
    Edit("insert a node before", swap(("@orders.node(start=True)\nasync def draft", HELLO))),
    Edit("insert a node after", lambda text: swap(("settle(ctx: Context[Order]) -> None:",
                                                   'settle(ctx: Context[Order]) -> Literal["notify"]:'),
                                                  ('name="cool")\n', 'name="cool")\n    return "notify"\n'),
                                                  )(text) + MORE),
    Edit("add an optional field", swap(("    cents: int = 4200\n", "    cents: int = 4200\n    currency: str = ''\n"))),
    Edit("rename an activity, keep its name",
         swap(('key="reserve/{order_id}")', 'key="reserve/{order_id}", name="reserve")'),
              ("async def reserve(", "async def book("), ("@reserve.undo", "@book.undo"),
              ("ctx.do(reserve,", "ctx.do(book,"))),
    Edit("change a timeout", swap(('key="pay/{order_id}"', 'key="pay/{order_id}", timeout=timedelta(seconds=9)'))),
    Edit("change the budgets", swap(("version=1)", "version=1, ceiling=timedelta(hours=2))"),
                                    ("within=timedelta(hours=96)", "within=timedelta(hours=1)"))),
    Edit("reorder the code", lambda text: text.replace("class Go(BaseModel):\n    word: str = \"\"\n", "").replace(
        "class Order", "class Go(BaseModel):\n    word: str = \"\"\n\n\nclass Order")),
    Edit("raise the version with a migration", lambda text: swap(V2, CURRENCY)(text) + MIGRATION),
    Edit("rename a node in a migration", lambda text: swap(V2, ("async def review(", "async def check("),
                                                           ('"review"', '"check"'))(text)
         + '\n\n@orders.migrate(from_=1, renamed={"review": "check"})\ndef same(old: dict) -> dict:\n    return old\n'),
)  # fmt: skip
