"""Prove the theorems about the rules, and print what it took.

    python -m proofs.symbolic [RULE]... [--long]

With `--long` the larger sizes too.
"""

import sys

from proofs.symbolic.theorems import LONG, LOSSY, QUICK


def main(arguments: list[str]) -> int:
    """Check the claims about the rules that are named, or about all; return the exit code."""
    quick = QUICK | LOSSY
    names = [name for name in arguments if name != "--long"] or list(quick)
    failed = 0
    for name in names:
        claims = quick[name]() + (LONG[name]() if "--long" in arguments and name in LONG else [])
        for claim in claims:
            result = claim.check()
            failed += not result
            print(f"{'proved' if result else 'FAILED'}  {claim.says}: {result.show()}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
