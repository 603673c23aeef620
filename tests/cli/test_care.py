"""Care of the store by the command line: fsck, export and verify, backup and recover, purge."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from tests.cli.conftest import Terminal


def damage(path: Path, statement: str) -> None:
    db = sqlite3.connect(path)
    assert db.execute(statement).rowcount == 1
    db.commit()
    db.close()


def ended(outlast: Terminal, run: str = "r1") -> None:
    """A refund that was approved and paid."""
    outlast.start(run=run, order_id=f"A-{run}")
    approval = outlast.approval(run)
    assert outlast("approvals", "approve", approval, "--reason", "fine").code == 0
    outlast.serve(run, lambda row: row.ended_at > 0)


@pytest.mark.req("TEST-4")
def test_fsck_names_the_row_and_exits_with_1(outlast: Terminal) -> None:
    ended(outlast)
    clean = outlast("fsck", "--chain")
    assert clean.code == 0 and "every invariant holds: 1 run," in clean.out, clean
    damage(outlast.folder / "refunds.db", "UPDATE event SET hash = 'x' WHERE seq = 2 AND run = 'r1'")
    plain, chained = outlast("fsck"), outlast("fsck", "--chain", "--json")
    assert plain.code == 0 and "--chain" in plain.err
    assert chained.code == 1
    assert [v["key"] for v in chained.json["violations"]] == [["default", "r1", 2], ["default", "r1", 3]]
    assert {v["check"] for v in chained.json["violations"]} == {"history_chain"}


@pytest.mark.req("TEST-4")
def test_an_export_is_checked_without_the_store(outlast: Terminal) -> None:
    ended(outlast)
    told = outlast("export", "r1", "--to", "r1.json")
    assert told.code == 0 and "seal" in told.out
    document = json.loads(Path("r1.json").read_text())
    assert (document["format"], document["version"], document["generation"]["n"]) == ("outlast.export", 1, 1)
    assert document["approvals"][0]["decided_by"].startswith("local:")
    assert json.loads(document["events"][0]["body"])["specversion"] == "1.0"
    (outlast.folder / "refunds.db").unlink()
    good = outlast("verify", "r1.json", "--seal", document["seal"])
    assert good.code == 0 and "is intact" in good.out, good
    assert outlast("verify", "r1.json", "--seal", "0" * 64).code == 1


@pytest.mark.req("TEST-4")
def test_a_broken_invariant_is_not_called_a_change_of_the_export(outlast: Terminal) -> None:
    """`verify` said that the file was changed, although each digest fits: the store itself had the row."""
    ended(outlast)
    clean = outlast("fsck", "--json").json
    damage(outlast.folder / "refunds.db", "UPDATE effect SET settled_by = '' WHERE run = 'r1' AND ordinal = 1")
    found = outlast("fsck", "--json").json
    assert [v["check"] for v in found["violations"]] == ["effect_row"]
    counted = ("runs", "events", "effects")
    assert [found[each] for each in counted] == [clean[each] for each in counted], "a second read counts once"
    outlast("export", "r1", "--to", "r1.json")
    broken = outlast("verify", "r1.json")
    assert broken.code == 1 and "its digests fit; 1 invariant broken in the store" in broken.out, broken
    assert "was changed after the export" not in broken.out
    view = outlast("-o", "json", "verify", "r1.json").json
    assert (view["whole"], view["changed"]) == (False, False)
    Path("r1.json").write_text(Path("r1.json").read_text().replace('"reason": "fine"', '"reason": "fime"'))
    changed = outlast("verify", "r1.json")
    assert changed.code == 1 and "r1.json was changed after the export" in changed.out


@pytest.mark.req("TEST-4")
def test_one_flipped_byte_is_found_with_its_event(outlast: Terminal) -> None:
    """Wherever it is: in an event's bytes the event is named, elsewhere the row; and the file is never called whole."""
    ended(outlast)
    whole = outlast("export", "r1").out.encode()
    event = json.loads(whole)["events"][3]
    at = whole.index(json.dumps(event["body"], ensure_ascii=False).encode()) + 200
    for place in (at, *range(50, len(whole), 997)):
        flipped = bytearray(whole)
        flipped[place] ^= 1
        Path("flipped.json").write_bytes(flipped)
        told = outlast("-o", "json", "verify", "flipped.json")
        if json.loads(whole) == _loads(bytes(flipped)):
            continue  # white space
        assert told.code in (1, 2), (place, told)
        if place == at:
            assert ["default", "r1", 4] in [v["key"] for v in told.json["violations"]]
            assert "history_chain" in {v["check"] for v in told.json["violations"]}


@pytest.mark.req("TEST-4")
def test_an_export_that_is_nested_deeply_is_refused_in_a_sentence(outlast: Terminal) -> None:
    """It ended with a RecursionError: where the document is deep, and where the text in a row of it is."""
    ended(outlast)
    document = json.loads(outlast("export", "r1").out)
    deep = "[" * 100_000
    document["run"][0]["visits"] = deep
    for text in (deep, '{"a":' * 100_000):
        Path("deep.json").write_text(text)
        told = outlast("verify", "deep.json")
        assert told.code == 2 and "nested too deeply" in told.err and "Traceback" not in told.err, told
    Path("deep.json").write_text(json.dumps(document))
    told = outlast("verify", "deep.json")
    assert told.code == 1 and "its visits cannot be read" in told.out and "Traceback" not in told.err, told


def _loads(data: bytes) -> object:
    try:
        return json.loads(data)
    except ValueError:
        return None


@pytest.mark.req("TEST-4")
def test_a_backup_is_taken_while_a_worker_runs_and_recovered(outlast: Terminal) -> None:
    """One run ended before the backup, one waits in it: the first is left alone, the second waits for a person."""
    ended(outlast, "r1")
    outlast.start(run="r2", order_id="A-2")
    outlast.approval("r2")
    worker = outlast.worker()
    made = outlast("-o", "json", "backup", "copy.db")
    assert made.code == 0, made
    assert (made.json["runs"], made.json["generation"], made.json["violations"]) == (2, 1, [])
    assert sorted(p.name for p in Path().glob("copy.db*")) == ["copy.db"]
    again = outlast("backup", "copy.db")
    assert again.code == 4 and "already exists" in again.err
    worker.kill()
    worker.wait()
    shutil.copy("copy.db", "restored.db")
    at = {"OUTLAST_STORE": "sqlite:restored.db"}
    for command in (
        ("run", f"{outlast.module}:refund", "order_id=A-3", "cents=1"),
        ("runs", "cancel", "r2", "--reason", "no", "--yes"),
    ):
        refused = outlast(*command, env=at)
        assert refused.code == 7 and "recover --after-restore" in refused.err, refused
    assert outlast.spawn("--store", at["OUTLAST_STORE"], "worker", outlast.module).wait() == 7
    for command in (("runs", "ls"), ("runs", "show", "r2"), ("fsck", "--chain"), ("export", "r2"), ("explain", "r2")):
        assert outlast(*command, env=at).code == 0, command
    assert "is a backup" in outlast("recover", "--moved", env=at).err
    assert outlast("recover", env=at).code == 2, "it says what it is for"
    asked = outlast("recover", "--after-restore", stdin="n\n", env=at)
    assert "1 unfinished run waits" in asked.err and "not answered" in asked.out
    done = outlast("-o", "json", "recover", "--after-restore", "--yes", env=at)
    assert (done.code, done.json["generation"], done.json["runs"]) == (0, 2, 1), done
    assert done.json["workers"] >= 1 and done.json["writers"] >= 1
    assert outlast("-o", "json", "runs", "show", "r1", env=at).json["status"] == "completed"
    flagged = outlast("attention", "ls", env=at)
    assert "restored" in flagged.out and "r2" in flagged.out
    resolved = outlast("attention", "resolve", "--all", "restored", "continue", "--reason", "looked", "--yes", env=at)
    assert resolved.code == 0, resolved
    assert outlast("fsck", "--chain", env=at).code == 0


@pytest.mark.req("CKP-7")
def test_a_run_whose_ledger_was_purged_says_so(outlast: Terminal, tmp_path: Path) -> None:
    ended(outlast, "r1")
    assert outlast("-o", "json", "purge", "--yes").json["ledgers"] == 0, "nothing ended 7 days ago"
    key = outlast("-o", "json", "runs", "effects", "r1").json["effects"][0]["key"]
    done = outlast("-o", "json", "purge", "--ledgers", "1ms", "--yes").json
    assert (done["runs"], done["ledgers"]) == (0, 1)
    for command in (("runs", "show", "r1"), ("runs", "effects", "r1"), ("effects", "ls", "--run", "r1")):
        assert "the retention of a ledger is over" in outlast(*command).out, command
    assert "the retention of the ledger is over" in outlast("explain", "r1").out
    gone = outlast("effects", "show", "r1", key)
    assert gone.code == 3 and "its history remains" in gone.err, gone
    assert outlast("-o", "json", "runs", "show", "r1").json["ledger_purged"] is True
    assert outlast("fsck", "--chain").code == 0
    file = tmp_path / "r1.json"
    assert outlast("export", "r1", "--to", str(file)).code == 0
    assert outlast("verify", str(file)).code == 0 and json.loads(file.read_text())["ledger_purged"] is True
    assert outlast("purge", "--ledgers", "1ms", "--yes").out.count("0 ") == 2, "each ledger once"


@pytest.mark.req("CKP-7")
def test_purge_deletes_only_runs_that_ended_long_ago(outlast: Terminal) -> None:
    ended(outlast, "r1")
    outlast.start(run="r2", order_id="A-2")
    assert outlast("-o", "json", "purge", "--yes").json["runs"] == 0, "nothing ended 30 days ago"
    assert "not answered" in outlast("purge", stdin="n\n").out
    assert outlast("-o", "json", "purge", "--older", "1ms", "--yes").json["runs"] == 1
    assert outlast("runs", "show", "r1").code == 3
    assert outlast("runs", "show", "r2").code == 0
    assert outlast("fsck", "--chain").code == 0


@pytest.mark.req("CKP-7")
def test_purge_with_zero_deletes_every_ledger_of_a_run_that_ended(outlast: Terminal) -> None:
    ended(outlast, "r1")
    done = outlast("-o", "json", "purge", "--ledgers", "0s", "--yes").json
    assert (done["runs"], done["ledgers"], done["ledgers_ms"]) == (0, 1, 0)


def test_purge_with_zero_deletes_all_that_ended(outlast: Terminal) -> None:
    """Zero is a duration, and no word for the default of 30 days."""
    ended(outlast, "r1")
    done = outlast("-o", "json", "purge", "--older", "0s", "--ledgers", "0s", "--yes").json
    assert done["runs"] == 1 and outlast("runs", "show", "r1").code == 3
