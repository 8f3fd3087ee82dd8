"""From text to ids: tokenizers, corpora, stores of ids, and batches."""
