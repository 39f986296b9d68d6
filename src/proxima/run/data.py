"""Making and looking at the data of scenarios."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from proxima.build import Market
from proxima.core.errors import ProximaError
from proxima.domains.trading.config import DataConfig
from proxima.scenario import AnyScenario, LanguageScenario, load, with_environment

DATA_ENDINGS = (".parquet", ".csv")


def generate_for(scenario: AnyScenario, root: str | Path = ".") -> Path:
    """Writes the data that a scenario describes: synthetic prices, or texts and a model to start from."""
    if isinstance(scenario, LanguageScenario):
        from proxima.domains.language.obtain import obtain

        return obtain(scenario, Path(root))
    from proxima.domains.trading.data import write_synthetic

    return write_synthetic(_data_of(scenario), scenario.name, root)


def generate_pattern(
    pattern: str, name: str | None, settings: Mapping[str, Any], root: str | Path = "."
) -> Path:
    """Writes a pattern's prices under a name, its own by default; settings are rows, seed and its params."""
    from proxima.domains.trading.data import write_synthetic

    params = {key: value for key, value in settings.items() if key not in ("rows", "seed")}
    config = DataConfig(
        pattern=pattern,
        rows=_whole("rows", settings.get("rows", DataConfig.rows)),
        seed=_whole("seed", settings.get("seed", DataConfig.seed)),
        params=params,
    )
    return write_synthetic(config, pattern if name is None else name, root)


def patterns() -> list[dict[str, Any]]:
    """Every synthetic pattern with its settings, in plain data."""
    from proxima.domains.trading.synthetic import describe_patterns

    return describe_patterns()


def peek_at(reference: str, plot: Path | None, root: str | Path = ".") -> dict[str, Any]:
    """A summary of a data file's or a scenario's data, and a picture of its prices."""
    from proxima.domains.trading.data import read_source
    from proxima.domains.trading.peek import peek

    if reference.lower().endswith(DATA_ENDINGS):
        config, name = DataConfig(path=reference), Path(reference).stem
    else:
        scenario = load(reference)
        config, name = _data_of(scenario), scenario.name
    summary, time, close = peek(read_source(config, name, root), config)
    if plot is not None:
        from proxima.domains.trading.price_plot import price_plot

        splits = {each["split"]: (each["first"], each["last"]) for each in summary["splits"]}
        try:
            price_plot(plot, time, close, splits, f"{name}: {len(close):,} bars")
        except OSError as failure:
            raise ProximaError(
                f"--plot {plot}: cannot write there ({failure.strerror})"
            ) from failure
    return summary


def data_facts(market: Market | None) -> dict[str, Any] | None:
    """What a run notes of its prices, so that nobody resumes it on others; None where it has none."""
    if market is None:
        return None
    return {"source": market.prepared.source} | market.prepared.fingerprint._asdict()


def check_data(noted: Mapping[str, Any] | None, market: Market | None) -> str | None:
    """An error where the prices are not those that were noted; words for the user where features differ."""
    now = data_facts(market)
    if noted is None or now is None:
        return None
    if now["prices_sha256"] != noted["prices_sha256"]:
        raise ProximaError(
            f"{now['source']}: has changed since the run was started: {_difference(noted, now)}; "
            "put the old file back to resume, or start a new run"
        )
    if now["features_sha256"] != noted["features_sha256"]:
        return (
            "The features come out otherwise than when the run was started, though the prices are the "
            "same: their code or a library has changed. What follows may differ from what the run "
            "would have given."
        )
    return None


def _difference(noted: Mapping[str, Any], now: Mapping[str, Any]) -> str:
    def told(facts: Mapping[str, Any]) -> str:
        return f"{facts['rows']:,} rows until {_day(facts['last'])}"

    if told(noted) == told(now):
        return "it has as many rows as then, but other values in them"
    return f"it had {told(noted)}, now it has {told(now).replace(' rows', '')}"


def _day(stamp: str) -> str:
    """A time in UTC without what is zero."""
    return stamp.removesuffix("+00:00").removesuffix("T00:00:00")


def _data_of(scenario: AnyScenario) -> DataConfig:
    scenario = with_environment(scenario, "name a trading scenario or a .parquet or .csv file")
    if scenario.data is None:
        raise ProximaError(
            f"{scenario.name}: has no data section, it is not about trading; name a trading scenario "
            "(proxima scenarios lists all) or a .parquet or .csv file"
        )
    return scenario.data


def _whole(key: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value != int(value):
        raise ProximaError(f"--set: {key}: expected a whole number, got {value!r}")
    return int(value)
