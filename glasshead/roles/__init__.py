"""What every head of a model does, with scores, controls and proofs.

    scores.py     pure functions: statistics or weights of attention -> scores of roles, (B, H)
    catalogue.py  the roles: thresholds, the behaviour that each is proved on

The contract of `scores.py`, for all who need role scores (measuring a model, watching one train):

    role_scores(statistics)         {role: (B, H)} of a `HeadStatistics`; needs nothing else
    weight_on(weights, targets)     (B, H) mean weight on target pairs, of weights (B, H, T, S)
    weight_by_chance(...), weight_by_place(...)    what a head gets that spreads its weight evenly,
                                    or that looks at the same distances whatever the tokens are
    copies(ids), followers(ids)     (B, T, S) target pairs of "duplicate" and of "induction"

They keep no state, run no model, and work on any device. Sequences of the batch stay apart, so that
a caller can give an interval over them.

This part knows our models and those that `observe` can record; it does not train or generate.
"""
