"""Wrong attentions in several styles, written before their writer had read the checker."""
