"""What every benchmark has in common: works run in turns, and the rows of its table."""

import statistics
import sys


def in_turns(repeat, *works):
    """Runs each work once per round; returns the list of results of each. A peer (peers.py) that crashed has fewer, or none."""
    results = [[] for _ in works]
    for round_number in range(repeat):
        for at, work in enumerate(works):
            result = work()
            if result is not None:
                results[at].append(result)
        shown = "  ".join(f"{r[-1]:.4f}" for r in results if r and isinstance(r[-1], float))
        print(f"  round {round_number + 1} of {repeat}: {shown}", file=sys.stderr)
    return results


def median(values):
    """None of nothing: of a peer that never came through."""
    values = list(values)
    return statistics.median(values) if values else None


def median_of(results, key):
    return median(r[key] for r in results)


def row(name, ours, peer, peer_name, unit, goal, met, ratio, better):
    return {"name": name, "ours": ours, "peer": peer, "peer_name": peer_name, "unit": unit, "goal": goal, "met": met,
            "ratio": ratio, "better": better}


def missing(name, why):
    """A row that says why there is no figure."""
    return row(f"{name}: not measured, {why}", None, None, None, "", "", None, None, None)


def beside(name, ours, peer, peer_name, unit, goal, met, ratio, better):
    """A row with a peer. `met` and `ratio` are functions of both; without the peer's figure they stay open."""
    if peer is None:
        return row(name, ours, None, f"{peer_name}: crashed", unit, goal, None, None, None)
    return row(name, ours, peer, peer_name, unit, goal, met(ours, peer), ratio(ours, peer), better)


def scaled(value, scale):
    return None if value is None else value * scale


def times_faster(name, ours, peer, peer_name, goal=None, unit="ms", scale=1e3):
    """Both are times; the ratio is how often ours fits into the peer's. Goal: a ratio, or 0 for "faster"."""
    words = "" if goal is None else f">= {goal:g}x faster" if goal else "faster"

    def met(a, b):
        return None if goal is None else b / a >= goal if goal else a < b
    return beside(name, ours * scale, scaled(peer, scale), peer_name, unit, words, met, lambda a, b: b / a, "faster")


def share_of(name, ours, peer, peer_name, goal=None, unit="ms", scale=1e3):
    """Both are costs; ours as a share of the peer's."""
    return beside(name, ours * scale, scaled(peer, scale), peer_name, unit, f"<= {goal:.0%} of it" if goal else "",
                  lambda a, b: a <= goal * b if goal else None, lambda a, b: a / b, "of it")
