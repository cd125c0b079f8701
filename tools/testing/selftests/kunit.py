# SPDX-License-Identifier: GPL-2.0
"""The KUnit suites in the module (#[kunit_tests] in rust/): its abstractions over
the kernel, tried against the kernel. They exist where the kernel was built with
KUnit, as the lab's debug kernel was. A case a suite; what failed is noted."""
import glob
import os
import re

from lab import ROOT, Module, Skip, case, check, equal, main, note, read

KUNIT = "/sys/kernel/debug/kunit"
# Their verdicts count on every kernel.
os.environ.pop("RXE_CC_REPORTS", None)


def suites():
    """Names of suites and how many tests each has, as the sources say."""
    found = {}
    for path in glob.glob(f"{ROOT}/rust/**/*.rs", recursive=True):
        with open(path) as file:
            for name, body in re.findall(r"kunit_tests\((\w+)\)\](.*?)^}", file.read(), re.S | re.M):
                found[name] = body.count("#[test]")
    return found


SUITES = suites()


def results(name):
    """Run a suite; its tests and their verdicts, as KTAP has them."""
    directory = f"{KUNIT}/{name}"
    check(os.path.isdir(directory), f"the module has no suite {name}")
    with open(f"{directory}/run", "w") as file:
        file.write("1")
    text = read(f"{directory}/results")
    return text, {test: verdict for verdict, test in re.findall(r"^ +((?:not )?ok) \d+ (\S+)", text, re.M)}


def add(name, tests):
    def suite():
        text, verdicts = results(name)
        failed = [test for test, verdict in verdicts.items() if verdict != "ok"]
        if failed or len(verdicts) != tests:
            for line in text.splitlines():
                note(line)
        check(not failed, f"failed: {', '.join(failed)}")
        equal(len(verdicts), tests, "tests that reported")
        check("SKIP" not in text, "a test was skipped")
    suite.__name__ = f"suite_{name}"
    case(suite)


if os.path.isdir(KUNIT):
    for suite_name, test_count in sorted(SUITES.items()):
        add(suite_name, test_count)

    @case
    def all_suites_of_the_module_are_in_its_sources():
        there = {os.path.basename(path) for path in glob.glob(f"{KUNIT}/rxe_cc_*")}
        check(len(there) > 5, f"only {sorted(there)}")
        equal(there, set(SUITES), "suites")

    @case
    def suites_go_with_the_module():
        Module.unload()
        equal(glob.glob(f"{KUNIT}/rxe_cc_*"), [], "suites left")
        Module.load()
        check(glob.glob(f"{KUNIT}/rxe_cc_*"), "no suites after another load")
else:
    @case
    def the_kunit_suites_pass():
        raise Skip("this kernel has no KUnit (the lab's debug kernel has: scripts/lab run --kernel debug)")


main(lambda: None, need=())
