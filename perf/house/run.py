"""Carries scenarios out: rounds, servers in turn, steps; collects what each came to."""
import datetime
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from . import clusters, hdr, probes, scenario, servers
from .clock import Clock

WINDOW_S = 30
PERCENTILES = (50, 95, 99, 99.9, 99.99, 100)
STEP_SECONDS_MAX = 4 * 3600
HEAP = "1G"


class House:
    """One run of the bench house."""

    def __init__(self, options):
        self.options = options
        self.binary = os.path.abspath(options.ceto or os.path.join(servers.ROOT, "target", "release", "ceto"))
        if not os.access(self.binary, os.X_OK):
            raise SystemExit(f"perf/bench: no program at {self.binary}: build it with cargo build --release")
        self.allowed = sorted(os.sched_getaffinity(0))
        self.steps = []
        self.process = None

    def cpus(self, shards):
        """Cores of the servers and of the client; the same ones only where there are too few."""
        if self.options.server_cpus and self.options.client_cpus:
            return self.options.server_cpus, self.options.client_cpus, False
        server = self.allowed[:shards]
        client = self.allowed[shards:] or self.allowed
        return join(server), join(client), not self.allowed[shards:]

    def run(self, scenarios):
        began = machine()
        for one in scenarios:
            self.run_scenario(one)
        ended = {"load_after": machine()["load"]}
        return {
            "date": datetime.datetime.now(datetime.timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
            "scale": self.options.scale, "rounds": self.options.rounds, "machine": began | ended,
            "scenarios": {one.name: {"title": one.title, "about": one.about} for one in scenarios},
            "steps": self.steps,
        }

    def run_scenario(self, one):
        wanted = self.options.servers.split(",") if self.options.servers else one.servers
        names = [name for name in one.servers if name in wanted]
        for shards in one.shards:
            # Nodes of a cluster share what cores there are; shards of a node have one each.
            if shards > len(self.allowed):
                print(f"{one.name}: {shards} shards are more than there are cores, left out", file=sys.stderr)
                continue
            for turn in range(self.options.rounds):
                for nodes in one.nodes:
                    is_extra = nodes == 1 and len(one.nodes) > 1
                    for name in [name for name in names if not is_extra or name in one.alone]:
                        self.run_turn(one, name, nodes, shards, turn)

    def server(self, one, name, nodes, shards, work, cpus):
        profile = "latest" if name.endswith("latest") else "stock"
        match name == "ceto", nodes > 1:
            case True, False:
                return servers.Ceto(self.binary, work, cpus, shards, one.memory, one.io_properties)
            case True, True:
                return clusters.Ceto(self.binary, work, cpus, nodes, shards, one.memory)
            case False, False:
                return servers.Cassandra(profile, work, cpus, HEAP)
        return clusters.Cassandra(profile, work, cpus, nodes, HEAP)

    def run_turn(self, one, name, nodes, shards, turn):
        steps = [step for step in one.steps if step.nodes in (0, nodes) and (not step.only or name in step.only)
                 and not (self.options.short and step.short and name not in step.short)]
        if not steps:
            return
        print(f"{one.name}: {name}, {f'{nodes} nodes of ' if nodes > 1 else ''}{shards} core(s), "
              f"round {turn + 1} of {self.options.rounds}", file=sys.stderr)
        work = tempfile.mkdtemp(prefix="ceto-bench-", dir=self.options.work)
        server_cpus, client_cpus, shared = self.cpus(nodes * shards)
        server = self.server(one, name, nodes, shards, work, server_cpus)
        at = {"scenario": one.name, "server": name, "nodes": nodes, "shards": shards, "round": turn,
              "shared_cores": shared}
        try:
            server.start()
            at["version"] = server.version()
            for step in steps:
                result = at | {"step": step.name, "measure": step.measure, "compare_to": step.compare_to}
                began = time.monotonic()
                try:
                    result |= self.run_step(step, server, nodes, client_cpus, shared, work)
                except servers.Lacking as lack:
                    result["skipped"] = str(lack)
                except (servers.Failed, OSError, subprocess.SubprocessError, ValueError) as error:
                    result["failure"] = str(error)
                result["step_seconds"] = time.monotonic() - began
                if step.measure or "failure" in result:
                    self.steps.append(result)
                if "failure" in result and not step.measure:
                    break  # what follows would measure something else
        except (servers.Failed, OSError, subprocess.SubprocessError, ValueError) as error:
            self.steps.append(at | {"step": "start", "measure": True, "failure": str(error)})
        finally:
            server.stop()
            shutil.rmtree(work, ignore_errors=True)

    def run_step(self, step, server, nodes, client_cpus, shared, work):
        scale = self.options.scale
        if step.cold:
            server.stop()
            servers.forget_pages(work)
            server.start()
        if step.settle_s:
            probes.settle(server, max(1, step.settle_s * min(1, scale)))
        args = scenario.scaled(step.args, scale, nodes)
        match step.kind:
            case "first-answer":
                return {"first_answer_s": server.first_answer_s}
            case "quiet":
                return probes.quiet(args, server)
            case "schema":
                command, _ = self.stress_command(args, [server.host], server.port, client_cpus, work)
                return probes.schema(command, server)
            case "ddl":
                return probes.ddl(args, server)
            case "kill":
                return self.kill(args, step.kill_after_s, server, client_cpus, work)
        stalls_before, pids = server.stalls(), server.pids()
        before, disk_before, began = servers.used(pids), servers.disk(pids), time.monotonic()
        meanwhile = Meanwhile(server) if step.during == "compact" else None
        clock, client_cpus = Clock.beside(client_cpus) if step.clock and not shared else (None, client_cpus)
        try:
            if step.kind == "stress":
                result = self.stress(args, server, client_cpus, work)
            elif step.kind == "load":
                result = self.load(args, server, client_cpus)
            else:
                result = probes.idle(args, server)
            if meanwhile:
                result["compaction"] = meanwhile.end()
        finally:
            held = clock.end() if clock else None
        if held:
            result["clock"] = held
        elapsed = time.monotonic() - began
        after, disk_after = servers.used(pids), servers.disk(pids)
        result["stalls"] = {kind: count - stalls_before.get(kind, 0) for kind, count in server.stalls().items()}
        result["server_busy"] = (after[0] - before[0]) / elapsed
        if result.get("operations") and after[0] > before[0]:
            result["per_core"] = result["operations"] / (after[0] - before[0])
        result["server_bytes"] = after[1]
        if disk_before and disk_after:
            result["disk_read_bytes"] = disk_after[0] - disk_before[0]
        result["command"] = f"{step.kind} {args}"
        return result

    def client(self, client_cpus, words):
        command = [self.binary, *words]
        if client_cpus:
            command = ["taskset", "-c", client_cpus, *command]
        return command

    def stress(self, args, server, client_cpus, work):
        command, log = self.stress_command(args, [server.host], server.port, client_cpus, work)
        result = stress_report(client_output(command))
        window = max(1, WINDOW_S * min(1, self.options.scale))
        windows, whole = [], {}
        if os.path.exists(log):
            for start, counts in hdr.windows(log, window):
                values = [value / 1e6 for value in hdr.percentiles(counts, PERCENTILES)]
                windows.append([start, sum(counts.values()) / window, *values])
                hdr.merge(whole, counts.items())
        if whole:
            result["percentiles_ms"] = [value / 1e6 for value in hdr.percentiles(whole, PERCENTILES)]
            result["windows"] = windows
            result["operations"] = sum(whole.values())
        return result

    def stress_command(self, args, node_words, port, client_cpus, work):
        log = os.path.join(work, "latencies.hdr")
        if os.path.exists(log):
            os.remove(log)
        words = ["stress", *split(args), "-node", *node_words, "-port", f"native={port}", "-log", f"hdrfile={log}"]
        return self.client(client_cpus, words), log

    def kill(self, args, after_s, cluster, client_cpus, work):
        """A load of the nodes that stay while the last one is killed."""
        stay = ["whitelist", ",".join(cluster.hosts[:-1])]
        command, log = self.stress_command(args, stay, cluster.port, client_cpus, work)
        seconds = int(re.search(r"duration=(\d+)s", args)[1])
        result, output = probes.kill(command, log, cluster, after_s, seconds)
        return result | {"errors_counted": stress_report(output)["errors"], "command": f"kill {args}"}

    def load(self, args, server, client_cpus):
        words = ["perf", "load", "--host", server.host, "--port", str(server.port), "--json", *split(args)]
        output = client_output(self.client(client_cpus, words))
        found = json.loads(output.strip().splitlines()[-1])
        return {
            "rate": found["requests_per_second"], "errors": found["errors"], "client_busy": found["client_busy"],
            "percentiles_ms": [found["p50_us"] / 1e3, None, found["p99_us"] / 1e3, found["p999_us"] / 1e3, None,
                               found["max_us"] / 1e3],
        }


def client_output(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          timeout=STEP_SECONDS_MAX)
    if done.returncode != 0:
        raise servers.Failed(f"exit {done.returncode}: {(done.stderr or done.stdout).strip()[-500:]}")
    return done.stdout


def stress_report(output):
    """What the summary of a stress run says."""
    _, _, summary = output.rpartition("Results:")

    def number(name):
        found = re.search(rf"^{re.escape(name)}\s*:\s*([\d,.]+|NaN)", summary, re.M)
        if not found:
            raise ValueError(f"no line '{name}' in the summary: {output[-300:]}")
        return float(found[1].replace(",", ""))
    return {"rate": number("Op rate"), "errors": number("Total errors")}


class Meanwhile:
    """A major compaction beside a load."""

    def __init__(self, server):
        self.outcome = {}
        self.thread = threading.Thread(target=self.work, args=(server,), daemon=True)
        self.began = time.monotonic()
        self.thread.start()

    def work(self, server):
        try:
            server.compact()
            self.outcome["seconds"] = time.monotonic() - self.began
        except (servers.Failed, OSError) as error:
            self.outcome["failure"] = str(error)
        except servers.Lacking as lack:
            self.outcome["lack"] = str(lack)

    def end(self):
        """How long it took, or that the load was over first."""
        if self.thread.is_alive():
            self.thread.join(600)
            return {"outlasted the load": True} | self.outcome
        if "lack" in self.outcome:
            raise servers.Lacking(self.outcome["lack"])
        if "failure" in self.outcome:
            raise servers.Failed(f"no compaction: {self.outcome['failure']}")
        return self.outcome


def split(args):
    """Words as a shell would: with quotes, without anything else."""
    import shlex
    return shlex.split(args)


def join(cpus):
    return ",".join(str(cpu) for cpu in cpus)


def machine():
    """What was measured on."""
    def first(path, pattern):
        try:
            with open(path) as file:
                found = re.search(pattern, file.read(), re.M)
        except OSError:
            return None
        return found[1].strip() if found else None
    return {
        "processor": first("/proc/cpuinfo", r"^model name\s*:\s*(.*)$") or platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory": first("/proc/meminfo", r"^MemTotal:\s*(.*)$"),
        "kernel": f"{platform.system()} {platform.release()}",
        "virtual": first("/proc/cpuinfo", r"^flags.*\b(hypervisor)\b") is not None,
        "load": os.getloadavg(),
    }


signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
