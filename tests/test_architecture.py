"""The house: which room may import which, what pure rooms may not touch, and the gauge."""

import ast
import statistics
from pathlib import Path
from typing import Final

import pytest

PACKAGE: Final = Path(__file__).parent.parent / "batchinfer"

_VALUES: Final = {"errors", "model", "events"}
MAY_IMPORT: Final[dict[str, set[str]]] = {
    "errors": set(),
    "model": {"errors"},
    "events": {"errors", "model"},
    "config": _VALUES,
    "intake": _VALUES | {"config"},
    "providers": _VALUES | {"config", "intake"},
    "flow": _VALUES | {"config"},
    "transport": _VALUES | {"config"},
    "journal": _VALUES,
    "dispatch": _VALUES | {"config", "intake", "providers", "flow", "transport", "journal"},
    "report": _VALUES | {"config", "journal"},
    "simulate": {"errors"},
    "job": _VALUES
    | {
        "config",
        "intake",
        "providers",
        "flow",
        "transport",
        "journal",
        "dispatch",
        "report",
        "simulate",
    },
    "cli": _VALUES | {"job", "config", "report"},
    "__main__": {"cli"},
}
"""Room → rooms it may import. The order is the data's way; nothing points back up."""

PURE_MODULES: Final = (
    "errors",
    "model",
    "events",
    "config.schema",
    "intake.rows",
    "providers",
    "flow",
    "journal.record",
    "report.gauges",
    "report.histogram",
    "report.shapes",
    "report.summary",
    "report.tally",
)
IMPURE_LIBRARIES: Final = {
    "asyncio",
    "concurrent",
    "httpx",
    "multiprocessing",
    "os",
    "pathlib",
    "pyreqwest",
    "random",
    "requests",
    "rich",
    "shutil",
    "socket",
    "subprocess",
    "tempfile",
    "threading",
    "time",
    "typer",
    "urllib.request",
    "uvloop",
}
ONLY_IN: Final = {
    "httpx": ("transport",),
    "pyreqwest": ("transport",),
    "typer": ("cli",),
    "rich": ("cli",),
    "minijinja": ("intake",),
    "tenacity": ("flow",),
    "httptools": ("simulate",),
}

MAX_MODULE_LINES: Final = 250
MAX_FUNCTION_LINES: Final = 50
MAX_P90: Final = 25
MAX_MEDIAN: Final = 8
MAX_PARAMETERS: Final = 6
MAX_BROAD_EXCEPTS: Final = 2

MODULES: Final = {
    ".".join(path.relative_to(PACKAGE).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted(PACKAGE.rglob("*.py"))
    if path.name != "__init__.py" or path.stat().st_size
}


def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def _imports(tree: ast.AST) -> list[tuple[str, int]]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"relative import on line {node.lineno}"
            module = node.module or ""
            found += [(f"{module}.{alias.name}", node.lineno) for alias in node.names]
    return found


def _internal(tree: ast.AST) -> list[tuple[str, int]]:
    return [
        (name.split(".")[1], line)
        for name, line in _imports(tree)
        if name.startswith("batchinfer.") and name != "batchinfer.__version__"
    ]


def _functions() -> list[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    return [
        (f"{name}:{node.name}", node)
        for name, path in MODULES.items()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


def _length(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    return (body[-1].end_lineno or 0) - body[0].lineno + 1 if body else 0


@pytest.mark.parametrize("name", [name for name in MODULES if name != "__init__"])
def test_a_room_imports_only_the_rooms_above_it(name: str) -> None:
    room = name.split(".", maxsplit=1)[0]
    wrong = [
        f"line {line}: {target}"
        for target, line in _internal(_tree(MODULES[name]))
        if target not in MAY_IMPORT.get(room, set()) | {room}
    ]

    assert room in MAY_IMPORT
    assert wrong == []


@pytest.mark.parametrize("name", [n for n in MODULES if n.startswith(PURE_MODULES)])
def test_a_pure_module_touches_no_clock_no_chance_and_no_io(name: str) -> None:
    wrong = [
        f"line {line}: {target}"
        for target, line in _imports(_tree(MODULES[name]))
        if target.split(".")[0] in IMPURE_LIBRARIES
    ]

    assert wrong == []


@pytest.mark.parametrize("name", list(MODULES))
def test_a_library_is_known_to_its_own_room_only(name: str) -> None:
    room = name.split(".", maxsplit=1)[0]
    wrong = [
        f"line {line}: {target}"
        for target, line in _imports(_tree(MODULES[name]))
        if room not in ONLY_IN.get(target.split(".")[0], (room,))
    ]

    assert wrong == []


@pytest.mark.parametrize("name", [name for name in MODULES if not name.startswith("cli")])
def test_internal_imports_stand_at_the_top(name: str) -> None:
    """Only `cli` imports inside functions, for a quick start."""
    wrong = [
        target
        for node in ast.walk(_tree(MODULES[name]))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for target in _internal(node)
    ]

    assert wrong == []


@pytest.mark.parametrize("name", list(MODULES))
def test_a_module_opens_with_what_it_owns_and_stays_small(name: str) -> None:
    text = MODULES[name].read_text(encoding="utf-8")

    assert ast.get_docstring(ast.parse(text))
    assert text.count("\n") <= MAX_MODULE_LINES


def test_functions_stay_small() -> None:
    lengths = sorted(_length(node) for _, node in _functions())
    long = [name for name, node in _functions() if _length(node) > MAX_FUNCTION_LINES]

    assert long == []
    assert statistics.median(lengths) <= MAX_MEDIAN
    assert lengths[int(len(lengths) * 0.9)] <= MAX_P90


def test_functions_take_few_parameters() -> None:
    """Commands are exempt: their parameters are the command line."""
    wide = [
        name
        for name, node in _functions()
        if len([a for a in node.args.args + node.args.kwonlyargs if a.arg not in {"self", "cls"}])
        > MAX_PARAMETERS
        and not name.startswith("cli.")
    ]

    assert wide == []


def test_broad_excepts_are_rare() -> None:
    broad = [
        f"{name}:{node.lineno}"
        for name, path in MODULES.items()
        for node in ast.walk(_tree(path))
        if isinstance(node, ast.ExceptHandler)
        and (
            node.type is None
            or (isinstance(node.type, ast.Name) and node.type.id in {"Exception", "BaseException"})
        )
    ]

    assert len(broad) <= MAX_BROAD_EXCEPTS, broad
