"""Generate text: continue texts, translate them, and score how well they are predicted.

`decode.py` (ids) and `stream.py` (text) continue texts in Python. Both use `batch.py`, as the
server does: texts join and leave a `GenerationBatch` at any step. Below it, `prompt_queue.py` reads
prompts, `kv_slots.py` holds keys and values, `step.py` runs the model one id further (on a CPU by
`flat_step.py`, on a GPU by `cuda_graph_step.py` and `look_ahead.py`), `sampling.py` picks the next
id, and `text_state.py` decides when a text ends. `int8.py` makes a model faster on a CPU.

`beam.py` searches for translations, whose state is in `translation_rows.py`; `translate.py` does so
for texts, which `splitting.py` splits if they are too long. `alignment.py` shows what each word
attended to. `score.py` measures how well a text is predicted, and `score_pairs.py` how close
translations come to references.
"""
