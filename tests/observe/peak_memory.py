"""How much memory this process has needed, on the systems that say."""

import sys

try:
    import resource
except ImportError:  # Windows
    resource = None


def peak_memory() -> float:
    """Return the peak memory of this process in MiB; 0 on Windows, where limits then hold."""
    if resource is None:
        return 0.0
    unit = 2**20 if sys.platform == "darwin" else 2**10  # macOS counts bytes, Linux KiB
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / unit
