"""Bytes on one GPU while a model is trained, by kind, and the worst moment of a step."""

from dataclasses import dataclass

from glasshead.lab.plan.layout import Layout
from glasshead.lab.plan.operations import Operation, Setting
from glasshead.lab.plan.shapes import Counts
from glasshead.lab.plan.update import most_matrices

__all__ = ["TrainingMemory", "training_memory"]


@dataclass(frozen=True)
class TrainingMemory:
    params: float  # in float32, of which all steps are steps
    gradients: float
    optimizer: float
    copies: float  # of the matrices in bf16, which autocast makes for each pass
    gathered: float  # of the shards of others, under fsdp
    whole: float  # copy of the parameters, under fsdp, with which the first GPU evaluates
    activations: float  # what the backward pass needs
    logits: float  # of a batch, and what their gradient takes
    peak: float  # the worst of three moments; less than the sum


def training_memory(
    s: Setting,
    counts: Counts,
    layout: Layout,
    ops: list[Operation],
    optimizer: str = "adamw",
    accumulate: int = 1,
) -> TrainingMemory:
    config, cut = s.config, layout.shards
    local = counts.on_each(layout.tensor)
    hidden = counts.hidden / layout.tensor
    state = 8 * local + 4 * counts.tensors
    if optimizer == "muon":  # one number a parameter instead of two, and no count of steps
        state -= 4 * (hidden + counts.hidden_tensors)
    sharded = layout.parallel == "fsdp" and layout.replicas > 1
    # Gradients that wait for more of their batch are not sent, so they are whole.
    gradients = 4 * local / (1 if sharded and accumulate > 1 else cut)
    copies = gathered = whole = 0.0
    if sharded:
        # All that is outside the blocks, this block and the next; one block's gradients going out.
        share = counts.blocks / counts.total
        block, outside = local * share / max(config.n_layers, 1), local * (1 - share)
        whole = 4.0 * counts.total
        gathered = s.itemsize * (outside + 2 * block) + (s.itemsize + 4) * block
    elif s.itemsize == 2:
        copies = 2.0 * sum(op.matrix for op in ops)
    if layout.context > 1:  # keys and values of the whole text, of one layer at a time
        _, H_kv, D = s.heads
        gathered += 2 * s.itemsize * s.tokens * layout.context * H_kv * D
    loss = [op for op in ops if op.name == "loss"]
    activations = sum(op.saves for op in ops if op.name != "loss")
    logits = sum(op.saves + op.passing for op in loss)

    head = 4 * config.d_model * config.vocab_size / layout.tensor / cut  # its gradient
    before = gradients if accumulate > 1 else 0.0
    passing = max((op.passing for op in ops if op.name != "loss"), default=0.0)
    params, state = 4 * local / cut, state / cut
    running = params + state + whole + copies + gathered + activations
    # Muon looks ahead for all matrices, then stacks those of one shape: a third of all, or so.
    update = 4 * hidden / cut * 2 if optimizer == "muon" else 0.0
    if sharded and optimizer == "muon" and counts.hidden:
        # Of the largest shape: rows sent, got, put together, made orthogonal, sent back, got back.
        most = max(r * c * some for (r, c), some in most_matrices(config, cut).items())
        update = 4 * hidden / cut + 6 * 4 * most / layout.tensor
    peak = max(
        running + logits + max(before, head if s.loss == "blocks" else 0.0),  # at the loss
        running + passing + max(before, head),  # at the gradient of the last block
        # At the update; before it, a tied table's two gradients meet.
        params + state + whole + gradients + max(update, head if config.tied else 0.0),
    )
    return TrainingMemory(
        params, gradients, state, copies, gathered, whole, activations, logits, peak
    )
