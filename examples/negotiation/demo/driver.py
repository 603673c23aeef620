"""The demo from the command line to the exit code; Ctrl-C interrupts it, and it can continue."""

import asyncio
import json
import shutil
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from outlast.core.lanes import OWN
from outlast.runtime.stores import open_store

from ..samples import PROGRAMS
from . import state as saved
from .output import Output, folded, output_for
from .processes import DemoFolder, program
from .proof import Proof
from .sample import SamplePurchase
from .scenario import Auction

INTERRUPTED: Final = 130
WIDE: Final = 100_000  # columns of a pipe: no command is folded in it
STOPS: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
TITLE: Final = "demo: a supplier auction that survives a crash and a human"


def play(
    *,
    store: str,
    unattended: bool,
    as_json: bool,
    folder: Path | None,
    keep: bool | None,
    speed: int,
    sample: str,
    runtime: str,
) -> int:
    """Play the auction, or a sample if one is named, and return the exit code.

    `store`: URL of an empty store; '' for a file in the folder. `keep`: keep a temporary folder. `runtime`: the engine
    that schedules the run.
    Raises DemoFailed.
    """
    path = (folder or Path(tempfile.mkdtemp(prefix="outlast-demo-"))).absolute()
    kept = folder is not None or (keep if keep is not None else not as_json)
    try:
        path.mkdir(parents=True, exist_ok=True)
        saved.read(path).save(path)
        with output_for(json=as_json) as output:
            output.line(f"\noutlast · {f'demo: {sample}' if sample else TITLE}\n")
            # because an interrupt while asyncio creates its loop prints a traceback; `_play` unblocks the signals
            signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
            proof = asyncio.run(
                _play(
                    path, store, output, unattended=unattended, speed=speed, sample=sample, kept=kept, runtime=runtime
                )
            )
        if as_json:
            print(json.dumps(proof.facts, ensure_ascii=False), flush=True)
    except (KeyboardInterrupt, asyncio.CancelledError):
        print(_interrupted(path, sample, runtime, unattended=unattended), file=sys.stderr, flush=True)
        return INTERRUPTED
    if proof.holds and not kept:
        shutil.rmtree(path)
    return 0 if proof.holds else 1


async def _play(
    path: Path, url: str, output: Output, *, unattended: bool, speed: int, sample: str, kept: bool, runtime: str
) -> Proof:
    """Open the store and play. SIGINT, SIGTERM and SIGHUP cancel the demo, which then stops every process."""
    loop, task = asyncio.get_running_loop(), asyncio.current_task()
    assert task is not None

    def stop() -> None:
        for number in STOPS:  # once: a second signal must not leave a process behind
            loop.add_signal_handler(number, lambda: None)
        task.cancel()

    for number in STOPS:
        loop.add_signal_handler(number, stop)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, STOPS)
    state = saved.read(path)
    store = await open_store(url or f"sqlite:{path / 'outlast.db'}")
    try:
        await saved.claim(state, store, given=bool(url))
        folder = DemoFolder(path, url or store.url, store.url, kept, runtime)
        if sample in PROGRAMS:
            played: Proof = await _program(sample)(store, folder, state, output, unattended=unattended).play()
            return played
        if sample:
            return await SamplePurchase(store, folder, state, output, name=sample, unattended=unattended).play()
        return await Auction(store, folder, state, output, unattended=unattended, speed=speed).play()
    finally:
        await store.close()


def _program(sample: str) -> Any:
    """Return the `SampleDemo` of another example. It takes the store, the folder, the state and the output."""
    if sample == "acquisition":
        from ...acquisition.demo import SampleDemo as Acquisition

        return Acquisition
    if sample == "desk":
        from ...desk.demo import SampleDemo as Desk

        return Desk
    from ...researcher.demo import SampleDemo as Researcher

    return Researcher


def _interrupted(path: Path, sample: str, runtime: str, *, unattended: bool) -> str:
    """Return a text that says where the run is and how to continue. A sample is played from its beginning only."""
    state = saved.read(path)
    if not state.run:
        return "\nStopped before the run began; there is nothing to go on with."
    safe = f"Stopped. 1 run is safe in {state.store or path / 'outlast.db'}; every process has ended."
    if sample:
        return f"\n{safe} The sample starts again with another --folder.\n"
    elsewhere = ["--store", state.store] if state.store else []
    more = (["--approve"] if unattended else []) + (["--runtime", runtime] if runtime != OWN else [])
    width = shutil.get_terminal_size().columns if sys.stderr.isatty() else WIDE
    command = folded([*program(), *elsewhere, "demo", "--folder", f"{path}", *more], width)
    return f"\n{safe} Go on with:\n\n    {command}\n"
