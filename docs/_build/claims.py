"""Judge the evidence in docs/claims.json again, and write it, the pages and the figures anew.

    python -m docs._build.claims                    # after a change of a claim's texts or figure
    python -m docs._build.claims runs/claims        # and take the results of this folder

Nothing is measured.
"""

import sys
from dataclasses import replace
from pathlib import Path

from glasshead.lab.claims import claim_modules, load_claim
from glasshead.lab.claims.report import read_docs, write_docs
from glasshead.lab.claims.store import read_result

DOCS = Path(__file__).resolve().parents[1]

if __name__ == "__main__":
    found = read_docs(DOCS)
    stored = dict(found.claims)
    for folder in map(Path, sys.argv[1:]):
        new = {number: read_result(folder, number) for number in claim_modules()}
        stored |= {number: result for number, result in new.items() if result is not None}
    claims = {
        number: replace(result, finding=load_claim(number).judge(result.evidence))
        for number, result in sorted(stored.items())
    }
    write_docs(replace(found, claims=claims), DOCS)
