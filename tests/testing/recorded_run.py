"""Write `recorded_run.json`, the recording that `test_recorded.py` plays with crashes: `python -m` this module."""

from pathlib import Path

from outlast.testing.recorded_runs import RecordedPlay
from outlast.testing.virtual_runtime import app_factory
from outlast.upkeep.recording import recording_of, without_secrets
from tests.testing.recorded_flows import flow, given


def main() -> None:
    """Run an order, and write its recording."""
    with app_factory() as make:
        app = make(flow)
        run = app.start(flow, given())
        app.clock.skip("5h")
        run.signal("note", {"text": "deliver early"})
        app.clock.skip("20h")
        run.approve(by="ana")
        run.approve(by="bob")
        app.clock.skip("12h")
        recording = app.do(recording_of(app.runtime.operations, run.id))
    with RecordedPlay(flow, recording) as play:
        assert play.run() is None
    text = without_secrets(recording.with_arguments(play.arguments)).dump()
    Path(__file__).with_suffix(".json").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
