"""An adapter_config.json of PEFT's, read: which modules it changes, with which rank and scale.

    change = scale · B A,  scale = alpha / rank, or alpha / √rank with use_rslora

Only plain LoRA is known: every setting by which PEFT makes something else of A and B, or of the base below
them, is refused in words. Patterns are matched as PEFT does it, in a process of their own: one that
backtracks for ever ends after some seconds.
"""

import json
import math
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from proxima.core.errors import ProximaError
from proxima.domains.language.hf_config import checked_number, checked_size, read_object, shown

SETTINGS = "adapter_config.json"
MERGED = "; in PEFT, merge it into its base (merge_and_unload) and save that, which is a model of its own"
# Settings by which A and B are not what is added to the base, and what they are in plain LoRA.
PLAIN = {
    "alora_invocation_tokens": None,
    "arrow_config": None,
    "bias": "none",
    "kasa_config": None,
    "layer_replication": None,
    "lora_bias": False,
    "megatron_config": None,
    "modules_to_save": None,
    "monteclora_config": None,
    "target_parameters": None,
    "trainable_token_indices": None,
    "use_bdlora": None,
    "use_dora": False,
    "use_qalora": False,
    "velora_config": None,
}
MODULES = ("target_modules", "exclude_modules")
UNMERGEABLE = (
    "alora_invocation_tokens",
    "arrow_config",
)  # which tokens they change depends on the text
READ = {
    *MODULES,
    *("alpha_pattern", "init_lora_weights", "layers_pattern"),
    *("layers_to_transform", "lora_alpha", "peft_type", "r", "rank_pattern"),
    "use_rslora",
}
# Settings of training, and of starts that are over.
WITHOUT_EFFECT = {
    *("auto_mapping", "base_model_name_or_path", "corda_config", "ensure_weight_tying"),
    *("eva_config", "fan_in_fan_out", "inference_mode", "loftq_config", "lora_dropout"),
    *("lora_ga_config", "megatron_core", "peft_version", "qalora_group_size", "revision"),
    *("runtime_config", "task_type"),
}
# Starts that leave the base as it is; PiSSA, OLoRA, CorDA, LoftQ and LoRA-GA take something out of it.
STARTS = (None, True, False, "gaussian", "eva", "orthogonal", "mica")
PATIENCE = 5  # seconds of computing that all patterns may take together
# Answers pattern by pattern, so that the one which is not answered is known.
MATCHING = """
import json, re, resource, sys
patience, jobs, texts = json.load(sys.stdin)
resource.setrlimit(resource.RLIMIT_CPU, (patience, patience))
for how, pattern in jobs:
    print(json.dumps([text for text in texts if getattr(re, how)(pattern, text)]), flush=True)
"""


class Scale(NamedTuple):
    """What adapter_config.json says of one module's change."""

    rank: int
    scale: float


def read_adapter_settings(folder: Path) -> dict[str, Any]:
    """A folder's adapter_config.json; one of anything but plain LoRA is an error."""
    file = folder / SETTINGS
    if not file.is_file():
        raise ProximaError(f"{file}: no such file; an adapter of PEFT's has one")
    settings = read_object(file)
    if settings.get("peft_type") != "LORA":
        raise ProximaError(f"{file}: peft_type {settings.get('peft_type')!r}; only LORA")
    for name, plain in PLAIN.items():
        value = settings.get(name, plain)
        empty = value == [] and name != "alora_invocation_tokens"
        if not (value == plain or value is None or value is False or empty):
            remedy = "" if name in UNMERGEABLE else MERGED
            raise ProximaError(f"{file}: {name}: {shown(value)} is not supported{remedy}")
    start = settings.get("init_lora_weights", True)
    if start not in STARTS:
        raise ProximaError(
            f"{file}: init_lora_weights: {shown(start)} means that A and B were trained over a base that "
            "they had changed first; save it again with path_initial_model_for_weight_conversion, which "
            f"writes a plain adapter{MERGED.replace('; in PEFT', ', or in PEFT')}"
        )
    for name in sorted(settings.keys() - PLAIN.keys() - READ - WITHOUT_EFFECT):
        if settings[name] not in (None, False, [], {}):
            raise ProximaError(f"{file}: {name}: {shown(settings[name])} is not known here{MERGED}")
    return settings


def scales_of(
    settings: Mapping[str, Any], layers: Mapping[str, int], file: Path
) -> dict[str, Scale]:
    """Rank and scale of modules by their path, each with its layer; one that PEFT would leave is an error."""
    matching = _matching(settings, list(layers), file)
    _check_targets(settings, matching, layers, file)
    ranks = dict.fromkeys(layers, checked_size("r", settings.get("r", 8), file))
    alpha = checked_number("lora_alpha", settings.get("lora_alpha", 8), file)
    alphas = dict.fromkeys(layers, alpha)
    # the first pattern that fits counts, so it is laid over the others
    for (name, pattern), paths in reversed(matching.items()):
        if name == "rank_pattern":
            path = f"{name}.{shown(pattern)}"
            ranks |= dict.fromkeys(paths, checked_size(path, settings[name][pattern], file))
        elif name == "alpha_pattern":
            path = f"{name}.{shown(pattern)}"
            alphas |= dict.fromkeys(paths, checked_number(path, settings[name][pattern], file))
    rooted = settings.get("use_rslora", False)
    if rooted not in (None, True, False):
        raise ProximaError(f"{file}: use_rslora is {shown(rooted)}; it should be true or false")
    return {
        path: Scale(ranks[path], alphas[path] / (math.sqrt(ranks[path]) if rooted else ranks[path]))
        for path in layers
    }


def _matching(
    settings: Mapping[str, Any], paths: list[str], file: Path
) -> dict[tuple[str, str], list[str]]:
    """The paths that match, for every setting that is or has patterns and each of these."""
    jobs: dict[tuple[str, str], tuple[str, str]] = {}
    for name in MODULES:
        if isinstance(settings.get(name), str):
            jobs[name, settings[name]] = "fullmatch", settings[name]
    for name in ("rank_pattern", "alpha_pattern"):
        patterns = settings.get(name) or {}
        if not isinstance(patterns, dict):
            raise ProximaError(f"{file}: {name} should be an object of patterns and numbers")
        for pattern in patterns:  # PEFT's rule: all of a path, or its end
            jobs[name, pattern] = "match", rf"(.*\.)?({pattern})$"
    if not jobs:
        return {}
    command = [sys.executable, "-I", "-S", "-c", MATCHING]
    question = json.dumps([PATIENCE, list(jobs.values()), paths])
    done = subprocess.run(command, input=question, capture_output=True, text=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    if len(answers) < len(jobs):
        name, pattern = list(jobs)[len(answers)]
        reason = (done.stderr.strip().splitlines() or [f"takes longer than {PATIENCE} s"])[-1]
        raise ProximaError(
            f"{file}: {name}: the pattern {shown(pattern)} cannot be matched ({reason}); write a simpler one"
        )
    return dict(zip(jobs, answers, strict=True))


def _check_targets(
    settings: Mapping[str, Any],
    matching: Mapping[tuple[str, str], list[str]],
    layers: Mapping[str, int],
    file: Path,
) -> None:
    """Refuse weights for modules that the settings leave out, which PEFT would ignore."""

    def named(name: str) -> set[str]:
        wanted = settings.get(name) or []
        if isinstance(wanted, str):
            return set(layers if wanted.lower() == "all-linear" else matching[name, wanted])
        if not isinstance(wanted, list) or not all(isinstance(end, str) for end in wanted):
            raise ProximaError(f"{file}: {name} should be a list of names, or one pattern")
        return {path for path in layers if f".{path}".endswith(tuple(f".{end}" for end in wanted))}

    changed = named("target_modules") - named("exclude_modules")
    chosen, pattern = settings.get("layers_to_transform"), settings.get("layers_pattern")
    chosen = [chosen] if type(chosen) is int else chosen or list(layers.values())
    if not isinstance(chosen, list) or not all(type(layer) is int for layer in chosen):
        raise ProximaError(f"{file}: layers_to_transform should be whole numbers")
    if pattern not in (None, "", [], "layers", ["layers"], "h", ["h"]):
        raise ProximaError(f"{file}: layers_pattern: {shown(pattern)} is not known here{MERGED}")
    for path, layer in layers.items():
        if path not in changed or layer not in chosen:
            raise ProximaError(
                f"{file}: leaves out {path}, for which there are weights; is it of another adapter?"
            )
