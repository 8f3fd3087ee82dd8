"""The page: its files (`web/`), the answers it shows, and the page as one file.

Needs no server. `serve` sends the same files and answers over HTTP, `look -o x.html` writes them
into one file.
"""
