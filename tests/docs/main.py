"""Runs the pages of the manual and checks its links; see run.sh."""

import fcntl
import os
import re
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import links
import names
from markdown import Page
from session import BINARY, REPO, Session, Wrong, make_tools

DOCS = REPO / "docs"
RUNS = REPO / ".cache" / "runs" / "docs"
PORTS = (9042, 19042, 9180, 10000, 7000)
# Pages wait for processes more than they compute.
PAGES_AT_ONCE = 3
# Folders of pages whose blocks are formats and drawings.
NOT_COMMANDS = ("decisions/", "formats/")
# Reference texts whose blocks are written for a node with other data, with how many each has: the numbers may
# only shrink.
NOT_RUN = {"admin.md": 5, "cassandra.md": 0, "compatibility.md": 0, "functions.md": 0, "install.md": 4, "stress.md": 1, "adding.md": 0}


def open_loopback():
    """Loopback of a new network namespace is down until IFF_UP is set (ioctl SIOCGIFFLAGS, SIOCSIFFLAGS)."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        request = struct.pack("16sh14x", b"lo", 0)
        flags = struct.unpack("16sh14x", fcntl.ioctl(sock, 0x8913, request))[1]
        fcntl.ioctl(sock, 0x8914, struct.pack("16sh14x", b"lo", flags | 1))


def taken_ports():
    """The default ports that another program has."""
    taken = []
    for port in PORTS:
        with socket.socket() as sock:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                sock.bind(("127.0.0.1", port))
            except OSError:
                taken.append(port)
    return taken


def carry_out(name):
    """Runs one page; its report, and whether it is true."""
    folder = RUNS / re.sub(r"\W+", "-", name)
    folder.mkdir(parents=True)
    began = time.monotonic()
    try:
        session = Session(Page(DOCS / name), folder, RUNS / "tools")
        session.run()
    except (Wrong, ValueError) as error:
        return f"docs/{name}: {error}", False
    shutil.rmtree(folder, ignore_errors=True)
    took = time.monotonic() - began
    return f"docs/{name}: {session.ran} blocks run, {session.left_out} not, {took:.1f} s", True


def carry_out_apart(name):
    """Runs one page in a process with a network of its own, so that others can run beside it."""
    command = ["unshare", "--net", sys.executable, __file__, name]
    done = subprocess.run(command, env={**os.environ, "DOCS_NETWORK": "page"}, stdout=subprocess.PIPE, text=True)
    return done.stdout.rstrip("\n"), done.returncode == 0


def blocks_not_run(name):
    """A reference text has no more blocks than were counted."""
    count, allowed = len(Page(DOCS / name).blocks), NOT_RUN[name]
    if count == allowed:
        return f"docs/{name}: {count} blocks not run", True
    advice = "mark new ones and run them; lower the number where some went"
    return f"docs/{name}: {count} blocks are not run, {allowed} were: {advice}", False


def pages():
    """The pages of SUMMARY.md in their order, below docs/."""
    return [target for _, target in Page(DOCS / "SUMMARY.md").links()]


def reports(wanted, is_apart):
    """(report, whether it passed) of every check."""
    if not wanted:
        yield from links.reports(REPO, DOCS)
        yield from names.reports(REPO, DOCS)
    names_of_pages = [name for name in wanted or pages() if not name.startswith(NOT_COMMANDS)]
    yield from (blocks_not_run(name) for name in names_of_pages if name in NOT_RUN)
    run = [name for name in names_of_pages if name not in NOT_RUN]
    if is_apart:
        with ThreadPoolExecutor(PAGES_AT_ONCE) as pool:
            yield from pool.map(carry_out_apart, run)
    else:
        yield from map(carry_out, run)


def main():
    if not os.access(BINARY, os.X_OK):
        sys.exit(f"no binary at {BINARY}: build it with cargo build --release")
    network = os.environ.get("DOCS_NETWORK", "shared")
    if network != "shared":
        open_loopback()
    # An end by the system is an exception, so that processes of pages are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by SIGTERM"))
    taken = taken_ports()
    if taken:
        sys.exit(f"ports {taken} are taken: the pages of the manual use the default ones")
    if network == "page":
        report, is_well = carry_out(sys.argv[1])
        print(report)
        return 0 if is_well else 1
    shutil.rmtree(RUNS, ignore_errors=True)
    make_tools(RUNS / "tools")
    passed = failed = 0
    for report, is_well in reports(sys.argv[1:], network == "own"):
        print(("ok    " if is_well else "WRONG ") + report, flush=True)
        passed, failed = passed + is_well, failed + (not is_well)
    print(f"{passed} passed, {failed} failed, 0 skipped")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
