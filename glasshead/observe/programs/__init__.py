"""The Triton programs of the `triton` engine; `observe/triton_engine.py` calls them.

`scores.py` makes a tile of log weights; the others measure: `rows.py` (the sweep over all tiles),
`packed.py` (the same for 16 bits, with `halves.py` and `assembly.py`), `lse.py` (a lighter sweep),
`near.py` and `pairs.py` (lags, single pairs), `copies.py` (earlier copies of a token), `top.py`
(the strongest keys, from the groups that the sweep named). Importing any of them needs Triton.

Where the same bits are wanted twice, sums that several programs share are whole numbers, in units
of 2^-40: whole numbers add up to the same in any order.
"""
