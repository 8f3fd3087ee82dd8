"""What a device can do, by its data sheet, and what of it a program gets.

>>> DEVICES["h200"].rates(2).matmul / 1e12
692.3
"""

from dataclasses import dataclass

from glasshead.errors import ConfigError, did_you_mean

__all__ = ["DEVICES", "Device", "Rates", "find_device"]

# Shares of the data sheet's figures that programs got on an H200 (torch 2.11), and other GPUs are
# taken to give. Products as large as a GPT's: by a profile of a step. Fused attention: of texts
# of 16K to 128K tokens. Kernels between the products (norms, activations, losses) and reads of
# caches: from whole steps, compiled or not; a plain stream such as the optimizer's gets more.
# Rings of many GPUs: assumed.
MATMUL, ATTENTION, PASSES, STREAM, LINK = 0.70, 0.45, 0.60, 0.80, 0.80
USABLE = 0.94  # of the memory; the rest is the driver's, the collectives' and the gaps between
# Besides the keys that it sees, a row of fused attention costs as much as so many more: at 1,024
# tokens a profile found 0.24 of the peak, forward and backward.
ROW_KEYS = 450
# Seconds, on every GPU, for they are the host's or those of a memory's answer, which do not follow
# the data sheet: a kernel that waits for the one before it, recorded; and a call of torch by
# Python (steps, prompts and looks too short for an H200 took 14 to 16 us for each of theirs).
KERNEL, CALL = 2.6e-6, 14.5e-6
# The same of a CPU, whose caches spare it much of both.
CPU_KERNEL, CPU_CALL = 2e-6, 1.2e-6
# Looking at one pair of query and key costs as much as so many operations at the matrix peak, for
# any head and for each dimension of it: from 12 heads of 64 and 6 of 128 at 128K tokens.
LOOK, LOOK_WIDTH = 295.0, 3.1
CPU_LOOK = 0.175  # of the peak; there the tiles are passed over more often


@dataclass(frozen=True)
class Rates:
    """What a program gets of a device, a second."""

    matmul: float  # operations in matrix products
    attention: float  # operations in fused attention
    memory: float  # bytes read or written between products
    stream: float  # bytes where nothing but reading and writing is done
    look: float  # operations at which `observe` goes, LOOK + LOOK_WIDTH x D a pair
    kernel: float  # seconds that a kernel takes at least, recorded or compiled
    call: float  # seconds that a call of torch takes when Python makes it

    def pairs(self, D: int) -> float:
        """Pairs of query and key that `observe` measures in a second."""
        return self.look / (LOOK + LOOK_WIDTH * D)


@dataclass(frozen=True)
class Device:
    name: str
    half: float  # operations a second in bf16 on the matrix units, without sparsity
    single: float  # the same in float32, as torch does it unless told otherwise
    memory: float  # bytes
    bandwidth: float  # bytes a second between the memory and the chip
    link: float  # bytes a second that one of them sends to others of its node, one way
    network: float  # bytes a second that one of them sends to other nodes: one port each
    per_node: int = 8

    def rates(self, itemsize: int) -> Rates:
        peak, on_cpu = self.peak(itemsize), self.name == "cpu"
        return Rates(
            matmul=MATMUL * peak,
            attention=ATTENTION * peak,
            memory=(STREAM if on_cpu else PASSES) * self.bandwidth,
            stream=STREAM * self.bandwidth,
            look=peak * (CPU_LOOK if on_cpu else 1),
            kernel=CPU_KERNEL if on_cpu else KERNEL,
            call=CPU_CALL if on_cpu else CALL,
        )

    def peak(self, itemsize: int) -> float:
        return self.half if itemsize == 2 else self.single

    @property
    def usable(self) -> float:
        return USABLE * self.memory


DEVICES = {
    device.name: device
    for device in (
        # SXM module: 989 TFLOP/s bf16, 67 float32, 141 GB HBM3e; NVLink 4 has 900 GB/s both ways.
        # A port of 400 Gb/s for each GPU is what their makers' systems of eight have.
        Device("h200", 989e12, 67e12, 141e9, 4.8e12, 450e9, 50e9),
        Device("h100", 989e12, 67e12, 80e9, 3.35e12, 450e9, 50e9),
        # SXM, 80 GB: NVLink 3 has 600 GB/s both ways; ports of 200 Gb/s.
        Device("a100", 312e12, 19.5e12, 80e9, 2.039e12, 300e9, 25e9),
        # PCIe 4 x16 has 64 GB/s both ways and is its only way to others; 200 Gb/s a pair of them.
        Device("l40s", 362e12, 91.6e12, 48e9, 864e9, 32e9, 12.5e9),
        # Two cores with AVX-512 at 2.5 GHz, two fused products of 16 numbers a cycle; bf16 gains
        # nothing without AMX. `--measure` puts this machine's own figures in their place.
        Device("cpu", 0.32e12, 0.32e12, 16e9, 20e9, 10e9, 1.25e9, per_node=1),
    )
}


def find_device(name: str) -> Device:
    if name not in DEVICES:
        raise ConfigError(f"there is no data sheet of '{name}'", hint=did_you_mean(name, DEVICES))
    return DEVICES[name]
