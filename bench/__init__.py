"""Benchmarks: `python -m bench` for all areas beside their peers, `python -m bench.growth` for what
growing costs. The other scripts here are whole runs, each a command of its own."""
