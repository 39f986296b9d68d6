"""Settings for every test: strict shapes, several host devices, compiled programs kept between runs."""

import os
import signal
from pathlib import Path

import jax
import language_tiny
import pytest
from programs import forget_programs

from proxima import build
from proxima.train.devices import use_compilation_cache

# The files that take longest. They begin first: a long one at the end would keep one worker busy alone.
LONGEST = (
    "run/test_resume.py",
    "run/test_resume_optimized.py",
    "domains/trading/test_learning.py",
    "scenario/test_shipped.py",
    "run/test_learning.py",
    "run/test_signals.py",
    "golden/test_golden.py",
    "domains/packing/test_runs.py",
    "test_readme.py",
)
QUICKLY = "jax_disable_most_optimizations"
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


@pytest.fixture(scope="module", autouse=True)
def compiled(request):
    """A file's programs compile quickly rather than well, unless it is marked `optimized`.

    Compiling is most of the suite's time. The processes that a test starts do as their parent, so that
    bits may be compared.
    """
    quickly = request.node.get_closest_marker("optimized") is None
    os.environ[QUICKLY.upper()] = str(int(quickly))
    jax.config.update(QUICKLY, quickly)
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
