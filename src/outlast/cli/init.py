"""`outlast init`: write a first workflow of 25 lines."""

from pathlib import Path
from typing import Final

import click

from outlast.cli.exit_codes import OK
from outlast.cli.global_options import Command, settings_now
from outlast.cli.screen import Screen
from outlast.errors import Conflict, InvalidInput

# At most 25 lines of code besides the imports (tests/cli/test_first_steps.py).
FLOWS: Final = '''"""An order that a person approves: each supplier is asked once, whatever crashes."""

from datetime import timedelta
from typing import Literal

from pydantic import BaseModel

from outlast import Context, Workflow, activity, role


class Order(BaseModel):
    suppliers: list[str]
    decided: str = ""


orders = Workflow("order", state=Order)


@activity(key="invite/{supplier}", no_undo="a mail cannot be unsent")
async def invite(supplier: str) -> str:
    return f"invited {supplier}"  # send it here: once per key, whatever crashes


@activity(key="buy/{supplier}", once_per="run", no_undo="ask the supplier")
async def buy(supplier: str) -> str:
    return f"bought from {supplier}"


@orders.node(start=True)
async def ask(ctx: Context[Order]) -> Literal["award"]:
    await ctx.do_all({s: invite.plan(s) for s in ctx.state.suppliers})
    await ctx.sleep("2s")
    return "award"


@orders.node
async def award(ctx: Context[Order]) -> None:
    best = buy.plan(ctx.state.suppliers[0])
    d = await ctx.approval(best, summary="Buy", by=role("lead"), within=timedelta(hours=96))
    ctx.state.decided = await ctx.do(best) if d.approved else f"rejected: {d.reason}"
'''


@click.command(cls=Command)
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path), default="flows.py")
@click.pass_context
def init(ctx: click.Context, file: Path) -> None:
    """Write a first workflow of 25 lines.

    The workflow asks suppliers, sleeps, and waits for an approval. FILE defaults to flows.py.
    """
    try:
        with file.open("x", encoding="utf-8") as new:
            new.write(FLOWS)
    except FileExistsError:
        raise Conflict(f"{file} exists", "nothing was written", "name another file: outlast init other.py") from None
    except OSError as error:
        raise InvalidInput(f"{file} cannot be written", error.strerror or str(error), "name another file") from error
    screen = Screen(settings_now())
    if not screen.data({"file": str(file)}):
        screen.line(f"wrote {file}")
        screen.advice(
            f'→ outlast dev {file}   and elsewhere: outlast run {file}:order \'suppliers=["acme", "blix"]\' --wait'
        )
    ctx.exit(OK)
