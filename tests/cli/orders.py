"""A workflow that derives its start key from its input and names its end."""

from pydantic import BaseModel

from outlast import Context, Workflow


class Order(BaseModel):
    number: str
    cents: int


orders = Workflow("order", state=Order, key="order/{number}", objective="Place order {number}")


@orders.node(start=True, end="PLACED")
async def place(ctx: Context[Order]) -> None: ...
