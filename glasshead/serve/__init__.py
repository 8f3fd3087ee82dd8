"""The page and the API: one server on a run, a folder of them, or a .glass file."""
