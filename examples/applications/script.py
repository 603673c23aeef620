"""Outlast in a script: start a run, follow its events, print its result. `outlast worker refunds.py` runs beside it."""

import os
import sys

from refunds import refund

import outlast
from outlast.errors import RunCancelled

order, cents = sys.argv[1:]
with outlast.connect_sync(os.environ.get("OUTLAST_STORE", "sqlite:refunds.db")) as client:
    run = client.start(refund, order=order, cents=int(cents))
    print(f"{run.id}: {'started' if run.created else 'started before'}")
    try:
        print(run.result(timeout="10m"))
    except RunCancelled as error:
        sys.exit(str(error))
