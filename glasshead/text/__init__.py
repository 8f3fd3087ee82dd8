"""Text becomes ids: tokenizers, corpora, stores of ids, and batches."""
