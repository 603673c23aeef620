"""Outlast in a FastAPI application. Run it with `uvicorn fastapi_app:app`; a worker runs in the same process."""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from refunds import refund

import outlast
from outlast.errors import NotFound

STORE = os.environ.get("OUTLAST_STORE", "sqlite:refunds.db")


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    async with outlast.connect(STORE) as client, client.worker([refund]):
        app.state.outlast = client
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/refunds/{order}", status_code=202)
async def start(order: str, cents: int) -> dict[str, str]:
    client: outlast.Client = app.state.outlast
    run = await client.start(refund, order=order, cents=cents)
    return {"run": run.id}


@app.get("/refunds/{run}")
async def read(run: str) -> dict[str, str]:
    client: outlast.Client = app.state.outlast
    try:
        status = await client.get(refund, run).status()
    except NotFound as error:
        raise HTTPException(404) from error
    return {"status": status.shown}
