"""Ids become more ids, and text.

`sampling.py` picks the next id, `decode.py` goes on and on, `stream.py` reads it out as text;
`score.py` measures how well a text is predicted, `int8.py` makes a model faster on a CPU.
"""
