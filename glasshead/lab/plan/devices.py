"""What devices promise, what programs get of it, and so how long operations take."""

from collections import Counter
from dataclasses import dataclass

from glasshead.errors import ConfigError, did_you_mean
from glasshead.lab.plan.operations import Operation

__all__ = ["CPU", "DEVICES", "GPU", "Calibration", "Device", "find_device"]

USABLE = 0.94  # share of the memory; the driver, collectives and fragments take the rest
LINK = 0.80  # share of a link's rate that collectives get; assumed

# Share of Python's time that a GPU waits for in any case, between one step and the next.
BETWEEN = 0.2


@dataclass(frozen=True)
class Calibration:
    """Shares of a data sheet's figures that programs get, and seconds that do not depend on it."""

    matmul: float  # of the peak: matrix products
    attention: float  # of the peak: fused attention
    row_keys: float  # each query takes the time of so many keys more than it sees
    memory: float  # of the bandwidth: pointwise kernels
    stream: float  # of the bandwidth: where nothing but reading and writing is done
    cache: float  # of the bandwidth: keys and values that a token reads
    look: float  # of the peak: measuring attention
    look_row: float  # each query takes the time of so many keys more than it sees
    kernel: float  # seconds of the shortest kernel
    call: float  # seconds that Python takes for one operation of torch


# From steps, prompts, tokens and observed texts on an H200 (torch 2.11, bf16): docs/scaling.md
# compares them with the plan. Other GPUs are assumed to be alike.
GPU = Calibration(0.70, 0.45, 450.0, 0.65, 0.80, 0.36, 1.0, 0.0, kernel=4.9e-6, call=14.5e-6)
# From two cores (float32, `python -m bench.growth`).
CPU = Calibration(0.67, 0.67, 0.0, 0.80, 0.80, 0.80, 0.80, 7000.0, kernel=0.0, call=3e-6)


@dataclass(frozen=True)
class Device:
    """A data sheet."""

    name: str
    half: float  # operations a second in bf16 on the matrix units, without sparsity
    single: float  # the same in float32, with torch's defaults
    memory: float  # bytes
    bandwidth: float  # bytes a second between memory and chip
    link: float  # bytes a second that one GPU sends to others of its node
    network: float  # bytes a second that one GPU sends to other nodes
    per_node: int = 8

    @property
    def on_gpu(self) -> bool:
        return self.name != "cpu"

    @property
    def calibration(self) -> Calibration:
        return GPU if self.on_gpu else CPU

    @property
    def usable(self) -> float:
        """Bytes of the memory."""
        return USABLE * self.memory

    def peak(self, itemsize: int) -> float:
        return self.half if itemsize == 2 else self.single

    def seconds_by_kind(self, operations: Counter[Operation], itemsize: int) -> dict[str, float]:
        """Return how long the device is busy with the operations.

        >>> product = Operation("matmul", flops=692.3e12, bytes=0)
        >>> DEVICES["h200"].seconds_by_kind(Counter({product: 2}), itemsize=2)["matmul"]
        2.0
        """
        c, peak = self.calibration, self.peak(itemsize)
        total = {"matmul": 0.0, "attention": 0.0, "pointwise": 0.0}
        for op, times in operations.items():
            computing = op.flops / (c.matmul * peak)
            if op.kind == "attention":
                computing = (op.flops + c.row_keys * op.rows) / (c.attention * peak)
            moving = op.bytes / (c.memory * self.bandwidth)
            total[op.kind] += times * max(computing, moving, c.kernel)
        return total

    def seconds_for_python(self, calls: float, busy: float) -> float:
        """Return how long the device waits for Python, where it is `busy` for so many seconds."""
        host = calls * self.calibration.call
        # A GPU computes while Python prepares the next call; a CPU does one after the other.
        return max(host - busy, BETWEEN * host) if self.on_gpu else host


DEVICES = {
    device.name: device
    for device in (
        # SXM module: 989 TFLOP/s bf16, 67 float32, 141 GB HBM3e; NVLink 4 has 900 GB/s both ways.
        # Systems of eight have a port of 400 Gb/s for each GPU.
        Device("h200", 989e12, 67e12, 141e9, 4.8e12, 450e9, 50e9),
        Device("h100", 989e12, 67e12, 80e9, 3.35e12, 450e9, 50e9),
        # SXM, 80 GB: NVLink 3 has 600 GB/s both ways; ports of 200 Gb/s.
        Device("a100", 312e12, 19.5e12, 80e9, 2.039e12, 300e9, 25e9),
        # PCIe 4 x16, 64 GB/s both ways, is its only link; a port of 200 Gb/s for two of them.
        Device("l40s", 362e12, 91.6e12, 48e9, 864e9, 32e9, 12.5e9),
        # Two cores with AVX-512, as measured. bf16 gains nothing without AMX. `--measure` measures
        # the machine at hand.
        Device("cpu", 0.36e12, 0.36e12, 16e9, 28e9, 10e9, 1.25e9, per_node=1),
    )
}


def find_device(name: str) -> Device:
    if name not in DEVICES:
        raise ConfigError(
            f"no data sheet for the device '{name}'", hint=did_you_mean(name, DEVICES)
        )
    return DEVICES[name]
