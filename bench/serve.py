"""A server under load, on loopback: many clients stream, some leave half-way, too many are refused.

    python bench/serve.py [--clients 64] [--seconds 60] [--rest 60] [--run RUN] [--json]

Starts `glasshead serve` on a small GPT made for it (or on RUN). Each client asks for one
streamed completion after the other, of a random prompt and length; one answer in five is left
half-way. Then as many requests come at once as the server takes, and as many more. Told are errors,
tokens a second, how long first tokens were waited for (in all, and by client: is it fair?), the
server's memory (once the model is loaded, in the last quarters of the load, after a rest), and how
many were refused with 429.
"""

import argparse
import asyncio
import json
import os
import random
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch

from glasshead.checkpoint import RunConfig, RunFolder
from glasshead.model.gpt import GPT, GPTConfig
from glasshead.text.tokenizer import ByteTokenizer

PATIENCE = 120  # seconds without a byte: then it is an error
BATCH, WAITING = 16, 64
REST = 6  # seconds after which the server has given back what loading the model needed


@dataclass
class Answer:
    status: int = 0
    tokens: int = 0
    first: float = 0.0  # seconds until the first token
    whole: bool = False
    left: bool = False  # by the client, on purpose
    retry: bool = False  # whether a refusal said when to come again


@dataclass
class Client:
    answers: list[Answer] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


async def ask(port: int, body: dict[str, Any], leave_after: int | None = None) -> Answer:
    """Stream one request; close the connection at its end, or when leaving early."""
    answer, start = Answer(), time.perf_counter()
    data = json.dumps(body).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(
            b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
            b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(data) + data
        )
        answer.status = int((await reader.readline()).split()[1])
        while line := await asyncio.wait_for(reader.readline(), PATIENCE):
            answer.retry |= line.lower().startswith(b"retry-after:")
            if line.startswith(b"data: [DONE]"):
                answer.whole = True
            elif line.startswith(b"data: ") and b'"error"' in line:
                raise RuntimeError(line.decode()[:200])
            elif line.startswith(b"data: "):
                answer.first = answer.first or time.perf_counter() - start
                answer.tokens += b'"finish_reason": null' in line
                if answer.tokens == leave_after:
                    answer.left = True
                    break
    finally:
        writer.close()
    return answer


async def client(port: int, model: str, seed: int, end: float) -> Client:
    found, draw = Client(), random.Random(seed)
    while time.monotonic() < end:
        length = draw.randint(16, 64)
        prompt = "".join(draw.choices("abcdefgh ", k=draw.randint(1, 40)))
        body = {"model": model, "prompt": prompt, "max_tokens": length, "seed": seed}
        leave = length // 2 if draw.random() < 0.2 else None
        try:
            answer = await ask(port, {**body, "stream": True}, leave)
            found.answers.append(answer)
            if answer.status != 200 or not (answer.whole or answer.left):
                found.errors.append(f"status {answer.status} after {answer.tokens} tokens")
        except Exception as error:  # is what this program looks for
            found.errors.append(repr(error))
    return found


async def metric(port: int, name: str) -> float:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
    text = (await reader.read()).decode()
    writer.close()
    found = re.search(rf"^glasshead_{name} ([\d.e+]+)", text, re.MULTILINE)
    if found is None:
        raise SystemExit(f"/metrics has no glasshead_{name}")
    return float(found[1])


def memory(pid: int) -> float:
    """Return the resident memory of a process in MB."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


async def memories(pid: int, end: float) -> list[float]:
    found = []
    while time.monotonic() < end:
        found.append(memory(pid))
        await asyncio.sleep(0.25)
    return found


async def load(port: int, pid: int, model: str, clients: int, seconds: float) -> dict[str, Any]:
    await ask(port, {"model": model, "prompt": "a", "max_tokens": 4, "stream": True})  # loads it
    await asyncio.sleep(REST)
    loaded = memory(pid)
    start = time.monotonic()
    end = start + seconds
    watching = asyncio.ensure_future(memories(pid, end))
    found = await asyncio.gather(*(client(port, model, seed, end) for seed in range(clients)))
    took = time.monotonic() - start
    held = await watching
    answers = [answer for each in found for answer in each.answers]
    waits = sorted(answer.first for answer in answers if answer.first)
    own = [
        statistics.mean(a.first for a in each.answers if a.first) for each in found if each.answers
    ]
    later = held[len(held) // 4 :]
    middle = len(later) // 2
    left = -1.0
    for _ in range(100):  # those who left are gone at the next step
        if (left := await metric(port, "running") + await metric(port, "waiting")) == 0:
            break
        await asyncio.sleep(0.1)
    errors = [error for each in found for error in each.errors]
    return {
        "clients": clients,
        "seconds": round(took, 1),
        "answers": len(answers),
        "left_half_way": sum(answer.left for answer in answers),
        "errors": len(errors),
        "first_errors": errors[:3],
        "tokens_per_second": round(sum(answer.tokens for answer in answers) / took, 1),
        "first_token_seconds": {
            "median": round(statistics.median(waits), 3),
            "p95": round(waits[int(0.95 * (len(waits) - 1))], 3),
            "most": round(waits[-1], 3),
        },
        "mean_wait_by_client": {"least": round(min(own), 3), "most": round(max(own), 3)},
        "answers_by_client": {
            "least": min(len(each.answers) for each in found),
            "most": max(len(each.answers) for each in found),
        },
        "memory_mb": {
            "model_loaded": round(loaded, 1),
            "third_quarter": round(statistics.median(later[:middle] or later), 1),
            "last_quarter": round(statistics.median(later[middle:]), 1),
        },
        "texts_left_behind": left,
    }


async def burst(port: int, model: str) -> dict[str, int]:
    """Send half as many requests again as the server has room for."""
    body = {"model": model, "prompt": "a", "max_tokens": 60, "stream": True}
    count = (BATCH + WAITING) * 3 // 2
    answers = await asyncio.gather(*(ask(port, body) for _ in range(count)))
    refused = [answer for answer in answers if answer.status == 429]
    return {
        "requests": count,
        "answered": sum(answer.whole for answer in answers),
        "refused_429": len(refused),
        "with_retry_after": sum(answer.retry for answer in refused),
    }


def make_run(path: Path) -> None:
    torch.manual_seed(1)
    tokenizer = ByteTokenizer(["<eos>"])
    size: dict[str, Any] = {"max_len": 128, "n_layers": 2, "n_heads": 4, "d_model": 64}
    config = GPTConfig(vocab_size=tokenizer.vocab_size, **size)
    about = RunConfig(kind="gpt", model=asdict(config), train={}, data={})
    model = GPT(config)
    with torch.no_grad():
        model.head.bias[256] = -100.0  # never ends by itself
    RunFolder.create(path, about, tokenizer, model)


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def measure(run: Path, clients: int, seconds: float, rest: float) -> dict[str, Any]:
    port = free_port()
    command = [
        sys.executable,
        "-m",
        "glasshead",
        "serve",
        str(run),
        "--port",
        str(port),
        "--no-open",
    ]
    command += ["--batch", str(BATCH), "--waiting", str(WAITING)]
    with tempfile.TemporaryFile() as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
        try:
            for _ in range(600):
                with socket.socket() as sock:
                    if sock.connect_ex(("127.0.0.1", port)) == 0:
                        break
                time.sleep(0.1)
            found = asyncio.run(load(port, server.pid, run.name, clients, seconds))
            found["burst"] = asyncio.run(burst(port, run.name))
            time.sleep(rest)
            found["memory_mb"]["after_rest"] = round(memory(server.pid), 1)
        finally:
            server.send_signal(signal.SIGTERM)
            found_code = server.wait(60)
        log.seek(0)
        failures = [line for line in log.read().decode().splitlines() if '"error"' in line.lower()]
    return {**found, "exit_code": found_code, "errors_logged": len(failures)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--rest", type=float, default=60, help="seconds before memory is read")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--json", action="store_true", help="one JSON object")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = args.run or Path(folder) / "loaded"
        if args.run is None:
            make_run(run)
        found = measure(run.resolve(), args.clients, args.seconds, args.rest)
    if args.json:
        print(json.dumps(found))
        return
    for name, value in found.items():
        shown = value
        if isinstance(value, dict):
            shown = ", ".join(f"{key} {number}" for key, number in value.items())
        print(f"{name.replace('_', ' '):24}{shown}")


if __name__ == "__main__":
    main()
