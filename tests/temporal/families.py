"""A parent and a child that makes a call, waits for a word and makes another call, each on any engine."""

from pydantic import BaseModel

from outlast import Context, activity, workflow
from tests.temporal.flows import send


class Word(BaseModel):
    text: str


@activity(key="tell/{word}", no_undo="the receiver has heard it")
async def tell(word: str) -> str:
    return await send()


@workflow(name="family_child")
async def hears(ctx: Context) -> str:
    await ctx.do(tell, "begun")
    word = (await ctx.receive("word", Word)).text
    await ctx.do(tell, word)
    return word


@workflow(name="family_parent")
async def asks(ctx: Context, engine: str) -> str:
    return await ctx.run(hears, hears.arguments(), key="c", scheduler=engine, no_undo="the receiver has heard it")
