"""Who may import whom, and who may name whom: reads every file of the source and fails on a breach."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "proxima"

# A layer may import itself and the modules listed; `run.results` allows that file of `run` alone.
ALLOWED = {
    "core": set(),
    "nets": {"core"},
    "algorithms": {"core", "nets"},
    "files": {"core"},
    "yaml": {"core"},
    "terminal": set(),
    "backend": set(),
    "train": {"core", "files"},
    "track": {"core"},
    "report": {"core", "files"},
    # the tables only; what they name is imported when it is asked for
    "build": {"core.algorithm", "core.errors", "core.functions", "domains.domain"},
    "scenario": {
        "build",
        "core",
        "nets.network",  # a user's own net, by its path
        "track.tracker",
        "train.checkpoint",
        "train.config",
        "train.convergence",
        "train.curriculum",
        "yaml",
    },
    "domains": {
        "build",
        "cluster.session",
        "core",
        "files",
        "nets",
        "report",
        "run.files",
        "run.lock",
        "run.read",
        "run.results",
        "scenario",
        "track.registry",
        "train",
        "yaml",
    },
    "run": {
        "build",
        "core",
        "domains.domain",
        "files",
        "report",
        "scenario",
        "terminal",
        "track",
        "train",
    },
    "tune": {
        "build",
        "core",
        "domains.domain",
        "files",
        "report",
        "run",
        "scenario",
        "terminal",
        "track",
        "train",
        "yaml",
    },
    "serve": {
        "build",
        "core",
        "domains.domain",
        "run",
        "track.registry",
        "track.served_policy",
    },
    "cluster": {"build", "core", "run", "scenario", "train", "tune"},
    "live": {
        "core",
        "report.statistics",
        "report.tokens",
        "run.files",
        "run.lock",
        "run.preview",
        "run.standing",
        "yaml",
    },
    "cli": {
        "build",
        "cluster",
        "core",
        "live",
        "report.numbers",
        "run",
        "scenario",
        "serve",
        "terminal",
        "track.dashboard",
        "tune",
    },
    # public names, and environments that Gymnasium finds by theirs
    "__init__": {
        "backend",
        "core.errors",
        "domains.trading.features",
        "domains.trading.registration",
        "run",
        "scenario",
        "tune.run",
    },
}
COMMANDS = {"cli.console", "cli.options", "terminal"}  # for a domain's own commands alone

# A library may be imported in these files only.
FENCES = {
    "fastapi": {"live/server"},
    "mlflow": {"track"},
    "uvicorn": {"live/server", "serve/run"},
    "opentelemetry": {"track/otlp"},
    "ray": {"cluster", "domains/control/actors"},
    "typer": {"cli", "domains/language/commands", "domains/trading/commands"},
    "click": {"cli"},
    "pydantic": {
        "cluster/messages",
        "scenario",
        "run/restore",
        "run/results",
        *(f"domains/{name}/domain" for name in ("control", "trading")),
        "domains/packing/scenario",
        "domains/language/config",
        "domains/language/results",
        "domains/trading/portfolio/domain",
        "domains/trading/gymnasium",
        "domains/trading/recipe",
    },
    "ruamel": {"yaml"},
    "gymnax": {"domains/control/gymnax"},
    "jumanji": {"domains/packing/jumanji", "domains/packing/maze"},
    "gymnasium": {
        "domains/control/atari",
        "domains/control/gymnasium",
        "domains/control/gymnasium_actions",
        "domains/control/gymnasium_pools",
        "domains/control/gymnasium_spaces",
        "domains/control/gymnasium_trees",
        "domains/control/own",
        "domains/control/worker",
        "domains/control/wrappers",
        "domains/trading/gymnasium",
        "domains/trading/registration",
    },
    "ale_py": {"domains/control/gymnasium"},
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
        "run/screen",
        "tune/screen",
        "terminal",
        "domains/language/commands",
        "domains/trading/commands",
    },
    "onnx": {"track/onnx"},
    "onnxruntime": {"track/onnx"},
    "polars": {"domains/trading", "domains/language/tables", "tune/table"},
    "optuna": {"tune/methods/optuna"},
    "cmaes": {"tune/methods/optuna"},
    "pickle": {"run/paint"},  # between our own processes; nothing of ours on disk is pickled
    "torch": set(),
}

FILES = sorted(SOURCE.rglob("*.py"))


# Where a domain's or an algorithm's name may stand besides its own folder and its own files.
TABLES = {"build", "__init__", "run/trainer"}  # the two tables, and the public names
# Words that are only spelt like one, or that name another on purpose.
EXPLAINED = {
    ("algorithms/ddpg", "ppo"): "the remedy in errors about spaces that DDPG cannot have",
    ("algorithms/sac", "ppo"): "the remedy in errors about spaces that SAC cannot have",
    ("algorithms/spo", "ppo"): "the remedy where there is nothing to copy for a search",
    ("live/server", "control"): "HTTP's header Cache-Control",
    ("domains/language/gguf", "control"): "GGUF's name for tokens such as end of text",
}
# The language domain has a stage of this name, with a file of its own.
STAGES = {"language": {"ppo"}}


def place_of(path: Path) -> str:
    return str(path.relative_to(SOURCE).with_suffix(""))


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def module_of(name: str) -> str:
    """The module of ours that a dotted import reads, without `proxima.`: a file, or a package."""
    parts = name.split(".")[1:]
    while parts:
        path = SOURCE.joinpath(*parts)
        if path.with_suffix(".py").is_file() or (path / "__init__.py").is_file():
            return ".".join(parts)
        parts.pop()
    return "__init__"


def modules_read(path: Path) -> set[str]:
    names = imports_of(path)
    return {module_of(name) for name in names if name == "proxima" or name.startswith("proxima.")}


def layer_of(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return parts[0]


def is_within(module: str, allowed: set[str]) -> bool:
    return any(module == each or module.startswith(f"{each}.") for each in allowed)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_layers(path):
    layer = layer_of(path)
    allowed = {layer} | ALLOWED[layer]
    if layer == "domains" and path.stem == "commands":
        allowed |= COMMANDS
    for module in modules_read(path):
        assert is_within(module, allowed), f"{place_of(path)} must not import {module}"
    for name in imports_of(path):
        library, place = name.split(".")[0], place_of(path)
        if library in FENCES:
            fits = any(place == f or place.startswith(f + "/") for f in FENCES[library])
            assert fits, f"{library} may not be imported in {place}"


def test_no_layer_is_allowed_what_it_does_not_use():
    """Otherwise the list above would slowly come to allow everything."""
    used = {layer: set[str]() for layer in ALLOWED}
    for path in FILES:
        used[layer_of(path)] |= modules_read(path)
    for layer, allowed in ALLOWED.items():
        idle = {each for each in allowed if not any(is_within(m, {each}) for m in used[layer])}
        assert not idle, f"{layer} no longer imports {idle}"


def test_no_domain_imports_another():
    for path in (SOURCE / "domains").rglob("*.py"):
        own = path.relative_to(SOURCE / "domains").with_suffix("").parts[0]
        for module in modules_read(path):
            if module.startswith("domains."):
                used = module.split(".")[1]
                shared = (
                    "curriculum",
                    "domain",
                    "environments",
                    "interface",
                    "judging",
                    "reinforcement",
                )
                assert used in (own, *shared), f"{path}: {module}"


def test_no_import_cycles():
    """Imports within functions count too; only the tables of build.py import what they name late."""
    graph = {
        place_of(path).replace("/", ".").removesuffix(".__init__"): modules_read(path)
        for path in FILES
    }
    graph["build"] = set()
    cycle = cycle_in(graph)
    assert cycle is None, " → ".join(cycle)


def cycle_in(graph: dict[str, set[str]]) -> list[str] | None:
    """Some modules that import each other in this order, the first named again; None if there are none."""
    finished: set[str] = set()

    def follow(module: str, trail: list[str]) -> list[str] | None:
        if module in trail:
            return [*trail[trail.index(module) :], module]
        if module in finished:
            return None
        for used in sorted(graph.get(module, ())):
            if found := follow(used, [*trail, module]):
                return found
        finished.add(module)
        return None

    return next((found for module in sorted(graph) if (found := follow(module, []))), None)


def test_a_cycle_is_found():
    assert cycle_in({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    assert cycle_in({"a": {"b", "c"}, "b": {"c"}, "c": set()}) is None


def owned_names() -> dict[str, tuple[str, ...]]:
    """Every domain's and algorithm's name, and the beginnings of the places that are its own."""
    from proxima.build import ALGORITHMS, DOMAINS

    folders = {name: path.split(":")[0].split(".")[2] for name, path in DOMAINS.items()}
    return {name: (f"domains/{folder}/",) for name, folder in folders.items()} | {
        name: (f"algorithms/{name}",) for name in ALGORITHMS
    }


def words_of(text: str) -> set[str]:
    """The words of an identifier or a text: PPOTrainer and ppo_trainer are both ppo and trainer."""
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", text)
    return set(re.split(r"[^a-z0-9]+", split.lower()))


def spoken(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Identifiers, attributes, imports and strings with their lines; no docstring, no comment."""
    documentation = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        match node:
            case ast.Constant(value=str(text)) if id(node) not in documentation:
                yield line, text
            case ast.Name(id=text) | ast.Attribute(attr=text) | ast.arg(arg=text):
                yield line, text
            case ast.FunctionDef(name=text) | ast.ClassDef(name=text):
                yield line, text
            case ast.keyword(arg=str(text)) | ast.ImportFrom(module=str(text)):
                yield line, text
            case ast.alias(name=text, asname=other):
                yield line, f"{text} {other or ''}"


def strays(place: str, text: str) -> list[str]:
    """Names of domains and algorithms that a source file has no business with, each with its line."""
    folder = place.split("/")[1] if place.startswith("domains/") else ""
    said = [(line, words_of(each)) for line, each in [(0, place), *spoken(ast.parse(text))]]
    found = []
    for name, homes in owned_names().items():
        is_own = place in TABLES or place.startswith(homes) or name in STAGES.get(folder, ())
        if is_own or (place, name) in EXPLAINED:
            continue
        found += [f"{place}:{line}: {name}" for line, words in said if name in words]
    return found


def test_nobody_names_a_domain_or_an_algorithm_but_itself():
    """A new one is its own folder or file and a line in a table of build.py: nothing else knows it."""
    found = [each for path in FILES for each in strays(place_of(path), path.read_text())]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    "text",
    [
        "from proxima.domains.trading import plots",
        "import proxima.algorithms.ppo",
        "def draw_trading(): ...",
        "class PPOReport: ...",
        "x = run.trading",
        "x = scenario.domain == 'language'",
        "f(ppo=1)",
        "x = f'{y}/ppo/metrics.jsonl'",
        "def f(control): ...",
    ],
)
def test_a_name_that_strays_is_found(text):
    assert strays("run/finish", text)
    assert not strays("run/finish", '# about trading\n"""PPO, for example."""\nx = \'controls\'\n')


def test_every_explained_name_is_still_there():
    for place, name in EXPLAINED:
        tree = ast.parse((SOURCE / f"{place}.py").read_text())
        assert any(name in words_of(said) for _, said in spoken(tree)), (place, name)


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
