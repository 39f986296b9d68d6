"""Proxima on language: generation, iterations of PPO, updates of LoRA, and the memory of four models.

    python benchmarks/ours_language.py generation --updates 10
    python benchmarks/ours_language.py ppo
    python benchmarks/ours_language.py smollm2_generation
    python benchmarks/ours_language.py smollm2_lora
    python benchmarks/ours_language.py memory
    python benchmarks/ours_language.py write       SmolLM2-135M, as a folder that the rival reads too

The rivals are peers/trl_ppo.py and peers/torch_smollm2.py; peers/language_task.py says what everyone is
given. Compiling is over before anything is timed. An iteration is what the stage of PPO does: generation, the
four models' opinions, rewards and advantages, four optimizer steps of policy and critic, metrics.
"""

import json
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import language_task as task
import protocol

os.environ.setdefault("NPROC", str(task.THREADS))  # before JAX sizes its pool

import jax
import jax.numpy as jnp
import tokenizers

from proxima.domains.language.config import (
    KLConfig,
    LanguagePPOConfig,
    NewModelConfig,
    RewardConfig,
    SFTConfig,
)
from proxima.domains.language.generate import Generator
from proxima.domains.language.gguf import import_smollm2
from proxima.domains.language.hf import load_model
from proxima.domains.language.model import REFERENCE, fresh_part, new_shape
from proxima.domains.language.ppo import ppo_stage
from proxima.domains.language.reward_model import RewardModel
from proxima.domains.language.rewards import RewardComputer
from proxima.domains.language.sft import sft_stage
from proxima.domains.language.tokenizer import Tokenizer, left_padded
from proxima.nets.lora import LoraConfig
from proxima.nets.transformer import Decoder, new_decoder

LORA = LoraConfig(rank=task.LORA_RANK, alpha=task.LORA_ALPHA)
SEED = 0


def small_model() -> Decoder:
    """The Llama of 627,360 parameters."""
    small = task.Small()
    shape = NewModelConfig(
        layers=small.layers,
        width=small.width,
        heads=small.heads,
        inner=small.inner,
        context=small.context,
    )
    return new_decoder(jax.random.key(SEED), new_shape(shape, small.vocabulary))


def smollm2() -> Decoder:
    """The model that `write` put there."""
    return load_model(task.SMOLLM2, "float32")


def endless(vocabulary: int) -> Tokenizer:
    """Names for the ids; its EOS is no token of the model's, so that nobody stops early."""
    words = {f"w{each}": each for each in range(vocabulary)}
    core = tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="w0"))
    return Tokenizer(core, (vocabulary,), pad_id=0)


def prepare_generation(base: Decoder, batch: task.Batch, updates: int) -> protocol.Run:
    """Warm generation, with the log-probabilities of what is drawn."""
    prompts = task.token_rows(batch.rows, batch.prompt, base.config.vocabulary)
    generator = Generator(base, endless(base.config.vocabulary), batch.new, task.TEMPERATURE)
    rows = left_padded(prompts, pad_id=0)
    runs = 0

    def run() -> dict:
        nonlocal runs
        tokens, start = 0, time.perf_counter()
        for _ in range(updates):
            runs += 1
            samples = generator.generate(REFERENCE, rows, jax.random.key(runs))
            tokens += int(jnp.sum(samples.completions.mask))
        return task.answer(tokens, time.perf_counter() - start, tokens / updates)

    run()
    return run


def stage_of(base: Decoder, lora: LoraConfig | None, batch: task.Batch):
    """PPO with a reward model of the policy's size, over the base or with weights of its own."""
    config = LanguagePPOConfig(
        updates=10**6,
        batch_size=batch.rows,
        new_tokens=batch.new,
        temperature=task.TEMPERATURE,
        epochs_per_update=task.EPOCHS,
        minibatch_size=batch.rows // task.MINIBATCHES,
        learning_rate=task.LEARNING_RATE,
        adam_eps=task.ADAM_EPS,
        clip_epsilon=task.CLIP,
        value_clip_epsilon=task.VALUE_CLIP,
        value_coef=task.VALUE_COEFFICIENT,
        gamma=task.GAMMA,
        gae_lambda=task.LAMBDA,
        kl=KLConfig(coefficient=task.KL_COEFFICIENT),
    )
    part = fresh_part(jax.random.key(SEED + 1), base, lora, head=True)
    head = part.head._replace(weight=jax.random.normal(jax.random.key(2), part.head.weight.shape))
    model = RewardModel(base, part._replace(head=head), jnp.zeros(()), jnp.ones(()))
    prompts = task.token_rows(batch.rows, batch.prompt, base.config.vocabulary)
    reward = RewardComputer(RewardConfig(), model=model)
    return ppo_stage(
        config, reward, base, lora, prompts, endless(base.config.vocabulary), seed=SEED
    )


def prepare_ppo(batch: task.Batch, updates: int) -> protocol.Run:
    """Warm iterations of PPO, all weights of all four models their own."""
    stage = stage_of(small_model(), None, batch)
    state, count = stage.init(), 0

    def run() -> dict:
        nonlocal state, count
        steps, tokens, start = 0.0, 0.0, time.perf_counter()
        parts = dict.fromkeys(("time/generate", "time/score", "time/learn"), 0.0)
        for _ in range(updates):
            state, metrics = stage.update(state, count)
            count += 1
            steps += metrics["train/optimizer_steps"]
            tokens += metrics["train/length"] * batch.rows
            parts = {name: spent + metrics[name] for name, spent in parts.items()}
        seconds = time.perf_counter() - start
        return task.answer(updates, seconds, steps / updates, tokens / updates) | parts

    run()
    return run


def prepare_lora(base: Decoder, rows: int, updates: int) -> protocol.Run:
    """Warm updates of LoRA adapters."""
    tokens = task.SMOLLM2_LORA.new
    texts = task.token_rows(rows, tokens, base.config.vocabulary)
    config = SFTConfig(
        epochs=10**6,
        batch_size=rows,
        learning_rate=task.LEARNING_RATE,
        max_tokens=tokens,  # which cuts the EOS off that the stage puts behind a text
        evaluate_every=10**6,
    )
    stage = sft_stage(config, base, LORA, texts, texts, eos_id=0, seed=SEED)
    state, count = stage.init(), 0
    learnt = sum(leaf.size for leaf in jax.tree.leaves(state.part))

    def update() -> float:
        nonlocal state, count
        state, metrics = stage.update(state, count)
        count += 1
        return metrics["loss/sft"]

    first = update()

    def run() -> dict:
        start = time.perf_counter()
        for _ in range(updates):
            update()
        return task.answer(updates, time.perf_counter() - start, learnt, first)

    run()
    return run


def memory(batch: task.Batch) -> dict[str, float]:
    """Bytes of all live arrays between updates of PPO with LoRA, and of the process at its largest.

    Policy, reference, critic and reward model over one base, with both optimizers' moments. What compiled
    programs use inside while they run is in the process's figure only.
    """
    base = smollm2()
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(base))
    loaded = resident()
    stage = stage_of(base, LORA, batch)
    state, largest = stage.init(), 0
    for n in range(2):
        state, _ = stage.update(state, n)
        largest = max(largest, sum(array.nbytes for array in jax.live_arrays()))
    return {
        "base_bytes": size,
        "live_bytes": largest,
        "ratio": largest / size,
        "process_bytes_with_base": loaded,
        "process_bytes_at_most": resident("VmHWM"),
    }


def resident(row: str = "VmRSS") -> int:
    """Bytes of the process in memory, now or (VmHWM) at most so far; 0 where the system does not say."""
    status = Path("/proc/self/status")
    if not status.exists():
        return 0
    rows = dict(line.split(":", 1) for line in status.read_text().splitlines())
    return int(rows[row].split()[0]) * 1024


def prepared(part: str, rows: int | None, updates: int) -> protocol.Run:
    """The measurement by its name, with the line's rows or others."""
    if part == "ppo":
        return prepare_ppo(task.SMALL._replace(rows=rows or task.SMALL.rows), updates)
    if part == "smollm2_lora":
        return prepare_lora(smollm2(), rows or task.SMOLLM2_LORA.rows, updates)
    usual = task.SMALL if part == "generation" else task.SMOLLM2_GENERATION
    base = small_model() if part == "generation" else smollm2()
    return prepare_generation(base, usual._replace(rows=rows or usual.rows), updates)


def main() -> None:
    """Times or measures what the command line asks for."""
    parser = task.arguments("Proxima on language", (*task.PARTS, "memory", "write"))
    options = parser.parse_args()
    if options.part == "write":
        if not (task.SMOLLM2 / "config.json").is_file():
            import_smollm2(task.SMOLLM2)
    elif options.part == "memory":
        usual = task.SMOLLM2_PPO
        print(json.dumps(memory(usual._replace(rows=options.rows or usual.rows))))
    else:
        run = options.part, options.rows, options.updates
        protocol.speak(lambda: prepared(*run), options.repeat, options.serve)


if __name__ == "__main__":
    main()
