"""The Triton programs of the `triton` engine; `observe/kernel.py` calls them.

`scores.py` makes a tile of log weights; the others measure: `rows.py` (the sweep over all tiles),
`lse.py` (a lighter sweep), `pairs.py` (single pairs, lags), `top.py` (the strongest keys, from the
groups that the sweep named). Importing any of them needs Triton.

Sums that several programs share are gathered as whole numbers, in units of 2^-40: whole numbers
add up to the same in any order.
"""
