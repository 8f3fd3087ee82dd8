"""Plan what GPUs send to each other in a step, and how long they wait for it."""

from dataclasses import dataclass

from glasshead.lab.plan.devices import LINK, Device
from glasshead.lab.plan.scenario import Scenario
from glasshead.lab.plan.shapes import Counts

__all__ = ["Collective", "plan_collective", "plan_collectives", "waiting_seconds"]

BUCKET = 25e6  # bytes of gradients that DDP sends at a time
LATENCY = 10e-6  # seconds before a collective sends anything, for each doubling of the group
# Times that each GPU sends the whole tensor, around a ring; or its own part of it.
TRIPS = {"all-reduce": 2, "all-gather": 1, "reduce-scatter": 1, "all-to-all": 1}


@dataclass(frozen=True)
class Collective:
    """One kind of message between GPUs."""

    name: str
    what: str
    count: int  # in a step
    bytes: float  # that each GPU sends in a step; or gets, where one has more than others
    group: int
    seconds: float  # in a step, if nothing is computed meanwhile


def plan_collective(
    name: str, what: str, count: int, size: float, group: int, apart: int, device: Device
) -> Collective:
    """Plan `count` collectives on tensors of `size` bytes among GPUs `apart` ranks apart.

    A ring through several nodes uses the ports of all its members in a node at once. In an
    all-to-all each GPU has only its own port.

    >>> from glasshead.lab.plan.devices import DEVICES
    >>> plan_collective("all-gather", "params", 1, 16e9, 64, 1, DEVICES["h100"]).bytes / 1e9
    15.75
    """
    near = max(1, min(group, device.per_node // apart))  # members in one node
    sent = TRIPS[name] * size * (group - 1) / group
    if name == "all-to-all":
        takes = size / group * max((near - 1) / device.link, (group - near) / device.network)
    else:
        takes = sent / (device.link if near >= group else min(device.link, near * device.network))
    latency = LATENCY * (group - 1).bit_length()
    return Collective(name, what, count, count * sent, group, count * (takes / LINK + latency))


def plan_collectives(
    scenario: Scenario,
    counts: Counts,
    device: Device,
    *,
    tokens: int,
    matrices: dict[tuple[int, int], int],
) -> list[Collective]:
    """Plan all that one step sends, but for a few numbers.

    Args:
        counts: parameters of the part of the model that one GPU of a tensor group has.
        tokens: of a batch on one GPU.
        matrices: those that Muon makes orthogonal on the busiest GPU, by shape; none for AdamW.
    """
    config, layout = scenario.config, scenario.layout
    itemsize, accumulate = scenario.itemsize, scenario.accumulate
    n, L, found = layout.replicas, config.n_layers, list[Collective]()

    def add(name: str, what: str, count: int, size: float, group: int, apart: int) -> None:
        if group > 1:
            found.append(plan_collective(name, what, count, size, group, apart, device))

    if layout.parallel == "ddp":
        buckets = max(1, round(4 * counts.total / BUCKET))
        add("all-reduce", "gradients", buckets, 4 * counts.total / buckets, n, layout.tensor)
    else:  # a unit for each block, and one for all else, which is gathered once
        units, size = L + 1, itemsize * counts.total / (L + 1)
        add("all-gather", "params, forward", units * accumulate, size, n, layout.tensor)
        size = itemsize * counts.blocks / L
        add("all-gather", "params, backward", L * accumulate, size, n, layout.tensor)
        size = 4 * counts.total / units
        add("reduce-scatter", "gradients", units, size, n, layout.tensor)
        if matrices:  # whole matrices travel to the GPU that makes them orthogonal, and back
            size = 4 * sum(r * c * some for (r, c), some in matrices.items()) / len(matrices)
            for way in ("sent", "back"):
                add("all-to-all", f"Muon's matrices, {way}", len(matrices), size, n, layout.tensor)
    # After attention and after the feed-forward of every layer, and once at the vocabulary.
    for way in ("forward", "backward"):
        size = itemsize * tokens * config.d_model
        add("all-reduce", f"activations, {way}", (2 * L + 1) * accumulate, size, layout.tensor, 1)
    part = layout.part_of(config)
    width = (part.n_kv_heads or part.n_heads) * (part.d_head or part.d_model // part.n_heads)
    size = 2 * itemsize * tokens * layout.context * width  # keys and values of the whole texts
    for name, what in (
        ("all-gather", "keys and values, forward"),
        ("all-gather", "keys and values, backward"),
        ("reduce-scatter", "keys' and values' gradients"),
    ):
        add(name, what, L * accumulate, size, layout.context, layout.tensor)
    return found


def waiting_seconds(
    messages: list[Collective],
    *,
    units: int,
    forward: float,
    backward: float,
    attention: float,
    last_backward: float,
) -> float:
    """Return the seconds of a step in which a GPU computes nothing because it waits for others.

    Args:
        units: parts of the model that are gathered and sent on their own.
        forward, backward, attention: seconds of computing in a step, behind which messages hide.
        last_backward: seconds of the backward pass after which gradients are sent.
    """

    def take(*beginnings: str) -> float:
        return sum(c.seconds for c in messages if c.what.startswith(beginnings))

    # Activations are needed at once, and so are Muon's matrices.
    total = take("activations", "Muon") + max(0.0, take("keys") - attention)
    sending = take("gradients")
    buckets = max((c.count for c in messages if c.what == "gradients"), default=1)
    if not take("params"):  # ddp: only the last bucket has no backward pass to hide behind
        return total + max(sending - last_backward, sending / buckets)
    gathering, again = take("params, forward"), take("params, backward")
    # The first gather and the last scatter have nothing to hide behind.
    total += max(gathering - forward, gathering / units)
    return total + max(again + sending - backward, sending / units)
