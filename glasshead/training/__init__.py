"""Training: `loop.py` is the loop, `language.py` the task of predicting text, the rest is parts."""
