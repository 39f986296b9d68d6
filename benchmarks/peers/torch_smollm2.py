"""torch, transformers and peft on SmolLM2-135M: generation, or updates of LoRA adapters, on the CPU.

    python benchmarks/peers/torch_smollm2.py generation
    python benchmarks/peers/torch_smollm2.py lora --updates 2

The folder is the one that ours is given too; `python benchmarks/ours_language.py write` makes it.

The same as ours: the weights, float32, two threads. Generation: 16 prompts of 16 tokens, 64 new ones each,
with a cache, plain sampling at temperature 1, no EOS. LoRA: rank 16, alpha 32 on q, k, v and o; 8 texts
of 64 tokens, the loss of the next token, forward, backward and a step of AdamW (fused; others not compared).

What differs, in torch's favour: no log-probabilities are kept in generation, and no gradient norm is clipped.
"""

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import language_task as task
import protocol
import venvs

if __name__ == "__main__":
    venvs.enter("trl")


def load():
    """The model, in float32."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(task.THREADS)
    if not (task.SMOLLM2 / "config.json").is_file():
        raise SystemExit(
            f"{task.SMOLLM2}: no model; run `python benchmarks/ours_language.py write`"
        )
    return AutoModelForCausalLM.from_pretrained(task.SMOLLM2, dtype=torch.float32)


def prepare_generation(rows: int, updates: int) -> protocol.Run:
    """Warm generation."""
    import torch

    model = load().eval()
    model.generation_config.eos_token_id = None
    batch = task.SMOLLM2_GENERATION
    prompts = torch.tensor(task.token_rows(rows, batch.prompt, model.config.vocab_size))

    @torch.no_grad()
    def run() -> dict:
        tokens, start = 0, time.perf_counter()
        for _ in range(updates):
            texts = model.generate(
                input_ids=prompts,
                attention_mask=torch.ones_like(prompts),
                max_new_tokens=batch.new,
                do_sample=True,
                temperature=task.TEMPERATURE,
                top_k=0,
                top_p=1.0,
                use_cache=True,
            )
            tokens += texts[:, batch.prompt :].numel()
        return task.answer(tokens, time.perf_counter() - start, tokens / updates)

    run()
    return run


def prepare_lora(rows: int, updates: int) -> protocol.Run:
    """Warm updates of the adapters."""
    import torch
    from peft import LoraConfig, get_peft_model

    base = load()
    config = LoraConfig(
        r=task.LORA_RANK,
        lora_alpha=task.LORA_ALPHA,
        lora_dropout=0.0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
    )
    model = get_peft_model(base, config).train()
    learnt = [each for each in model.parameters() if each.requires_grad]
    optimizer = torch.optim.AdamW(learnt, lr=task.LEARNING_RATE, eps=task.ADAM_EPS, fused=True)
    ids = torch.tensor(task.token_rows(rows, task.SMOLLM2_LORA.new, base.config.vocab_size))

    def update() -> float:
        # use_cache False: keys and values are not kept
        loss = model(input_ids=ids, labels=ids, use_cache=False).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    first = update()

    def run() -> dict:
        start = time.perf_counter()
        for _ in range(updates):
            update()
        seconds = time.perf_counter() - start
        size = sum(each.numel() for each in learnt)
        return task.answer(updates, seconds, size, first)

    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    options = task.arguments("torch on SmolLM2-135M", ("generation", "lora")).parse_args()
    usual = task.SMOLLM2_LORA if options.part == "lora" else task.SMOLLM2_GENERATION
    rows = options.rows or usual.rows
    prepare = prepare_lora if options.part == "lora" else prepare_generation
    protocol.speak(lambda: prepare(rows, options.updates), options.repeat, options.serve)


if __name__ == "__main__":
    main()
