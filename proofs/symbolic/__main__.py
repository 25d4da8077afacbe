"""Prove the theorems about the rules, and print what it took.

    python -m proofs.symbolic [RULE]... [--long]

The exit code is 0 if all is proved, 1 if something is not, 2 for arguments that make no sense.
"""

import argparse
import os
import sys

INTERRUPTED = 130


def main(arguments: list[str]) -> int:
    """Check the claims about the rules that are named, or about all; return the exit code."""
    # It takes seconds, in which there may be an interrupt.
    from proofs.symbolic.theorems import LONG, LOSSY, QUICK

    quick = QUICK | LOSSY
    parser = argparse.ArgumentParser(
        prog="python -m proofs.symbolic",
        description="Prove the theorems about the rules, and print what it took.",
        epilog=f"Rules: {', '.join(quick)}. Without one, all of them.",
    )
    parser.add_argument("rules", nargs="*", metavar="RULE", help="a rule to prove claims about")
    parser.add_argument("--long", action="store_true", help="larger sizes too, up to minutes each")
    asked = parser.parse_args(arguments)
    unknown = [name for name in asked.rules if name not in quick]
    if unknown:
        parser.error(f"there is no claim about {', '.join(unknown)}; one of: {', '.join(quick)}")
    failed = 0
    for name in asked.rules or quick:
        claims = quick[name]() + (LONG[name]() if asked.long and name in LONG else [])
        for claim in claims:
            result = claim.check()
            failed += not result
            print(f"{'proved' if result else 'FAILED'}  {claim.says}: {result.show()}", flush=True)
    return int(failed > 0)


if __name__ == "__main__":
    try:
        code = main(sys.argv[1:])
    except KeyboardInterrupt:
        code = INTERRUPTED
    except BrokenPipeError:  # whoever read the lines has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 1
    sys.exit(code)
