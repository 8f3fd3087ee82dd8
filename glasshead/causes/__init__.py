"""Why a model gives an answer, in numbers.

    question.py     which token of which text is asked about
    direct_path.py  the part of a run in which the logit is a sum: frozen norms, gradients at row t
    attribution.py  what every head, every edge and every other part adds to the logit
    lens.py         what the model would answer after each block
    patching.py     heads, edges and positions of one text put into the run on another
    smallest.py     a set of edges that keeps the answer and of which none can be left out

All of it works on what `roles.Subject` opens: our language models and readers, and those of the
transformers library whose attention `observe` can record. Nothing of size T x S is kept.
"""
