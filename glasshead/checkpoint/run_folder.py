"""The folder of a run: the model, its tokenizer and config, and the last two checkpoints."""

import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from torch import Tensor, nn

from glasshead.checkpoint.processes import ALONE, Processes
from glasshead.checkpoint.run import (
    FORMAT,
    Run,
    RunConfig,
    load_parameters,
    parameters,
    read_config,
    read_metrics,
)
from glasshead.errors import CheckpointError
from glasshead.files.checksums import add_checksums, check_content, has_checksums
from glasshead.files.locking import try_lock
from glasshead.files.reading import read_small
from glasshead.files.tensors import (
    Like,
    TensorFile,
    check_tensors,
    damage_error,
    read_tensors,
    write_tensors,
)
from glasshead.files.writing import atomic_folder, atomic_write, remove, sync_folder
from glasshead.messages import translate
from glasshead.text.tokenizer import Tokenizer, tokenizer_from_bytes

if TYPE_CHECKING:
    from glasshead.checkpoint.sharded import ShardWriter

__all__ = ["DIGESTS", "RunFolder", "State", "load_run"]

Result = TypeVar("Result")
DIGESTS = "digests.json"  # of a checkpoint in several files


@dataclass(frozen=True, eq=False)
class State:
    """A checkpoint: what a training loop needs to continue as if it had never stopped."""

    tensors: dict[str, Tensor]
    progress: dict[str, Any]  # counters, as JSON

    def part(self, prefix: str) -> dict[str, Tensor]:
        """Return the tensors whose names begin with the prefix, by the rest of their names."""
        found = self.tensors.items()
        return {n.removeprefix(prefix): tensor for n, tensor in found if n.startswith(prefix)}


class RunFolder:
    """One run's folder."""

    def __init__(self, path: Path, config: RunConfig) -> None:
        self.path, self.config = path, config
        self.state_files = [path / "state" / f"{name}.safetensors" for name in ("last", "previous")]

    @classmethod
    def create(
        cls, path: str | Path, config: RunConfig, tokenizer: Tokenizer, model: nn.Module
    ) -> "RunFolder":
        """Create a folder with a model at step 0. It appears complete or not at all."""
        return cls.create_with(path, config, tokenizer, lambda run: run.save_model(model, step=0))

    @classmethod
    def create_with(
        cls,
        path: str | Path,
        config: RunConfig,
        tokenizer: Tokenizer,
        write_model: Callable[["RunFolder"], None],
    ) -> "RunFolder":
        """Create a folder into which `write_model` writes the parameters."""
        path = Path(path)
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise CheckpointError(
                f"{path} exists already",
                hint=f"continue it: glasshead train --resume {path}; or choose another --out"
                if (path / "config.json").exists()
                else "choose another --out",
            )
        with atomic_folder(path) as new:
            (new / "state").mkdir()
            run = cls(new, config)
            run._write_small("tokenizer.json", tokenizer.to_json().encode())
            run.save_config(config)
            write_model(run)
        return cls(path, config)

    @classmethod
    def open(cls, path: str | Path) -> "RunFolder":
        return cls(Path(path), read_config(Path(path)))

    def tokenizer(self) -> Tokenizer:
        file = self.path / "tokenizer.json"
        try:
            content = read_small(file, within=self.path)
        except OSError as error:
            raise CheckpointError(
                f"cannot read the tokenizer {file}: {error.strerror}",
                hint="restore it from a backup",
            ) from None
        check_content(file, content)
        return tokenizer_from_bytes(content, str(file))

    def new_model(self) -> nn.Module:
        """Make the model, after checking config.json against the sizes in one of the files.

        So it allocates no more than the parameters that are there need.
        """
        errors: list[CheckpointError] = []
        for file in (self.path / "model.safetensors", *self.state_files):
            try:
                return self.config.new_model_of(_shapes(file, self.path), file)
            except CheckpointError as error:
                errors.append(error)
        if any(state.is_dir() for state in self.states):
            return self.config.new_model()
        raise errors[0]

    def save_config(self, config: RunConfig) -> None:
        self.config = config
        text = json.dumps({"format": FORMAT, **asdict(config)}, indent=2, ensure_ascii=False)
        self._write_small("config.json", f"{text}\n".encode())

    def _write_small(self, name: str, content: bytes) -> None:
        add_checksums(self.path, {name: content})
        with atomic_write(self.path / name) as file:
            file.write(content)

    def set_damaged_model_aside(self) -> CheckpointError | None:
        """Rename model.safetensors if it is damaged; return the error, None if there is none."""
        file = self.path / "model.safetensors"
        try:
            check_tensors(file, self.path)
        except CheckpointError as error:
            if file.exists():
                os.replace(file, file.with_name("damaged-model.safetensors"))
            return error
        return None

    def save_model(self, model: nn.Module, step: int) -> None:
        self.save_tensors(parameters(model), step)

    def save_tensors(
        self,
        tensors: Mapping[str, Tensor],
        step: int = 0,
        read: Callable[[str], Tensor] | None = None,
    ) -> None:
        """Write model.safetensors; `read` as in `write_tensors`."""
        with atomic_write(self.path / "model.safetensors") as file:
            write_tensors(file, tensors, {"format": "pt", "step": str(step)}, read)

    @property
    def states(self) -> list[Path]:
        """The last checkpoint and the previous one; a folder if several processes wrote it."""
        folders = [file.with_suffix("") for file in self.state_files]
        both = zip(folders, self.state_files, strict=True)
        return [folder if folder.exists() else file for folder, file in both]

    def save_state(self, state: State, rotate: bool = True) -> None:
        """Save the last checkpoint; `rotate` first makes the old one the previous."""
        last = self.state_files[0]
        about = {"step": str(state.progress["step"]), "progress": json.dumps(state.progress)}
        with atomic_write(last, partial(self._rotate, last, rotate)) as file:
            write_tensors(file, state.tensors, about)

    def save_shards(self, state: State, writer: "ShardWriter", rotate: bool = True) -> None:
        """Save the last checkpoint in the background; each process writes its part."""
        last = self.state_files[0].with_suffix("")
        new = last.with_name(".last.new")

        def rename() -> None:
            self._rotate(last, rotate)
            os.replace(new, last)
            sync_folder(last.parent)

        writer.save(state.tensors, state.progress, new, rename)

    def _rotate(self, new: Path, rotate: bool) -> None:
        """Move or remove the last checkpoint, a file or a folder, so that `new` can replace it."""
        last, previous = self.states
        if rotate and last.exists():
            if previous.is_dir() or last.is_dir():
                remove(previous)
            os.replace(last, self.state_files[1].with_suffix(last.suffix))
        elif last.is_dir() or last != new:
            remove(last)

    def load_state(
        self,
        restore: Callable[[State, Path], None],
        last_is_good: bool = True,
        processes: Processes = ALONE,
        like: Like | None = None,
    ) -> bool:
        """Call `restore` with the last checkpoint, or with the previous one.

        The previous one is used if the last is damaged, if `restore` raises CheckpointError for it,
        or if it is not good. All processes get the same checkpoint; `like` says how to shard it.

        Returns:
            False if there is no checkpoint yet.
        """
        last, previous = processes.broadcast(self.states)
        if not processes.broadcast(last.exists() or previous.exists()):
            self.check_checkpoints()
            return False

        def read(file: Path) -> int:
            error, step = None, 0
            try:
                state = _read_state(file, like, processes)
                restore(state, file)
                step = int(state.progress["step"])
            except CheckpointError as found:
                error = found
            if not processes.all_true(error is None):
                raise error or CheckpointError(
                    f"another process cannot read {file}",
                    hint="put the run into a folder that all processes can read",
                )
            return step

        if not last_is_good and processes.broadcast(previous.exists()):
            read(previous)
            return True
        try:
            read(last)
        except CheckpointError as error:
            return self._go_back(error, read, processes)
        if processes.first:
            self.say_if_unverified(last)
        return True

    def _go_back(
        self, error: CheckpointError, read: Callable[[Path], int], processes: Processes
    ) -> bool:
        """Use the previous checkpoint instead of the last, which has this error.

        Without a previous one, the last was the first of all: then the run starts at step 0 again.
        """
        last, previous = processes.broadcast(self.states)
        has_previous = processes.broadcast(previous.exists())
        if has_previous:
            try:
                step = read(previous)
            except CheckpointError:
                raise error from None
        elif processes.broadcast(self._model_step() == 0):
            step = 0
        else:
            raise error
        if processes.first:
            print(translate(f"{error}; going back to step {step}"), file=sys.stderr)
            if last.exists():
                # Not as the last: the next save would make it the previous one, in place of a good
                # one.
                damaged = last.with_name(f"damaged{last.suffix}")
                remove(damaged)
                os.replace(last, damaged)
        return has_previous

    def check_checkpoints(self) -> None:
        """Raise CheckpointError if the run was trained, but its checkpoints are gone."""
        if any(state.exists() for state in self.states):
            return
        step = self._model_step()
        steps = [step or 0, *(line["step"] for line in read_metrics(self.path))]
        if max(steps) > 0:
            raise CheckpointError(
                f"{self.path} was trained up to step {max(steps)}, but its checkpoints, "
                f"{self.state_files[0]} and {self.state_files[1].name}, are missing",
                hint="restore them from a backup, or start a new run with its model: "
                f"glasshead train TEXT --from {self.path}",
            )

    def _model_step(self) -> int | None:
        """Return the step of model.safetensors; None if it cannot be read."""
        try:
            return int(TensorFile(self.path / "model.safetensors", self.path).metadata["step"])
        except (OSError, ValueError, KeyError):
            return None

    def say_if_unverified(self, file: Path) -> None:
        """Print a line if the run, or this file of it, was written without checksums."""
        folder_known = has_checksums(self.path)
        file_known = (file / DIGESTS).exists() if file.is_dir() else TensorFile(file).verified
        if not (folder_known and file_known):
            parts = "config.json and tokenizer.json" if file_known else file.name
            what = f"{self.path}: {parts}" if folder_known or file_known else f"{self.path}"
            print(translate(f"{what}: no checksums, loaded unverified"), file=sys.stderr)

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Keep other processes from training this run."""
        (self.path / "state").mkdir(exist_ok=True)  # it may be a copy of the model alone
        with open(self.path / "state" / "lock", "wb") as file:
            if not try_lock(file):
                raise CheckpointError(
                    f"another process is training {self.path}",
                    hint="wait until it ends, or stop it",
                )
            yield


def load_run(path: str | Path) -> Run:
    """Load the best parameters of a run, or those of its last checkpoint if they are damaged."""
    folder = RunFolder.open(path)
    model = folder.new_model()

    def read(file: Path) -> int:
        if file.parent == folder.path:
            tensors, about = read_tensors(file, within=folder.path)
            load_parameters(model, tensors, file)
            return int(about.get("step", 0))
        state = _read_state(file)
        load_parameters(model, state.part("model."), file)
        return int(state.progress["step"])

    used, step = _read_first([folder.path / "model.safetensors", *folder.states], read)
    folder.say_if_unverified(used)
    tokenizer, vocab_size = folder.tokenizer(), folder.config.model.get("vocab_size")
    if isinstance(vocab_size, int) and tokenizer.vocab_size > vocab_size:
        raise CheckpointError(
            f"{folder.path}/tokenizer.json has {tokenizer.vocab_size} ids, the model {vocab_size}",
            hint="it is the tokenizer of another run; put back the one of this run",
        )
    return Run(model.eval(), tokenizer, folder.config, folder.path, step)


def _read_state(file: Path, like: Like | None = None, processes: Processes = ALONE) -> State:
    if file.is_dir():
        from glasshead.checkpoint.sharded import read_shards

        return State(*read_shards(file, like, processes))
    tensors, about = read_tensors(file, like, within=file.parent.parent)
    try:
        return State(tensors, dict(json.loads(about["progress"])))
    except (KeyError, ValueError, TypeError) as error:
        raise CheckpointError(
            f"{file} is not a checkpoint: {error!r}", hint="restore it from a backup"
        ) from None


def _shapes(file: Path, folder: Path) -> dict[str, Tensor]:
    """Return the parameters in a file, of a model or a checkpoint, on the meta device."""
    try:
        shapes = TensorFile(file, folder).meta_tensors()
    except (OSError, ValueError) as error:
        raise damage_error(file, error) from None
    if file.parent == folder:
        return shapes
    return State(shapes, {}).part("model.")


def _read_first(files: list[Path], read: Callable[[Path], Result]) -> tuple[Path, Result]:
    """Return the first file that can be read, and what `read` returns for it."""
    errors: list[CheckpointError] = []
    for file in files:
        try:
            found = read(file)
        except CheckpointError as error:
            errors.append(error)
            continue
        if errors:
            print(translate(f"{errors[0]}; using {file} instead"), file=sys.stderr)
        return file, found
    raise errors[0]
