"""One module an exercise, named like it: `check(mine)` compares the learner's file.

It yields the documents' printed numbers beside the learner's, and raises TroubleFound. The texts of
its hints and of its own mistakes are in the TOML file beside it.
"""
