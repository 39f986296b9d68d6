"""TRL 1.12.0, the last with PPO: its generation alone, or whole iterations of its PPOTrainer, on the CPU.

    python benchmarks/peers/trl_ppo.py generation
    python benchmarks/peers/trl_ppo.py ppo --updates 3

The same as ours: a random Llama of 627,360 parameters, 64 prompts of 5 tokens, 20 new tokens each, plain
sampling at temperature 1; policy, reference, value and reward models all of that size, trained in full;
two epochs of two minibatches of 32, AdamW; two threads, float32.

Optimizer steps. With batches of 32 and two steps of accumulation, the way its arguments suggest, TRL's
accelerator takes one optimizer step for every two minibatches (unless the batch happens to be the last of the
data): 2 steps of 64 samples per iteration instead of 4 of 32. With per_device_train_batch_size 64 and no
accumulation a minibatch of 32 is one short micro-batch, and each is a step; a hook on the optimizer counts
them and the driver compares.

What differs, in TRL's favour: its generation gives logits, ours the log-probabilities of what was drawn; it
takes the old log-probabilities from generation (we compute them again with the training forward), clips no
gradient norm, and has no adaptive KL. Against it: it computes logits at the prompt's places too, and
collects garbage twice per iteration. Everything optional is off: saving, reports, progress, sample tables,
gradient checkpointing, bfloat16. The optimizer is the fused one; others were not compared.
"""

import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
import language_task as task
import protocol
import venvs

if __name__ == "__main__":
    venvs.enter("trl")

PAD = task.Small().vocabulary  # no token of the model's: nothing that it says is padding


def model_config(**more):
    """The small Llama, as transformers says it."""
    from transformers import LlamaConfig

    small = task.Small()
    return LlamaConfig(
        vocab_size=small.vocabulary,
        hidden_size=small.width,
        intermediate_size=small.inner,
        num_hidden_layers=small.layers,
        num_attention_heads=small.heads,
        num_key_value_heads=small.heads,
        max_position_embeddings=small.context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        **more,
    )


def tokenizer():
    """Names for the ids; TRL asks it for its special tokens only."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{each}": each for each in range(PAD)} | {"<pad>": PAD, "<eos>": PAD + 1}
    names = Tokenizer(models.WordLevel(words, unk_token="w0"))
    return PreTrainedTokenizerFast(
        tokenizer_object=names,
        pad_token="<pad>",
        eos_token="<eos>",
        unk_token="w0",
        padding_side="left",
    )


def trainer(rows: int, updates: int, directory: str):
    """A PPOTrainer whose train() makes `updates` iterations."""
    import torch
    from datasets import Dataset
    from transformers import LlamaForCausalLM, LlamaForSequenceClassification, PrinterCallback
    from trl.experimental.ppo import PPOConfig, PPOTrainer

    arguments = PPOConfig(
        output_dir=directory,
        per_device_train_batch_size=rows,
        gradient_accumulation_steps=1,
        num_mini_batches=task.MINIBATCHES,
        num_ppo_epochs=task.EPOCHS,
        total_episodes=rows * updates,
        local_rollout_forward_batch_size=rows,
        response_length=task.SMALL.new,
        temperature=task.TEMPERATURE,
        learning_rate=task.LEARNING_RATE,
        lr_scheduler_type="constant",
        optim="adamw_torch_fused",
        adam_epsilon=task.ADAM_EPS,
        kl_coef=task.KL_COEFFICIENT,
        cliprange=task.CLIP,
        cliprange_value=task.VALUE_CLIP,
        vf_coef=task.VALUE_COEFFICIENT,
        gamma=task.GAMMA,
        lam=task.LAMBDA,
        missing_eos_penalty=1.0,
        num_sample_generations=0,
        gradient_checkpointing=False,
        bf16=False,
        use_cpu=True,
        report_to="none",
        save_strategy="no",
        eval_strategy="no",
        disable_tqdm=True,
        logging_strategy="no",
    )
    prompts = task.token_rows(rows, task.SMALL.prompt, task.Small().vocabulary)
    made = PPOTrainer(
        args=arguments,
        processing_class=tokenizer(),
        model=LlamaForCausalLM(model_config()),
        ref_model=LlamaForCausalLM(model_config()),
        reward_model=LlamaForSequenceClassification(model_config(num_labels=1)),
        value_model=LlamaForSequenceClassification(model_config(num_labels=1)),
        train_dataset=Dataset.from_dict({"input_ids": prompts}),
        eval_dataset=Dataset.from_dict({"input_ids": prompts}),
        data_collator=lambda rows: {"input_ids": torch.tensor([row["input_ids"] for row in rows])},
    )
    made.remove_callback(PrinterCallback)
    return made


def prepare_ppo(rows: int, updates: int) -> protocol.Run:
    """Warm iterations of the trainer."""
    import torch

    torch.set_num_threads(task.THREADS)
    directory = tempfile.TemporaryDirectory()
    made = trainer(rows, updates, directory.name)
    steps = 0

    def count(*_) -> None:
        nonlocal steps
        steps += 1

    made.optimizer.optimizer.register_step_post_hook(count)

    def run() -> dict:
        nonlocal steps
        steps, start = 0, time.perf_counter()
        made.train()
        seconds = time.perf_counter() - start
        tokens = rows * task.SMALL.new
        return task.answer(updates, seconds, steps / updates, tokens) | {"kept": directory.name}

    run()
    return run


def prepare_generation(rows: int, updates: int) -> protocol.Run:
    """Warm generation, by the trainer's own calls and with its own settings."""
    import torch
    from transformers import GenerationConfig
    from trl.experimental.ppo import ppo_trainer

    torch.set_num_threads(task.THREADS)
    with tempfile.TemporaryDirectory() as directory:
        made = trainer(rows, updates, directory)
    sampling = {
        "max_new_tokens": task.SMALL.new,
        "temperature": task.TEMPERATURE + 1e-7,
        "top_k": 0.0,
        "top_p": 1.0,
        "do_sample": True,
    }
    config = GenerationConfig(**sampling)
    prompts = torch.tensor(task.token_rows(rows, task.SMALL.prompt, task.Small().vocabulary))

    def run() -> dict:
        tokens, start = 0, time.perf_counter()
        for _ in range(updates):
            with (
                torch.no_grad(),
                ppo_trainer.unwrap_model_for_generation(
                    made.model, made.accelerator, generation_kwargs=sampling
                ) as model,
            ):
                texts, _ = ppo_trainer.batch_generation(model.policy, prompts, rows, PAD, config)
            tokens += texts[:, prompts.shape[1] :].numel()
        return task.answer(tokens, time.perf_counter() - start, tokens / updates)

    run()
    return run


def main() -> None:
    """Times what the command line asks for."""
    options = task.arguments("TRL's PPO for language", ("generation", "ppo")).parse_args()
    rows = options.rows or task.SMALL.rows
    prepare = prepare_ppo if options.part == "ppo" else prepare_generation
    protocol.speak(lambda: prepare(rows, options.updates), options.repeat, options.serve)


if __name__ == "__main__":
    main()
