# SPDX-License-Identifier: GPL-2.0
"""Cases and their results, as KTAP.

In: functions marked with @case, in the order in which they stand. Out: KTAP on
stdout and status 1 when a case failed. After every case the checks registered
with `after_each` run (invariants of the counters, the kernel's log); a case
that passed its own checks fails by theirs. What a case changed it undoes with
`cleanup`, which also runs when it fails or the process is told to end.

With RXE_CC_REPORTS only those checks are verdicts (`run --reports`): on a kernel
that is slow because it looks for bugs, a case is there to make it find some. One
whose own rule was broken is shown as skipped, with what broke it.
"""
import os
import signal
import sys
import time
import traceback

_cases = []
_checks = []
_cleanups = []
_finals = []


class Failure(AssertionError):
    """The rule that the case states does not hold."""


class Skip(Exception):
    """The case cannot be run here, and why."""


def case(function):
    """The name states the rule: underscores become spaces."""
    _cases.append(function)
    return function


def after_each(check):
    """check() returns a list of complaints."""
    _checks.append(check)


def cleanup(function, *arguments):
    """Run when the case is over, last one first."""
    _cleanups.append((function, arguments))


def at_end(function, *arguments):
    """Run when all cases are over, last one first."""
    _finals.append((function, arguments))


def note(text):
    print(f"# {text}", flush=True)


def check(holds, text):
    if not holds:
        raise Failure(text)


def equal(got, want, what):
    if got != want:
        raise Failure(f"{what}: {got!r}, expected {want!r}")


def _unwind(stack):
    complaints = []
    while stack:
        function, arguments = stack.pop()
        try:
            function(*arguments)
        except Exception as error:  # noqa: BLE001
            complaints.append(f"cleanup {function.__name__}: {error}")
    return complaints


def _run_one(function, before_checks):
    """(ok, skip reason, complaints)"""
    complaints = []
    try:
        function()
    except Skip as reason:
        return True, str(reason), _unwind(_cleanups)
    except Failure as failure:
        complaints.append(str(failure))
        # Which line: a helper may check many things.
        place = [f for f in traceback.extract_tb(failure.__traceback__) if "/lib/" not in f.filename]
        if place:
            complaints.append(f"at line {place[-1].lineno}: {place[-1].line}")
    except Exception:  # noqa: BLE001
        complaints += traceback.format_exc().rstrip().splitlines()
    complaints += _unwind(_cleanups)
    own = list(complaints)
    for checks in before_checks:
        complaints += checks()
    if own and complaints == own and os.environ.get("RXE_CC_REPORTS"):
        return True, f"not judged here: {own[0]}", complaints
    return not complaints, None, complaints


def _terminate(number, _frame):
    raise SystemExit(128 + number)


def main(setup=None, on_failure=None, after_case=None):
    """Run all cases, or those whose names contain a word of the command line."""
    words = sys.argv[1:]
    chosen = [f for f in _cases if not words or any(w in f.__name__ for w in words)]
    signal.signal(signal.SIGTERM, _terminate)
    signal.signal(signal.SIGINT, _terminate)
    print("KTAP version 1")
    print(f"1..{len(chosen)}", flush=True)
    failed = 0
    broken = None
    try:
        if setup:
            try:
                setup()
            except Skip as reason:
                broken = f"SKIP {reason}"
            except Exception as error:  # noqa: BLE001
                broken = f"set-up failed: {error}"
                for line in traceback.format_exc().rstrip().splitlines():
                    note(line)
        for number, function in enumerate(chosen, 1):
            name = function.__name__.replace("_", " ")
            if broken:
                skip = broken.startswith("SKIP")
                failed += not skip
                print(f"{'ok' if skip else 'not ok'} {number} {name}{' # ' + broken if skip else ''}", flush=True)
                continue
            started = time.monotonic()
            ok, skip, complaints = _run_one(function, _checks)
            seconds = time.monotonic() - started
            for line in complaints:
                note(line)
            if not ok:
                failed += 1
                if on_failure:
                    on_failure(function.__name__)
            if after_case:
                after_case()
            verdict = "ok" if ok else "not ok"
            if skip is not None:
                print(f"{verdict} {number} {name} # SKIP {skip}", flush=True)
            else:
                if seconds > 5:
                    note(f"{seconds:.0f} s")
                print(f"{verdict} {number} {name}", flush=True)
    finally:
        _unwind(_cleanups)
        for line in _unwind(_finals):
            note(line)
            failed += 1
    sys.stdout.flush()
    # Without the interpreter's own cleaning up: threads may hold sockets.
    os._exit(1 if failed else 0)
