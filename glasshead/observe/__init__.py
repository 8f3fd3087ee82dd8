"""Exact attention at any length: record any model, then compute weights and statistics in tiles.

Start with `recording.py` (`observing`), `trace.py` (what it returns) and `statistics.py` (what is
measured of each head).
"""
