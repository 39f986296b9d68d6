"""Makes `gymnasium.make("proxima/Trading-v0", …)` work, without importing Gymnasium for those who do not.

Gymnasium has no entry points for other packages' environments, and importing it takes longer than
`proxima --help` may. So the environment is registered at once where Gymnasium is there already, and
otherwise right after somebody imports it.
"""

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # importlib.abc takes longer to import than all else that `import proxima` does
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

NAME = "proxima/Trading-v0"
ENTRY_POINT = "proxima.domains.trading.gymnasium:TradingGymEnv"


def register_with_gymnasium() -> None:
    """Register now, or when Gymnasium is imported."""
    if "gymnasium" in sys.modules:
        _register()
    else:
        sys.meta_path.insert(0, _Registrar())


def _register() -> None:
    from gymnasium.envs.registration import register, registry

    if NAME not in registry:
        register(id=NAME, entry_point=ENTRY_POINT)


class _Registrar:
    """A finder of modules, which waits for the import of Gymnasium, once."""

    def find_spec(
        self, name: str, path: "Sequence[str] | None", target: "ModuleType | None" = None
    ) -> "ModuleSpec | None":
        if name != "gymnasium":
            return None
        import importlib.util

        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def execute_and_register(module: "ModuleType") -> None:
                execute(module)
                _register()

            spec.loader.exec_module = execute_and_register  # type: ignore[method-assign]
        return spec
