"""The folder of a run, written so that a kill at any moment loses nothing. It holds no code.

    runs/NAME/
      config.json           what the model is, how it is trained, on what
      tokenizer.json
      model.safetensors     the best parameters so far: what `load` reads
      state/last.safetensors, state/previous.safetensors
                            checkpoints: parameters, optimizer, RNG, counters; folders
                            (`sharded.py`) if several processes train

Every file is written under a temporary name, synced and renamed: a reader finds the old file or the
new one, complete.
"""

from glasshead.checkpoint.exporting import Exported, export_model
from glasshead.checkpoint.foreign_model import kind_of
from glasshead.checkpoint.importing import import_model, load
from glasshead.checkpoint.run import KINDS, Run, RunConfig, load_parameters, parameters
from glasshead.checkpoint.run_folder import RunFolder, State

__all__ = [
    "KINDS", "Exported", "Run", "RunConfig", "RunFolder", "State", "export_model", "import_model",
    "kind_of", "load", "load_parameters", "parameters",
]  # fmt: skip
