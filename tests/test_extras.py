"""A package that is not installed is a sentence with the command that installs it."""

import importlib
import sys
from pathlib import Path

import pytest

from proxima.core.errors import ProximaError
from proxima.core.extras import needs_extra
from proxima.domains.control import envpool, gymnasium
from proxima.domains.control.config import EnvConfig
from proxima.domains.language import hub
from proxima.domains.packing import jumanji
from proxima.domains.packing.scenario import PackingEnvConfig
from proxima.live import server
from proxima.scenario.search import Range, SearchConfig
from proxima.serve.run import Settings, serve
from proxima.track import dashboard
from proxima.track.onnx.convert import onnx_model
from proxima.tune.methods import make_method

MAZE = PackingEnvConfig(
    name="Maze-v0", backend="jumanji", params={"unheard_of": 1}
)  # not made before
PONG = EnvConfig(name="ALE/Pnog-v5", backend="gymnasium")  # not registered by whoever came before
CARTPOLE = EnvConfig(name="CartPole-v1", backend="envpool")


def without(monkeypatch, *packages):
    """As if none of these were installed."""
    for name in list(sys.modules):
        if name.partition(".")[0] in packages:
            monkeypatch.delitem(sys.modules, name)
    for package in packages:
        monkeypatch.setitem(sys.modules, package, None)


def refusal(needed, extra, package):
    return f"{needed} needs the package {package}; install it with  pip install 'proxima[{extra}]'"


@pytest.mark.parametrize(
    ("package", "call", "needed", "extra"),
    [
        ("jumanji", lambda: jumanji.make(MAZE, 0), "env.backend: jumanji", "packing"),
        ("envpool", lambda: envpool.EnvPool(CARTPOLE, 1), "env.backend: envpool", "envpool"),
        ("ale_py", lambda: gymnasium.make_env(PONG), "env.name: ALE/Pnog-v5", "atari"),
        ("huggingface_hub", lambda: hub.locate("a/b"), "a/b: a model of the hub", "language"),
        ("onnx", lambda: onnx_model(Path()), "proxima export --onnx", "onnx"),
        ("uvicorn", lambda: serve(Settings("cartpole", port=0), print), "proxima serve", "serve"),
        ("flask", lambda: dashboard.serve(None, 5999, False), "proxima dashboard", "dashboard"),
        ("fastapi", lambda: server.serve("logs", 0, True, print), "proxima live", "live"),
    ],
)
def test_a_missing_package_is_named_with_its_remedy(monkeypatch, package, call, needed, extra):
    without(monkeypatch, package)
    with pytest.raises(ProximaError) as caught:
        call()
    assert str(caught.value) == refusal(needed, extra, package)


def test_box2d_is_one_of_our_extras(monkeypatch):
    without(monkeypatch, "Box2D")
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d.lunar_lander", raising=False)
    monkeypatch.delitem(sys.modules, "gymnasium.envs.box2d", raising=False)
    with pytest.raises(ProximaError) as caught:
        gymnasium.make_env(EnvConfig(name="LunarLander-v3", backend="gymnasium"), render=False)
    assert str(caught.value) == refusal("env.name: LunarLander-v3", "box2d", "Box2D")


def test_language_is_refused_when_its_first_module_is_imported(monkeypatch):
    name = "proxima.domains.language.tokenizer"
    importlib.import_module(name)
    without(monkeypatch, "tokenizers")
    monkeypatch.delitem(sys.modules, name)
    with pytest.raises(ProximaError) as caught:
        importlib.import_module(name)
    assert str(caught.value) == refusal("domain: language", "language", "tokenizers")


@pytest.mark.parametrize("package", ["optuna", "cmaes"])
def test_optuna_is_refused_when_a_search_asks_for_it(monkeypatch, package):
    without(monkeypatch, package)
    monkeypatch.delitem(sys.modules, "proxima.tune.methods.optuna", raising=False)
    monkeypatch.delattr("proxima.tune.methods.optuna", raising=False)
    with pytest.raises(ProximaError) as caught:
        make_method(
            SearchConfig(method="tpe"), {"a": Range("uniform", 0, 1)}, lambda settings: None
        )
    assert str(caught.value) == refusal("search.method: tpe or cma-es", "tune", package)


def test_a_broken_package_is_refused_with_the_reason():
    words = r"needs the package tool \(too old\); install it with"
    with pytest.raises(ProximaError, match=words), needs_extra("tools", "env.backend: tool"):
        raise ImportError("too old", name="tool.part")
