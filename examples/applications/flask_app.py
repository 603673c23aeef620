"""Outlast in a Flask application: `flask --app flask_app run`, and `outlast worker refunds.py` beside it."""

import os
from functools import cache

from flask import Flask, abort, request
from refunds import refund

import outlast
from outlast.errors import NotFound

app = Flask(__name__)


@cache  # at the first request, because a server may fork its processes before
def client() -> outlast.SyncClient:
    return outlast.connect_sync(os.environ.get("OUTLAST_STORE", "sqlite:refunds.db"))


@app.post("/refunds/<order>")
def start(order: str) -> tuple[dict[str, str], int]:
    run = client().start(refund, order=order, cents=int(request.args["cents"]))
    return {"run": run.id}, 202


@app.get("/refunds/<run>")
def read(run: str) -> dict[str, str]:
    try:
        return {"status": client().get(refund, run).status().shown}
    except NotFound:
        abort(404)
