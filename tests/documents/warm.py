"""`glasshead` without the wait: one process imports everything, and forks for each command.

Pages have some hundred commands, and importing torch takes seconds. The command `glasshead` of a
page's workspace is this file as a client: it hands its arguments, folder, environment and streams
to the warm process, passes signals on and ends as the command ends.
"""

import json
import os
import select
import signal
import socket
import sys
from typing import NoReturn, TextIO

IMPORTED = (
    "matplotlib.pyplot",
    "glasshead.checkpoint",
    "glasshead.cli",
    "glasshead.generation.beam",
    "glasshead.api.inference",
    "glasshead.lab.walkthrough",
    "glasshead.observe.picture",
    "glasshead.serve.app",
    "glasshead.training.start",
    "matplotlib.backends.backend_agg",
    "torch.utils.tensorboard",
)


def serve(path: str) -> None:
    """Until stdin closes, which it does when whoever started this is no more."""
    from importlib import import_module

    from glasshead.machine import settle_half_precision

    for name in IMPORTED:
        import_module(name)
    settle_half_precision()
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as door:
        door.bind(path)
        door.listen(16)
        while door in select.select([door, sys.stdin], [], [])[0]:
            caller = door.accept()[0]
            if not os.fork():
                door.close()
                _work(caller)
            caller.close()
    os.killpg(0, signal.SIGKILL)  # this process and all that it forked


def _work(caller: socket.socket) -> NoReturn:
    from glasshead.cli import run

    said, streams, *_ = socket.recv_fds(caller, 1 << 20, 3)
    order = json.loads(said)
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    # A stream remembers whether its file could seek, and this is another file.
    sys.stdin, sys.stdout, sys.stderr = map(_opened, (0, 1, 2))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(order["environ"])
    os.chdir(order["folder"])
    code = 1
    try:
        caller.sendall(f"{os.getpid()}\n".encode())
        code = run(order["args"])
    except BaseException:
        import traceback

        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    caller.sendall(f"{code}\n".encode())
    os._exit(code)


def _opened(number: int) -> TextIO:
    lines = 1 if number == 2 else -1
    return os.fdopen(number, "w" if number else "r", lines, encoding="utf-8", closefd=False)


def call(path: str, args: list[str]) -> int:
    with socket.socket(socket.AF_UNIX) as door:
        door.connect(path)
        order = {"args": args, "folder": os.getcwd(), "environ": dict(os.environ)}
        socket.send_fds(door, [json.dumps(order).encode()], [0, 1, 2])
        answers = door.makefile()
        worker = int(answers.readline())
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda number, _: os.kill(worker, number))
        return int(answers.readline() or "1")


if __name__ == "__main__":
    if sys.argv[1] == "serve":
        serve(sys.argv[2])
    else:
        sys.exit(call(os.environ["GLASSHEAD_WARM"], sys.argv[2:]))
