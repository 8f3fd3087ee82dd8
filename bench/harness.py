"""lm-evaluation-harness through the server, and with transformers on the same weights.

    pip install "lm-eval[api,hf]"
    glasshead world --show 4000 --lang en > world.txt
    glasshead train world.txt --preset llama --tokenizer bpe --out runs/harness
    python -m bench.harness runs/harness

The run is exported for transformers. Both models get the same tasks, on sentences of the embedded
world, with nothing fetched: choose the end of a sentence out of four, the perplexity of sentences,
and to go on with them. The harness asks the server as `local-completions`: prompts as ids, `echo`
with `logprobs`. Printed are the scores, and how far the log-likelihoods of single answers differ.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from bench.serve import free_port
from bench.serve_openai import wait_for

SENTENCES = 60
TASKS: dict[str, dict[str, Any]] = {
    "endings": {
        "output_type": "multiple_choice",
        "doc_to_text": "{{start}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "answer",
        "metric_list": [{"metric": "acc"}, {"metric": "acc_norm"}],
    },
    "sentences": {
        "output_type": "loglikelihood_rolling",
        "doc_to_text": "",
        "doc_to_target": "{{text}}",
        "metric_list": [{"metric": "word_perplexity"}],
    },
    "going_on": {
        "output_type": "generate_until",
        "doc_to_text": "{{start}}",
        "doc_to_target": "{{text}}",
        "generation_kwargs": {"until": ["."], "max_gen_toks": 20, "do_sample": False},
        "metric_list": [{"metric": "exact_match"}],
    },
}


def write_tasks(folder: Path) -> None:
    """Write the tasks as YAML (JSON is YAML), with their data beside them."""
    command = [sys.executable, "-m", "glasshead", "world", "--lang", "en", "--seed", "91"]
    told = subprocess.run(
        [*command, "--show", str(SENTENCES)], capture_output=True, text=True, check=True
    )
    texts = [line for line in told.stdout.splitlines() if line.strip()]
    draw, lines = random.Random(5), []
    for text in texts:
        words = text.split()
        half = len(words) // 2
        wrong = draw.sample([other for other in texts if other != text], 3)
        ends = [" ".join(other.split()[-len(words[half:]) :]) for other in (text, *wrong)]
        order = draw.sample(range(4), 4)
        line = {
            "text": text,
            "start": " ".join(words[:half]),
            "choices": [ends[n] for n in order],
            "answer": order.index(0),
        }
        lines.append(json.dumps(line) + "\n")
    data = folder / "sentences.jsonl"
    data.write_text("".join(lines))
    for name, task in TASKS.items():
        place = {"data_files": {"test": str(data)}}
        about: dict[str, Any] = {"task": name, "dataset_path": "json", "dataset_kwargs": place}
        about |= {**task, "test_split": "test", "metadata": {"version": 1}}
        (folder / f"{name}.yaml").write_text(json.dumps(about))


def evaluate(tasks: Path, model: str, settings: dict[str, Any]) -> dict[str, Any]:
    import lm_eval
    from lm_eval.tasks import TaskManager

    found: dict[str, Any] = lm_eval.simple_evaluate(
        model=model,
        model_args=settings,
        tasks=list(TASKS),
        task_manager=TaskManager(include_path=str(tasks), include_defaults=False),
        bootstrap_iters=0,
        device="cpu",
        batch_size=1,
    )
    return found


def answers(found: dict[str, Any], task: str) -> list[Any]:
    """Return what the model said to each question of a task, in the order of the questions."""
    samples = sorted(found["samples"][task], key=lambda sample: sample["doc_id"])
    return [answer for sample in samples for [answer] in sample["resps"]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path)
    run = parser.parse_args().run.resolve()
    os.environ |= {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        os.environ["HF_HOME"] = str(folder / "cache")
        write_tasks(folder)
        export = folder / "export"
        glasshead = [sys.executable, "-m", "glasshead"]
        subprocess.run([*glasshead, "export", str(run), "-o", str(export)], check=True)
        port = free_port()
        command = [*glasshead, "serve", str(run), "--port", str(port), "--no-open"]
        server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            wait_for(port, server)
            url = f"http://127.0.0.1:{port}/v1/completions"
            ours = {"model": run.name, "base_url": url, "tokenizer": str(export)}
            ours |= {"tokenizer_backend": "huggingface", "num_concurrent": 4, "max_length": 128}
            theirs = {"pretrained": str(export), "dtype": "float32", "max_length": 128}
            both = {
                "server": evaluate(folder, "local-completions", ours),
                "transformers": evaluate(folder, "hf", theirs),
            }
        finally:
            server.terminate()
            server.wait(60)
    for task in TASKS:
        for name, found in both.items():
            figures = {
                metric.partition(",")[0]: f"{value:.6g}"
                for metric, value in found["results"][task].items()
                if isinstance(value, float) and "stderr" not in metric
            }
            print(f"{task:12}{name:14}", *(f"{key} {value}" for key, value in figures.items()))
    pairs = [
        pair
        for task in ("endings", "sentences")
        for pair in zip(*(answers(found, task) for found in both.values()), strict=True)
    ]
    numbers = [[one[0] if isinstance(one, tuple | list) else one for one in pair] for pair in pairs]
    most = max(abs(float(a) - float(b)) for a, b in numbers)
    texts = list(zip(*(answers(found, "going_on") for found in both.values()), strict=True))
    print(f"{len(pairs)} log-likelihoods differ by {most:.1e} at most; ", end="")
    print(f"{sum(a == b for a, b in texts)} of {len(texts)} texts are the same")


if __name__ == "__main__":
    main()
