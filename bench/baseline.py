# SPDX-License-Identifier: GPL-2.0
"""The stored baseline: ratios of an earlier run, and what became worse since.

In: figures of this run. Out: a table of those that differ, and the names of those
that are worse: whose interval and the baseline's do not touch, on the wrong side, and
whose values are more than the tolerance apart. Only ratios are stored: absolute
figures are those of a machine. As a program: `baseline.py store BENCH_JSON...` makes
the baseline from results.
"""
import json
import os
import sys

import common

PATH = f"{common.HERE}/baseline.json"
# Differences below this say nothing, however narrow the intervals.
TOLERANCE = 0.02


def entry(figure):
    return {name: getattr(figure, name) for name in ("value", "low", "high", "samples", "unit", "better", "goal", "ratio")}


def stored():
    """key -> Figure; empty before the first was stored."""
    try:
        with open(PATH) as file:
            return {key: common.Figure(**fields) for key, fields in json.load(file)["figures"].items()}
    except FileNotFoundError:
        return {}


def worse_than(now, before):
    return now.worse_than(before) and abs(now.value - before.value) > TOLERANCE * max(abs(before.value), TOLERANCE)


def compare(figures, quick):
    """Shows; the keys of those that are worse."""
    known = stored()
    both = [key for key, figure in figures.items() if figure.ratio and key in known]
    print(f"\n== Against the baseline: {len(both)} ratios" + ("" if known else " (none is stored: bench/baseline.json)"))
    worse = [key for key in both if worse_than(figures[key], known[key])]
    better = [key for key in both if worse_than(known[key], figures[key])]
    for label, keys in ("WORSE ", worse), ("better", better):
        for key in keys:
            print(f"  {label} {key}: {figures[key]}, was {known[key]}")
    if both and not worse:
        print("  nothing is worse" + (" (a quick run has wide intervals)" if quick else ""))
    return worse


def store(paths):
    figures, machine = {}, None
    for path in paths:
        with open(path) as file:
            result = json.load(file)
        machine = result["machine"]
        figures.update({key: fields for key, fields in result["figures"].items() if fields["ratio"]})
    with open(PATH, "w") as file:
        json.dump({"machine": machine, "figures": dict(sorted(figures.items()))}, file, indent=1)
        file.write("\n")
    print(f"{PATH}: {len(figures)} ratios")


if __name__ == "__main__":
    if len(sys.argv) < 3 or sys.argv[1] != "store":
        sys.exit("baseline.py store BENCH_JSON...")
    store(sys.argv[2:])
