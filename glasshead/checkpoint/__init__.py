"""A run's folder, written so that no kill can lose it. Nothing in it can run code.

    runs/NAME/
      config.json           what the model is, how it is trained, on which text
      tokenizer.json
      model.safetensors     the best parameters so far: what `load` reads
      state/last.safetensors, state/previous.safetensors
                            all that resuming needs: parameters, optimizer, RNG, counters;
                            folders (`sharded.py`) where several processes train

Every file is written under a temporary name, synced and renamed. Whoever reads it, after
whatever kill, finds the old one or the new one, whole.
"""

from glasshead.checkpoint.exporting import Exported, export_model
from glasshead.checkpoint.foreign_model import kind_of
from glasshead.checkpoint.importing import import_model, load
from glasshead.checkpoint.run import (
    KINDS,
    Run,
    RunConfig,
    RunFolder,
    State,
    load_parameters,
    parameters,
)

__all__ = [
    "KINDS",
    "Exported",
    "Run",
    "RunConfig",
    "RunFolder",
    "State",
    "export_model",
    "import_model",
    "kind_of",
    "load",
    "load_parameters",
    "parameters",
]
