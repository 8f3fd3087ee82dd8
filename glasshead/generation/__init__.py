"""Ids become more ids, and text.

`sampling.py` picks the next id, `decode.py` goes on and on, `stream.py` reads it out as text;
`score.py` measures how well a text is predicted, `int8.py` makes a model faster on a CPU.

`together.py` continues texts that come and go: `prompts.py` reads them, a chunk at a time, and
`slots.py` holds their keys and values.

`beam.py` searches for translations, on the `rows.py` that the model computes; `translate.py` does
so for texts, which `splitting.py` cuts where they are too long. `alignment.py` tells what each word
looked at, and `score_pairs.py` how close translations come to those of people.
"""
