"""Attention, from five NumPy functions to fused kernels.

Read `steps.py` first, then `mask.py`, `scores.py`, `functional.py`, `multihead.py`.
"""
