"""Experiments and demonstrations: attention at work, in numbers and in claims that can fail."""
