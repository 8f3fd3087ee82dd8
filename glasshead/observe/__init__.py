"""Exact attention at any length: statistics from q, k and the log-sum-exp, tile by tile.

Read `statistics.py` first: it says what is measured. `tiled.py` and `kernel.py` measure it.
"""
