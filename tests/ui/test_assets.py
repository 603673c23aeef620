import hashlib
from importlib.resources import files

VENDORED = {  # from the package htmx.org 4.0.1 of the npm registry, without their sourceMappingURL line
    "htmx.min.js": "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
    "hx-csp.min.js": "a7e1e6711ae6c3e50ad300fba7936cbe8d07599cdae313414a179ddd6b26e143",
    "hx-sse.min.js": "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103",
}


def test_vendored_scripts_are_the_published_ones() -> None:
    static = files("outlast.ui").joinpath("static")
    found = {name: hashlib.sha256(static.joinpath(name).read_bytes()).hexdigest() for name in VENDORED}
    assert found == VENDORED
    assert "Zero-Clause BSD" in static.joinpath("LICENSE").read_text(encoding="utf-8")
