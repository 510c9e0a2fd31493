"""Which adapter is taken, and what is loaded for it."""

import subprocess
import sys
from typing import Literal

import pytest

from batchinfer.config.schema import Timeouts
from batchinfer.errors import ConfigError
from batchinfer.transport.base import settings_from
from batchinfer.transport.select import describe, open_transport

SETTINGS = settings_from(Timeouts(), {})


@pytest.fixture
def without_pyreqwest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyreqwest", None)
    for name in list(sys.modules):
        if name == "batchinfer.transport.reqwest" or name.startswith("pyreqwest."):
            monkeypatch.delitem(sys.modules, name)


@pytest.mark.parametrize("name", ["pyreqwest", "httpx"])
def test_a_named_transport_is_taken(name: Literal["pyreqwest", "httpx"]) -> None:
    transport = open_transport(name, SETTINGS)

    assert transport.name == name
    assert describe(transport).startswith(f"{name} 0.")


def test_the_fast_transport_is_the_default() -> None:
    assert open_transport("auto", SETTINGS).name == "pyreqwest"


@pytest.mark.usefixtures("without_pyreqwest")
def test_the_portable_transport_is_the_default_where_the_fast_one_is_missing() -> None:
    assert open_transport("auto", SETTINGS).name == "httpx"


@pytest.mark.usefixtures("without_pyreqwest")
def test_a_missing_transport_that_was_asked_for_is_an_error_that_says_what_to_install() -> None:
    with pytest.raises(ConfigError, match=r"pip install pyreqwest"):
        open_transport("pyreqwest", SETTINGS)


@pytest.mark.parametrize(
    ("name", "loaded"), [("pyreqwest", ["pyreqwest"]), ("httpx", ["httpx"]), ("", [])]
)
def test_only_the_library_in_use_is_loaded(name: str, loaded: list[str]) -> None:
    code = (
        "import sys; from batchinfer.config.schema import Timeouts;"
        "from batchinfer.transport.base import settings_from;"
        "from batchinfer.transport.select import open_transport;"
        f"{f'open_transport({name!r}, settings_from(Timeouts(), {{}}));' if name else ''}"
        "print([name for name in ('httpx', 'pyreqwest') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == repr(loaded)


def test_settings_come_from_the_timeouts_and_the_environment() -> None:
    environ = {"SSL_CERT_FILE": "/ca.pem", "HTTP_PROXY": "http://p:1"}
    settings = settings_from(Timeouts(connect=1, read=2, total=3), environ)
    proxy = settings.proxies.proxy_for("http", "model.test", 80)

    assert (settings.connect, settings.read, settings.total) == (1, 2, 3)
    assert settings.ca_file == "/ca.pem"
    assert proxy is not None
    assert proxy.label == "p:1"
