"""What GPUs say to each other in a step, and how long they wait for it."""

from glasshead.lab.plan.devices import Device
from glasshead.lab.plan.layout import Collective, Layout, collective
from glasshead.lab.plan.operations import Setting
from glasshead.lab.plan.shapes import Counts
from glasshead.lab.plan.update import most_matrices

__all__ = ["collectives", "waited"]

BUCKET = 25e6  # bytes of gradients that DDP sends at a time


def collectives(
    s: Setting,
    counts: Counts,
    device: Device,
    layout: Layout,
    optimizer: str = "adamw",
    accumulate: int = 1,
) -> list[Collective]:
    """All that one step of training sends, but for a few numbers."""
    return [
        *_of_data(s, counts, device, layout, optimizer, accumulate),
        *_of_tensor(s, device, layout, accumulate),
        *_of_context(s, device, layout, accumulate),
    ]


def _of_data(
    s: Setting, counts: Counts, device: Device, layout: Layout, optimizer: str, accumulate: int
) -> list[Collective]:
    n = layout.replicas
    if n == 1:
        return []
    local, near = counts.on_each(layout.tensor), _near(n, layout.tensor, device)
    if layout.parallel == "ddp":
        count = max(1, round(4 * local / BUCKET))
        return [collective("all-reduce", "gradients", count, 4 * local / count, n, near, device)]
    # A unit a block, and one with all that is outside, which stays until the backward pass.
    units, inside = s.config.n_layers + 1, counts.blocks / counts.total
    rest, e = max(units - 1, 1), s.itemsize
    found = [
        collective("all-gather", "params, forward", units * accumulate, e * local / units, n,
                   near, device),
        collective("all-gather", "params, backward", rest * accumulate, e * local * inside / rest,
                   n, near, device),
        collective("reduce-scatter", "gradients", units, 4 * local / units, n, near, device),
    ]  # fmt: skip
    if optimizer == "muon" and counts.hidden:  # matrices go whole to whoever makes them orthogonal
        most = most_matrices(s.config, n)
        size = 4 * sum(r * c * some for (r, c), some in most.items()) / layout.tensor
        found += [
            collective("all-to-all", what, len(most), size / len(most), n, near, device)
            for what in ("Muon's matrices, there", "Muon's matrices, back")
        ]
    return found


def _of_tensor(s: Setting, device: Device, layout: Layout, accumulate: int) -> list[Collective]:
    """After attention and after the feed-forward, of every layer, and once at the vocabulary."""
    n = layout.tensor
    if n == 1:
        return []
    count, size = (2 * s.config.n_layers + 1) * accumulate, s.itemsize * s.tokens * s.config.d_model
    return [
        collective("all-reduce", f"activations, {way}", count, size, n, _near(n, 1, device), device)
        for way in ("forward", "backward")
    ]


def _of_context(s: Setting, device: Device, layout: Layout, accumulate: int) -> list[Collective]:
    """Keys and values of the whole sequence, forward and again backward, and their gradients."""
    n = layout.context
    if n == 1:
        return []
    _, H_kv, D = s.heads
    whole, count = 2 * s.itemsize * s.B * s.T * n * H_kv * D, s.config.n_layers * accumulate
    return [
        collective(name, what, count, whole, n, _near(n, layout.tensor, device), device)
        for name, what in (
            ("all-gather", "keys and values, forward"),
            ("all-gather", "keys and values, backward"),
            ("reduce-scatter", "keys' and values' gradients"),
        )
    ]


def _near(group: int, between: int, device: Device) -> int:
    """Members of a group in one node, where neighbours are `between` ranks apart."""
    return max(1, min(group, device.per_node // between))


def waited(
    talk: list[Collective],
    *,
    units: int,
    forward: float,
    backward: float,
    attention: float,
    last_backward: float,
) -> float:
    """Seconds of a step in which a GPU has nothing to do but wait for others.

    Args:
        units: parts of the model that are gathered and sent on their own.
        forward, backward, attention: seconds of computing in a step behind which talk can hide.
        last_backward: of the batch after which gradients are sent.
    """

    def of(*beginnings: str) -> float:
        return sum(c.seconds for c in talk if c.what.startswith(beginnings))

    # What the next product is made of cannot be hidden behind it.
    total = of("activations", "Muon") + max(0.0, of("keys") - attention)
    gradients = [c for c in talk if c.what == "gradients"]
    out, buckets = of("gradients"), max((c.count for c in gradients), default=1)
    if not of("params"):  # ddp: all but the last bucket go while gradients are made
        return total + max(out - last_backward, out / buckets)
    gathered, again = of("params, forward"), of("params, backward")
    # The first gather and the last scatter have nothing to hide behind.
    total += max(gathered - forward, gathered / units)
    return total + max(again + out - backward, out / units)
