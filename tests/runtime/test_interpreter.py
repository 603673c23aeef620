"""The build of an interpreter is judged by its configuration, and never called slow on a guess."""

import pytest

from outlast.runtime.interpreter_build import Build, build, build_of

PLAIN = {"CONFIG_ARGS": "'--prefix=/opt/python' '--enable-shared'", "PY_CFLAGS": "-DNDEBUG -g -fwrapv -O3 -Wall"}
DEBIAN = {"CONFIG_ARGS": "'--enable-shared' '--prefix=/usr' '--with-dtrace'", "PY_CFLAGS": "-g -fwrapv -O2"}


@pytest.mark.parametrize(
    ("config", "packaged", "found"),
    [
        (PLAIN, False, Build(False, "without PGO")),
        ({**PLAIN, "CONFIG_ARGS": "'--enable-optimizations' '--with-lto'"}, False, Build(True, "PGO, LTO")),
        ({**PLAIN, "CFLAGS_NODIST": "-fprofile-use -fprofile-correction"}, False, Build(True, "PGO")),
        ({**PLAIN, "PGO_PROF_USE_FLAG": "-fprofile-use"}, False, Build(False, "without PGO")),  # it could, and did not
        ({**PLAIN, "CONFIG_ARGS": "'--with-lto'"}, False, Build(None, "PGO unknown, LTO")),
        (DEBIAN, True, Build(None, "PGO unknown")),
        ({}, False, Build(None, "PGO unknown")),  # Windows has no CONFIG_ARGS
        ({**PLAIN, "PY_CFLAGS": "-O3 -O0"}, False, Build(False, "compiled with -O0")),
        ({**PLAIN, "CONFIG_ARGS": "'--enable-optimizations'", "Py_DEBUG": 1}, False, Build(False, "debug build")),
    ],
)
def test_a_build_is_judged_by_its_configuration(config: dict[str, object], packaged: bool, found: Build) -> None:
    assert build_of(config, packaged=packaged) == found


def test_this_interpreter_is_judged() -> None:
    assert build().text
