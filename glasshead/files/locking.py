"""Lock a file against other processes, on every system, until it is closed or the process ends."""

import sys
from typing import BinaryIO

__all__ = ["try_lock"]


def try_lock(file: BinaryIO) -> bool:
    """Lock a file; return False if another process has locked it.

    A file system without locks counts as locked by nobody else.
    """
    if sys.platform == "win32":
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # its first byte, where all start
        except PermissionError:
            return False
        except OSError:
            pass
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass
    return True
