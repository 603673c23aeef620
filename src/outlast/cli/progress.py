"""How far a run has come, in one line of its page."""

from typing import Any

from outlast.cli.screen import Screen


def progress_lines(screen: Screen, progress: dict[str, Any]) -> list[str]:
    """Effects done of intended, and when the last checkpoint was."""
    here = f"{progress['here_done']} of {progress['here_intended']} effects of node {progress['node']} done"
    all_ = f"{progress['effects_done']} of {progress['effects_intended']} in all"
    saved = progress["last_checkpoint_at"]
    last = f"checkpoint {progress['checkpoints']} {screen.since(saved)}" if saved else "no checkpoint yet"
    return [f"{here}, {all_} · {last}"]


def trigger_text(entry: dict[str, Any]) -> str:
    """A reason for attention with its key, and with the name operators alarm on where it has one of its own."""
    trigger = entry["trigger"] if entry["trigger"] != entry["reason"] else ""
    return " ".join(filter(None, (entry["reason"], entry["key"], f"({trigger})" if trigger else "")))
