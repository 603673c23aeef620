"""Do as PrefectHQ/prefect does in resume_flow_run_on_pr_merge.py, in our own words.

Shape: settings read from a file in the body with Path.read_text.
"""

import json
from pathlib import Path

from pydantic import BaseModel

from outlast import Context, Workflow


class Order(BaseModel):
    number: str = ""
    cents: int = 0
    status: str = ""
    items: list[str] = []


flow = Workflow("settings-from-a-file", state=Order)


@flow.node(start=True)
async def read_settings(ctx: Context[Order]) -> None:
    settings = json.loads(Path("shop.json").read_text())
    if closed := settings.get("closed"):
        raise ValueError(f"the shop is closed: {closed}")
