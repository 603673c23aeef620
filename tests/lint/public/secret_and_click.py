"""Do as restatedev/examples does in 3_workflows.py, in our own words.

Shape: a secret made in a step, a step in a local function, and a wait for the secret.
"""

import secrets

from pydantic import BaseModel

from outlast import Context, Workflow, activity, lookup


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


class Note(BaseModel):
    text: str = ""


flow = Workflow("secret-and-click", state=Order)


@lookup
def draw_code() -> str:
    return secrets.token_hex()


@activity(key="letter/{number}", no_undo="the shop keeps it")
async def send_letter(number: str, code: str) -> None: ...


@flow.node(start=True)
async def confirm(ctx: Context[Order]) -> None:
    async def letter(code: str) -> None:
        await ctx.do(send_letter, ctx.state.number, code)

    code = await ctx.do(draw_code)
    await letter(code)
    answer = await ctx.receive("code", Note)
    ctx.state.status = "confirmed" if answer.text == code else "refused"
