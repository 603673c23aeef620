"""Outlast in a Celery task: `celery -A celery_app worker`, and `outlast worker refunds.py` beside it.

Celery may deliver a task twice. The second delivery has the same start key, so it starts no second run.
"""

import os
from functools import cache

from celery import Celery
from refunds import refund

import outlast

app = Celery(broker=os.environ.get("CELERY_BROKER", "redis://"), backend=os.environ.get("CELERY_BACKEND"))


@cache  # at the first task, because Celery forks its processes before
def client() -> outlast.SyncClient:
    return outlast.connect_sync(os.environ.get("OUTLAST_STORE", "sqlite:refunds.db"))


@app.task(acks_late=True)
def complain(order: str, cents: int) -> str:
    """Start the refund of a complaint and return the id of its run. The task does not wait for the approval."""
    return client().start(refund, order=order, cents=cents).id
