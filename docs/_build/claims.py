"""Judge the evidence in docs/claims.json again, and write it, the pages and the figures anew.

    python -m docs._build.claims

Needed after a change of a claim's texts or figure. Nothing is measured.
"""

from dataclasses import replace
from pathlib import Path

from glasshead.lab.claims import load_claim
from glasshead.lab.claims.report import read_docs, write_docs

DOCS = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    found = read_docs(DOCS)
    claims = {
        number: replace(result, finding=load_claim(number).judge(result.evidence))
        for number, result in found.claims.items()
    }
    write_docs(replace(found, claims=claims), DOCS)
