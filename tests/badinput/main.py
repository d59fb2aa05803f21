"""Runs the suite: `main.py [MODULE | MODULE.Class | MODULE.Class.test ...]`. Ends with `N passed, N failed, N skipped`."""

import sys
import time
import traceback
import unittest

MODULES = ["test_frames", "test_statements", "test_load", "test_memory", "test_storm", "test_start", "test_disk"]


class Lines(unittest.TestResult):
    """A line for each test, and for each failure what it said."""

    def startTest(self, test):
        super().startTest(test)
        self.started, self.bad = time.monotonic(), 0

    def stopTest(self, test):
        super().stopTest(test)
        word = "FAILED" if self.bad else "skipped" if self.skipped and self.skipped[-1][0] is test else "ok"
        print(f"{word:8}{time.monotonic() - self.started:6.1f} s  {test.id()}", flush=True)

    def tell(self, test, error):
        self.bad = getattr(self, "bad", 0) + 1
        last = traceback.extract_tb(error[2])[-1]
        place = next((f for f in reversed(traceback.extract_tb(error[2])) if "/test_" in f.filename), last)
        print(f"        {test}\n        line {place.lineno}: {error[0].__name__}: {str(error[1])[:600]}", flush=True)

    def addFailure(self, test, error):
        super().addFailure(test, error)
        self.tell(test, error)

    def addError(self, test, error):
        super().addError(test, error)
        self.tell(test, error)

    def addSubTest(self, test, subtest, error):
        super().addSubTest(test, subtest, error)
        if error:
            self.tell(subtest, error)

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        print(f"        skipped: {reason}", flush=True)


def main():
    suite = unittest.defaultTestLoader.loadTestsFromNames(sys.argv[1:] or MODULES)
    result = Lines()
    suite.run(result)
    failed = len({str(getattr(test, "test_case", test)) for test, _ in result.failures + result.errors})
    skipped = len(result.skipped)
    print(f"{max(0, result.testsRun - failed - skipped)} passed, {failed} failed, {skipped} skipped")
    return 1 if failed or not result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
