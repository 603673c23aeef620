"""The code of authors is clean under strict type checkers, and each planted mistake is found on its own line."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
SRC = HERE.parents[1] / "src"
AWAITED = '# mypy: enable-error-code="unused-awaitable"\n'
PYRIGHT = {"typeCheckingMode": "strict", "reportUnusedCoroutine": "error", "pythonVersion": "3.11"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("typing")
    (folder / "right.py").write_text((HERE / "right.py").read_text() + AWAITED)
    head, rest = (HERE / "wrong.py").read_text().split("\n", 1)
    assert head == "# type: ignore"
    (folder / "wrong.py").write_text(AWAITED + rest)  # the numbers of the lines stay
    (folder / "pyrightconfig.json").write_text(json.dumps(PYRIGHT | {"extraPaths": [str(SRC)]}))
    return folder


def run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", *command], cwd=folder, capture_output=True, text=True, timeout=300)


def mypy(folder: Path) -> dict[str, set[int]]:
    done = run(
        HERE.parents[1], "mypy", str(folder / "right.py"), str(folder / "wrong.py")
    )  # with the cache of the sources
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, set[int]] = {}
    for name, line in re.findall(r"^(.+?):(\d+): error", done.stdout, re.MULTILINE):
        found.setdefault(Path(name).name, set()).add(int(line))
    return found


def pyright(folder: Path) -> dict[str, set[int]]:
    done = run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable, "right.py", "wrong.py")
    assert done.returncode in (0, 1), done.stdout + done.stderr
    found: dict[str, set[int]] = {}
    for item in json.loads(done.stdout)["generalDiagnostics"]:
        if item["severity"] == "error":
            found.setdefault(Path(item["file"]).name, set()).add(item["range"]["start"]["line"] + 1)
    return found


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_right_is_clean_and_each_planted_mistake_is_found(
    checker: Callable[[Path], dict[str, set[int]]], folder: Path
) -> None:
    lines = (HERE / "wrong.py").read_text().splitlines()
    marked = {i for i, line in enumerate(lines, 1) if re.search(r"# E \d+:", line)}
    assert len(marked) >= 37
    assert checker(folder) == {"wrong.py": marked}


def test_a_checker_shows_the_parameters_of_the_client_without_await(folder: Path) -> None:
    shown = folder / "shown.py"
    shown.write_text("import outlast\nwith outlast.connect_sync() as client:\n    reveal_type(client.cancel)\n")
    done = run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable, shown.name)
    texts = [each["message"] for each in json.loads(done.stdout)["generalDiagnostics"]]
    signature = '(run: str, *, reason: str, version: int = 0, idempotency_key: str = "") -> None'
    assert any(signature in text for text in texts), texts


EDITED = """import outlast
client = outlast.connect_sync()
client.cancel("r1", reason="late")
client.webhooks.rotate("wh_1", keep="1h")
client.get("r1").signal("bid", {"cents": 1})
"""


def test_an_editor_shows_the_text_and_the_parameters_of_the_client_without_await(folder: Path) -> None:
    """As the language server of pyright answers an editor that points at a name."""
    with LanguageServer(folder) as editor:
        editor.open(folder / "edited.py", EDITED)
        cancel = editor.hover(2, len("client.c"))
        rotate = editor.hover(3, len("client.webhooks.r"))
        signal = editor.hover(4, len('client.get("r1").s'))
    assert "Request the cancellation of a run." in cancel and "reason: str" in cancel and "version: int = 0" in cancel
    assert "Replace the secret and return the new one." in rotate and "keep: Duration | None = None" in rotate
    assert "Send a signal, which" in signal and "signal_id: str" in signal


class LanguageServer:
    """The language server of pyright, for one file."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._number = 0

    def __enter__(self) -> "LanguageServer":
        command = [sys.executable, "-c", "from basedpyright.langserver import main; main()", "--stdio"]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=self._folder)
        root = self._folder.as_uri()
        folders = [{"uri": root, "name": "typing"}]
        self._ask("initialize", {"processId": None, "rootUri": root, "capabilities": {}, "workspaceFolders": folders})
        self._send({"method": "initialized", "params": {}})
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def open(self, path: Path, text: str) -> None:
        """Open a file with this text."""
        self._uri = path.as_uri()
        document = {"uri": self._uri, "languageId": "python", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})

    def hover(self, line: int, character: int) -> str:
        """Return the text beside a name."""
        at = {"textDocument": {"uri": self._uri}, "position": {"line": line, "character": character}}
        return str(self._ask("textDocument/hover", at)["contents"]["value"])

    def _ask(self, method: str, params: dict[str, Any]) -> Any:
        self._number += 1
        self._send({"id": self._number, "method": method, "params": params})
        while True:
            found = self._receive()
            if "method" in found and "id" in found:  # a question of the server, for example for its settings
                asked = len(found["params"]["items"]) if found["method"] == "workspace/configuration" else 0
                self._send({"id": found["id"], "result": [{}] * asked})
            elif found.get("id") == self._number:
                assert "error" not in found, found
                return found["result"]

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(data), data))
        self._process.stdin.flush()

    def _receive(self) -> Any:
        assert self._process.stdout is not None
        size = 0
        while line := self._process.stdout.readline().strip():
            name, _, value = line.partition(b":")
            size = int(value) if name.lower() == b"content-length" else size
        assert size, "the language server has ended"
        return json.loads(self._process.stdout.read(size))


HANDLERS = """from outlast.operations.handlers import handles
from outlast.operations.run_operations import SIGNAL_RUN, CancelRun, SignalRun


class Right:
    @handles(SIGNAL_RUN)
    async def _signal_run(self, request: SignalRun) -> bool:
        return True


class OtherAnswer:
    @handles(SIGNAL_RUN)
    async def _signal_run(self, request: SignalRun) -> str:
        return ""


class OtherRequest:
    @handles(SIGNAL_RUN)
    async def _signal_run(self, request: CancelRun) -> bool:
        return True
"""
WRONG_HANDLERS = {12, 18}


def test_a_handler_of_another_request_or_answer_is_an_error_of_both_checkers(folder: Path) -> None:
    """Each names the two wrong ones, at their decorators."""
    path = folder / "handlers.py"
    path.write_text(HANDLERS)
    shown = run(HERE.parents[1], "mypy", str(path)).stdout
    found = {int(line) for line in re.findall(r"handlers\.py:(\d+): error", shown)}
    assert found == WRONG_HANDLERS, shown
    shown = run(folder, "basedpyright", "--outputjson", "--pythonpath", sys.executable, path.name).stdout
    errors = [each for each in json.loads(shown)["generalDiagnostics"] if each["severity"] == "error"]
    assert {each["range"]["start"]["line"] + 1 for each in errors} == WRONG_HANDLERS, shown
