#!/usr/bin/env python3
"""How long a node takes from exec to its first CQL answers, and what it costs when idle.

    perf/start.py [--ceto PATH] [--starts N] [--idle-seconds S] [--smp N]

Prints milliseconds to the line `ceto ready`, to the first SUPPORTED and to the first rows of `SELECT * FROM system.local`
(minimum, median, maximum), for an empty directory and for one with data, then processor time used while idle.
"""
import argparse
import os
import signal
import socket
import statistics
import struct
import subprocess
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PORT = 19742


def frame(opcode, body=b"", stream=0):
    return struct.pack(">BBhBI", 4, 0, stream, opcode, len(body)) + body


def receive(sock):
    head = b""
    while len(head) < 9:
        part = sock.recv(9 - len(head))
        if not part:
            raise OSError("closed")
        head += part
    length = struct.unpack(">I", head[5:9])[0]
    body = b""
    while len(body) < length:
        part = sock.recv(length - len(body))
        if not part:
            raise OSError("closed")
        body += part
    return head[4], body


def connect(deadline):
    while time.perf_counter() < deadline:
        try:
            sock = socket.create_connection(("127.0.0.1", PORT), 1)
            sock.settimeout(5)
            return sock
        except OSError:
            time.sleep(0.001)
    raise SystemExit("no connection within 20 s")


def startup_body():
    return struct.pack(">H", 1) + struct.pack(">H", 11) + b"CQL_VERSION" + struct.pack(">H", 5) + b"3.0.0"


def query_body(text):
    text = text.encode()
    return struct.pack(">I", len(text)) + text + struct.pack(">HB", 1, 0)


def start(binary, workdir, smp, memory):
    began = time.perf_counter()
    process = subprocess.Popen(
        [binary, "server", "--workdir", workdir, "--port", str(PORT), "--shard-aware-port", "0",
         "--smp", str(smp), "--memory", memory, "--developer-mode"],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    sock = connect(began + 20)
    sock.sendall(frame(5))
    assert receive(sock)[0] == 6, "SUPPORTED"
    supported = time.perf_counter() - began
    sock.sendall(frame(1, startup_body()))
    assert receive(sock)[0] == 2, "READY"
    sock.sendall(frame(7, query_body("SELECT * FROM system.local")))
    opcode, body = receive(sock)
    assert opcode == 8, f"RESULT, not {opcode}: {body!r}"
    rows = time.perf_counter() - began
    for line in process.stdout:
        if line.startswith("ceto ready"):
            break
    ready = time.perf_counter() - began
    return process, sock, ready, supported, rows


def stop(process, sock):
    sock.close()
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 0, "a clean stop exits with 0"


def processor_seconds(pid):
    with open(f"/proc/{pid}/stat") as stat:
        fields = stat.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--ceto", default=os.path.join(ROOT, "target/release/ceto"))
    options.add_argument("--starts", type=int, default=10)
    options.add_argument("--idle-seconds", type=float, default=5)
    options.add_argument("--smp", type=int, default=1)
    options.add_argument("--memory", default="64M")
    options = options.parse_args()
    for kind in ("empty", "again"):
        figures = []
        with tempfile.TemporaryDirectory() as kept:
            for _ in range(options.starts):
                with tempfile.TemporaryDirectory() as fresh:
                    workdir = kept if kind == "again" else fresh
                    process, sock, *times = start(options.ceto, workdir, options.smp, options.memory)
                    stop(process, sock)
                    figures.append([1000 * t for t in times])
        for name, column in zip(("ready line", "SUPPORTED", "first rows"), zip(*figures)):
            print(f"start ({kind} directory) to {name}: "
                  f"min {min(column):.1f} ms, median {statistics.median(column):.1f} ms, max {max(column):.1f} ms")
    with tempfile.TemporaryDirectory() as workdir:
        process, sock, *_ = start(options.ceto, workdir, options.smp, options.memory)
        before = processor_seconds(process.pid)
        time.sleep(options.idle_seconds)
        used = processor_seconds(process.pid) - before
        stop(process, sock)
        print(f"idle for {options.idle_seconds:.0f} s: {used * 1000:.0f} ms of processor time "
              f"({100 * used / options.idle_seconds:.2f} %)")


if __name__ == "__main__":
    main()
