"""The centre of the house: attention, from five NumPy functions to fused kernels.

Read `steps.py` first, then `mask.py`, `scores.py`, `functional.py`, `multihead.py`.
"""
