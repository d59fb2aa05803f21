"""A process that does nothing but read the clock: what holds it, holds a server on this machine too.

    clock.py CPU    until its input ends; then one line of JSON: times that it was held beyond 5 ms and the longest, in ms

Times when another process had its core do not count: the kernel tells of those, as it does for a server. What is left is the kernel's
own work and the host of a virtual machine, which no program inside can tell from its own.
"""
import gc
import json
import os
import resource
import subprocess
import sys
import threading
import time

HELD_NS = 5_000_000


class Clock:
    """The process, on a core of its own."""

    def __init__(self, cpu):
        self.process = subprocess.Popen([sys.executable, os.path.abspath(__file__), str(cpu)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    @classmethod
    def beside(cls, cpus):
        """On the last of the client's cores, where it keeps another; and what it keeps."""
        kept, _, last = cpus.rpartition(",")
        if not kept or not last.isdigit():
            return None, cpus
        return cls(last), kept

    def end(self):
        """What it found; nothing where it failed."""
        try:
            output, _ = self.process.communicate(timeout=30)
            return json.loads(output)
        except (subprocess.TimeoutExpired, ValueError):
            self.process.kill()
            self.process.wait()
            return None


def read(ended):
    held, longest = 0, 0
    last, switches = time.monotonic_ns(), switched()
    while not ended.is_set():
        for _ in range(10_000):
            now = time.monotonic_ns()
            if now - last > HELD_NS:
                before, switches = switches, switched()
                if switches == before:
                    held += 1
                    longest = max(longest, now - last)
                now = time.monotonic_ns()
            last = now
        switches, last = switched(), time.monotonic_ns()
    return {"held": held, "longest_ms": longest / 1e6}


def switched():
    usage = resource.getrusage(resource.RUSAGE_THREAD)
    return usage.ru_nivcsw + usage.ru_nvcsw


def main():
    os.sched_setaffinity(0, {int(sys.argv[1])})
    gc.disable()
    # Two threads take turns in one interpreter: not while the other one waits for input.
    ended = threading.Event()
    threading.Thread(target=lambda: (sys.stdin.read(), ended.set()), daemon=True).start()
    print(json.dumps(read(ended)))


if __name__ == "__main__":
    main()
