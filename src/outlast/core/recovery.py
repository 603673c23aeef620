"""Whether the checkpoint and the history of a run that was taken over agree with its row (CKP-6)."""

import json

from outlast.core.rows import Event, Run


def contradiction(run: Run, checkpoint: Event, newest: Event | None) -> str:
    """Why a walk must not begin from this checkpoint, as a sentence; '' when everything fits.

    `checkpoint`: the newest event that carries a state; `newest`: the event that the row says is its last.
    """
    if newest is None:
        return f"the row says that its history ends with event {run.seq}, which is not there"
    if newest.hash != run.head:
        return f"event {run.seq}, the last of its history, is not the one its row was written with"
    version = json.loads(newest.body)["data"]["version"]
    if version != run.version:
        return f"its row has version {run.version}, and the last event of its history tells of {version}"
    if checkpoint.seq > run.seq or (checkpoint.visit, checkpoint.node) != (run.visit, run.node):
        where = f"visit {checkpoint.visit} of {checkpoint.node}"
        return f"its last checkpoint leads into {where}, and its row stands in visit {run.visit} of {run.node}"
    return ""
