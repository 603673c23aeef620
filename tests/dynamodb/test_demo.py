"""The demo of the main job on DynamoDB: real processes, a kill in round 3, and the record of the suppliers."""

import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.helpers import GIVE_UP_S, OUTLAST
from tests.e2e.test_demo import FASTER, every_invitation_was_taken_once


@pytest.mark.req("RT-5", "APP-2", "REC-1", "REC-5", "EFF-1")
def test_the_auction_is_killed_in_round_3_and_awarded_on_dynamodb(url: str, tmp_path: Path) -> None:
    folder = tmp_path / "folder"
    done = subprocess.run(
        [f"{OUTLAST}", "demo", "--store", url, "--approve", "--json", "--folder", f"{folder}", *FASTER],
        capture_output=True, text=True, timeout=5 * GIVE_UP_S, stdin=subprocess.DEVNULL, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    printed = json.loads(done.stdout)
    assert (printed["outcome"], printed["proven"], printed["all_requests_repeated"]) == ("AWARDED", True, 0)
    assert printed["store"] == url and not (folder / "outlast.db").exists()
    every_invitation_was_taken_once(folder)
    checked = subprocess.run([f"{OUTLAST}", "--store", url, "fsck", "--chain"], capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout
