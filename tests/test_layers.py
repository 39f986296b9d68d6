"""Who may import whom: walks the imports of every file and fails on a breach."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "proxima"

# A layer may import itself and what is listed. `train.config` and the like are parts of their layer.
ALLOWED = {
    "core": set(),
    "nets": {"core"},
    "algorithms": {"nets", "core"},
    "domains": {"nets", "core", "files", "report", "run", "scenario", "train"},
    "train": {"core", "files"},
    "track": {"core"},
    "report": {"core", "files"},
    "scenario": {"algorithms", "core", "domains", "nets", "track", "train", "yaml"},
    "yaml": {"core"},
    "files": {"core"},
    "build": {"algorithms", "core", "domains", "nets", "scenario", "train"},
    # domains: data is made and looked at there; environments still come from build
    "run": {"build", "core", "domains", "files", "report", "scenario", "track", "train"},
    "cli": {"build", "core", "domains", "run", "scenario", "track", "train"},
    "__init__": {"core", "domains", "run", "scenario"},
}

# A library may be imported in these files only.
FENCES = {
    "mlflow": {"track"},
    "opentelemetry": {"track/otlp"},
    "typer": {"cli"},
    "click": {"cli"},
    "pydantic": {"scenario", "domains/language/scenario", "domains/trading/gymnasium"},
    "ruamel": {"yaml"},
    "gymnax": {"domains/control/gymnax"},
    "jumanji": {"domains/packing/jumanji"},
    "gymnasium": {
        "domains/control/gymnasium",
        "domains/control/gymnasium_pools",
        "domains/control/gymnasium_spaces",
        "domains/control/worker",
        "domains/trading/gymnasium",
        "domains/trading/registration",
    },
    "envpool": {"domains/control/envpool"},
    "matplotlib": {"report", "domains"},
    "PIL": {
        "report",
        "domains/control/classic",
        "domains/control/film",
        "domains/packing/pictures",
    },
    "rich": {
        "cli",
        "domains/language/commands",
        "domains/language/summary",
        "domains/trading/commands",
    },
    "polars": {"domains/trading", "domains/language/tables"},
    "ray": {"run"},
    "optuna": {"run"},
    "pickle": set(),
    "torch": set(),
}

FILES = sorted(SOURCE.rglob("*.py"))


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def layer_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_layers(path):
    layer = layer_of(path)
    for name in imports_of(path):
        if name.startswith("proxima."):
            used = name.split(".")[1]
            if used in ALLOWED:
                assert used == layer or used in ALLOWED[layer], f"{layer} must not import {name}"
        library = name.split(".")[0]
        place = str(path.relative_to(SOURCE).with_suffix(""))
        if library in FENCES:
            fits = any(place == f or place.startswith(f + "/") for f in FENCES[library])
            assert fits, f"{library} may not be imported in {place}"


def test_no_domain_imports_another():
    for path in (SOURCE / "domains").rglob("*.py"):
        own = path.relative_to(SOURCE / "domains").parts[0]
        for name in imports_of(path):
            if name.startswith("proxima.domains."):
                assert name.split(".")[2] == own, f"{path}: {name}"


def test_jit_appears_in_train_and_at_the_export_edge_only():
    for path in FILES:
        if "jax.jit" in path.read_text():
            # The components of language are used one by one from Python, so each compiles at its edge.
            at_its_edge = path.is_relative_to(SOURCE / "domains" / "language")
            allowed = layer_of(path) in {"train", "track"} or at_its_edge
            assert allowed, f"{path}: jit belongs in train/"


def test_no_callbacks_in_compiled_code():
    for path in FILES:
        text = path.read_text()
        for word in ("io_callback", "pure_callback", "debug.callback", "debug.print"):
            assert word not in text, f"{path}: {word}"


def test_no_misnamed_files():
    for path in FILES:
        assert path.stem not in {"utils", "helpers", "common", "misc", "base"}


def test_the_report_names_no_domain():
    domains = [
        path.name for path in (SOURCE / "domains").iterdir() if (path / "__init__.py").exists()
    ]
    assert len(domains) >= 4
    for path in (SOURCE / "report").rglob("*"):
        if path.suffix in (".py", ".css"):
            for domain in domains:
                assert domain not in path.read_text().lower(), f"{path} names {domain}"


def test_the_report_prints_nothing():
    for path in (SOURCE / "report").rglob("*.py"):
        calls = [
            node for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)
        ]
        names = {call.func.id for call in calls if isinstance(call.func, ast.Name)}
        assert "print" not in names, path
