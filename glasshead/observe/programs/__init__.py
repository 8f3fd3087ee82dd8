"""The Triton programs of the `triton` engine; `observe/triton_engine.py` calls them.

`scores.py` computes a tile of log weights. `sweep.py` measures all tiles; `packed_sweep.py` does so
in 16 bits, with `float16_pairs.py` and `ptx.py`. Smaller programs are in `lse.py`, `near_lags.py`,
`single_pairs.py`, `token_copies.py` and `top_keys.py`. Importing any of them needs Triton.

For results that are the same bits each time, sums that several programs share are whole numbers of
2^-40: integers add up to the same in any order.
"""
