"""What every benchmark has in common: works run in turns, and the rows of its table."""

import statistics
import sys


def in_turns(repeat, *works):
    """Runs each work once per round; returns the list of results of each."""
    results = [[] for _ in works]
    for round_number in range(repeat):
        for at, work in enumerate(works):
            results[at].append(work())
        shown = "  ".join(f"{r[-1]:.4f}" for r in results if isinstance(r[-1], float))
        print(f"  round {round_number + 1} of {repeat}: {shown}", file=sys.stderr)
    return results


def row(name, ours, peer, peer_name, unit, goal, met, ratio, better):
    return {"name": name, "ours": ours, "peer": peer, "peer_name": peer_name, "unit": unit, "goal": goal, "met": met,
            "ratio": ratio, "better": better}


def missing(name, why):
    """A row that says why there is no figure."""
    return row(f"{name}: not measured, {why}", None, None, None, "", "", None, None, None)


def times_faster(name, ours, peer, peer_name, goal=None, unit="ms", scale=1e3):
    """Both are times; the ratio is how often ours fits into the peer's."""
    ratio = peer / ours
    return row(name, ours * scale, peer * scale, peer_name, unit, f">= {goal:g}x faster" if goal else "",
               ratio >= goal if goal else None, ratio, "faster")


def share_of(name, ours, peer, peer_name, goal=None, unit="ms", scale=1e3):
    """Both are costs; ours as a share of the peer's."""
    return row(name, ours * scale, peer * scale, peer_name, unit, f"<= {goal:.0%} of it" if goal else "",
               ours <= goal * peer if goal else None, ours / peer, "of it")


def median_of(results, key):
    return statistics.median(r[key] for r in results)
