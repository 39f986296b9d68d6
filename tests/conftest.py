"""Settings for every test: strict shapes, several host devices, compiled programs kept between runs."""

import os
import signal
from pathlib import Path

import jax
import language_tiny
import pytest
from jax._src import compiler  # no flag of one program can be set otherwise
from programs import forget_programs

from proxima import build
from proxima.train.devices import use_compilation_cache

# The files that take longest. They begin first: a long one at the end would keep one worker busy alone.
LONGEST = (
    "scenario/test_shipped.py",
    "run/test_resume.py",
    "golden/test_golden.py",
    "domains/trading/test_learning.py",
    "test_readme.py",
    "run/test_resume_optimized.py",
    "run/test_signals.py",
    "run/test_learning.py",
    "domains/packing/test_runs.py",
)
QUICKLY = "jax_disable_most_optimizations"
# Without XLA's emitters of fused loops a small run takes two thirds of the time, most of which is compiling.
EMITTERS = "xla_cpu_use_fusion_emitters"
NO_EMITTERS = f"--{EMITTERS}=false"


def choose_flags(with_emitters: bool) -> None:
    """XLA's flags for the processes that tests start; those of the user's environment stay."""
    flags = [flag for flag in os.environ.get("XLA_FLAGS", "").split() if flag != NO_EMITTERS]
    os.environ["XLA_FLAGS"] = " ".join([*flags] if with_emitters else [*flags, NO_EMITTERS])


choose_flags(with_emitters=False)  # this process reads them when JAX starts, below
jax.config.update("jax_numpy_rank_promotion", "raise")
# Also in the processes of tests: with as many devices they find the programs that were compiled here.
os.environ["JAX_NUM_CPU_DEVICES"] = "4"
jax.config.update("jax_num_cpu_devices", 4)
jax.config.update("jax_cpu_enable_async_dispatch", False)  # as train/devices.py has it
use_compilation_cache()
jax.devices()  # starts JAX now, so that no run of a test asks for another number of devices


def pytest_collection_modifyitems(items):
    """Long files first, the others in their order."""
    tests = Path(__file__).parent

    def rank(item) -> int:
        name = item.path.relative_to(tests).as_posix()
        return LONGEST.index(name) if name in LONGEST else len(LONGEST)

    items.sort(key=rank)


def options_with_emitters(*given, get=compiler.get_compile_options, **named):
    """Of one program: as where XLA's flags say nothing of emitters."""
    options = get(*given, **named)
    options.env_option_overrides = [*options.env_option_overrides, (EMITTERS, True)]
    return options


@pytest.fixture(scope="module", autouse=True)
def compiled(request):
    """A file's programs compile quickly rather than well, unless it is marked `optimized`.

    Compiling is most of the suite's time. The processes that a test starts do as their parent, so that
    bits may be compared.
    """
    marks = {mark.name for mark in request.node.iter_markers()}
    quickly, with_emitters = "optimized" not in marks, bool({"optimized", "emitters"} & marks)
    os.environ[QUICKLY.upper()] = str(int(quickly))
    jax.config.update(QUICKLY, quickly)
    choose_flags(with_emitters)
    with pytest.MonkeyPatch.context() as patch:
        if with_emitters:
            patch.setattr(compiler, "get_compile_options", options_with_emitters)
        yield
        forget_programs()
    build._importable.clear()  # a run notes these directories, and another file's are not its own


@pytest.fixture(scope="module")
def tokenizer():
    """Of a few hundred tokens."""
    return language_tiny.tokenizer()


@pytest.fixture(scope="module")
def base(tokenizer):
    """A decoder of random weights for that tokenizer."""
    return language_tiny.decoder(tokenizer.size)


@pytest.fixture
def workdir(tmp_path, monkeypatch):
    """An empty working directory: runs, stores and plots of a test go there."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture(autouse=True)
def hears_signals():
    """Also where this process was started to ignore them, by nohup or in the background."""
    handlers = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
        signal.SIGHUP: signal.SIG_DFL,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)
