"""Training speed beside transformers' GPT-2 of the same shape, in one run.

    python bench/train.py [--shape 6,6,384] [--batch 8,256] [--vocab 512] [--repeats 9]

Three rows: both in float32, both in bf16 autocast, and each as a user gets it by default. A step
is forward, backward, clipping and the optimizer; both take AdamW (fused) at equal precision, and
`glasshead train` takes its own optimizer and precision in the last row. The two take turns; the
median of each is printed, in tokens a second, and the ratio.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext

import torch
from torch import Tensor, nn

from glasshead.machine import settle_half_precision
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.model.loss import next_token_loss
from glasshead.train.config import TrainConfig
from glasshead.train.machine import pick_precision
from glasshead.train.optim import OPTIMIZERS

Step = Callable[[Tensor, Tensor], float]


def precise(name: str, device: str) -> torch.autocast | nullcontext[None]:
    return torch.autocast(device, torch.bfloat16) if name == "bf16" else nullcontext()


def build_ours(shape: GPTConfig, device: str, precision: str, optimizer: str) -> Step:
    torch.manual_seed(0)
    model = GPT(shape).to(device)
    settings = TrainConfig(optimizer=optimizer, lr=1e-4, muon_lr=1e-3)
    optimizers = OPTIMIZERS[optimizer](model, settings)
    precision = pick_precision(precision, torch.device(device), model)
    never = torch.zeros((), dtype=torch.bool, device=device)

    def step(ids: Tensor, targets: Tensor) -> float:
        with precise(precision, device):
            loss = next_token_loss(model, ids, targets)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizers.step(bad=never)
        optimizers.zero_grad()
        return loss.item()

    return step


def build_theirs(shape: GPTConfig, device: str, precision: str) -> Step:
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    config = GPT2Config(
        vocab_size=shape.vocab_size, n_positions=shape.max_len, n_embd=shape.d_model,
        n_layer=shape.n_layers, n_head=shape.n_heads,
        attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0,
    )  # fmt: skip
    model = GPT2LMHeadModel(config).to(device).train()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.1, fused=True)

    def step(ids: Tensor, targets: Tensor) -> float:
        with precise(precision, device):
            # shift_labels: the targets are shifted already, as ours are
            loss = model(input_ids=ids, labels=ids, shift_labels=targets).loss
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    return step


def timed(step: Step, ids: Tensor, targets: Tensor, steps: int) -> float:
    start = time.perf_counter()
    for _ in range(steps):
        step(ids, targets)
    return ids.numel() * steps / (time.perf_counter() - start)


def main() -> None:
    settle_half_precision()
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--shape", default="6,6,384", help="layers,heads,width")
    parser.add_argument("--batch", default="8,256", help="sequences,tokens")
    parser.add_argument("--vocab", type=int, default=512)
    parser.add_argument("--steps", type=int, default=2, help="in a turn")
    parser.add_argument("--repeats", type=int, default=9)
    args = parser.parse_args()
    n_layers, n_heads, d_model = map(int, args.shape.split(","))
    B, T = map(int, args.batch.split(","))
    shape = GPTConfig(
        vocab_size=args.vocab, max_len=T, n_layers=n_layers, n_heads=n_heads, d_model=d_model,
        feed_forward="gelu-tanh", qkv_bias=True, tied=True, head_bias=False, init="gpt2",
    )  # fmt: skip
    data = torch.randint(args.vocab, (B, T + 1), generator=torch.Generator().manual_seed(0))
    ids, targets = (
        data[:, :-1].contiguous().to(args.device),
        data[:, 1:].contiguous().to(args.device),
    )
    print(
        f"{n_layers} layers, {n_heads} heads, width {d_model}, vocabulary {args.vocab}, batch "
        f"{B} x {T}, {args.device}, {torch.get_num_threads()} threads, torch {torch.__version__}; "
        f"median of {args.repeats}\n"
    )
    print(f"{'':24}{'glasshead':>14}{'transformers':>16}{'ratio':>8}")
    for name, mine, theirs in (
        ("float32", ("float32", "adamw"), "float32"),
        ("bf16 autocast", ("bf16", "adamw"), "bf16"),
        ("as it comes", ("auto", "muon"), "float32"),
    ):
        ours = build_ours(shape, args.device, *mine)
        peer = build_theirs(shape, args.device, theirs)
        speeds: tuple[list[float], list[float]] = ([], [])
        for turn in range(args.repeats + 1):
            for step, found in zip((ours, peer), speeds, strict=True):
                speed = timed(step, ids, targets, args.steps)
                if turn:  # the first turn warms up
                    found.append(speed)
        a, b = map(statistics.median, speeds)
        print(f"{name:24}{a:10,.0f} t/s{b:12,.0f} t/s{a / b:8.2f}")


if __name__ == "__main__":
    main()
