"""Scenarios as files: what they are for, which servers, which steps; scaled and spread out over their matrix.

A number in braces is scaled: {rows:1000000} times SCALE, at least ROWS_MIN; {s:60} as a duration in seconds, at least
SECONDS_MIN; {ops:5000} (a rate) is not scaled, as the machine stays the same. {name} is a value of the matrix, {nodes} the
number of nodes, {scenarios} the folder of the scenarios, where the profiles of `ceto stress user` are.
"""
import glob
import itertools
import os
import re
import tomllib
from dataclasses import dataclass, field

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
ROWS_MIN = 200
SECONDS_MIN = 1
KINDS = ("stress", "load", "idle", "first-answer", "quiet", "schema", "ddl", "kill")
CLUSTER_KINDS = KINDS[3:]
FIELDS = {"name", "about", "kind", "args", "matrix", "measure", "during", "cold", "only", "settle_s", "compare_to",
          "clock", "nodes", "kill_after_s",
          "short"}


@dataclass
class Step:
    """One thing that is done to a server."""
    name: str
    kind: str                       # stress: ceto stress; load: ceto perf load; the others: probes.py
    args: str
    measure: bool = True            # no: it prepares what follows
    during: str = ""                # compact: a major compaction runs meanwhile
    cold: bool = False              # the server is started again first, and the page cache has nothing of its files
    only: list = field(default_factory=list)
    short: list = field(default_factory=list)  # servers that have this step in the short form; none named: all
    settle_s: float = 0             # most seconds to wait for background work to end before
    nodes: int = 0                  # only with so many nodes; 0: with any number
    kill_after_s: float = 0         # of kind kill: seconds of the load before a node is killed
    clock: bool = False             # beside it a process that only reads the clock, on a core of its own where there is one
    compare_to: str = ""            # a step whose latency this one's is a multiple of, in the report


@dataclass
class Scenario:
    name: str
    title: str
    about: str
    servers: list
    shards: list                    # of each node
    nodes: list
    alone: list                     # where `nodes` has 1 beside others: the servers that are measured as one node, too
    memory: str
    io_properties: str
    steps: list


class Mistake(Exception):
    """A scenario that cannot be followed."""


def load_all():
    found = [load(path) for path in sorted(glob.glob(os.path.join(HERE, "scenarios", "*.toml")))]
    return {one.name: one for one in found}


def load(path):
    with open(path, "rb") as file:
        raw = tomllib.load(file)
    name = os.path.splitext(os.path.basename(path))[0]
    steps = []
    for step in raw["step"]:
        unknown = set(step) - FIELDS
        if unknown:
            raise Mistake(f"{path}: no such field of a step: {', '.join(sorted(unknown))}")
        if step.get("kind", "stress") not in KINDS:
            raise Mistake(f"{path}: {step['name']}: no such kind: {step['kind']}")
        if step.get("kind") in CLUSTER_KINDS and step.get("nodes", 0) < 2:
            raise Mistake(f"{path}: {step['name']}: {step['kind']} is of clusters: give `nodes`")
        if step.get("kind") == "kill" and not ("kill_after_s" in step and re.search(r"duration=\d+s", step["args"])):
            raise Mistake(f"{path}: {step['name']}: give `kill_after_s`, and duration=Ns in `args`")
        matrix = step.get("matrix", {})
        for values in itertools.product(*matrix.values()):
            given = dict(zip(matrix, values))
            suffix = "".join(f" {key}={value}" for key, value in given.items())
            steps.append(Step(
                name=step["name"] + suffix, kind=step.get("kind", "stress"), args=fill(step.get("args", ""), given),
                measure=step.get("measure", True), during=step.get("during", ""), cold=step.get("cold", False),
                only=step.get("only", []), settle_s=step.get("settle_s", 0),
                compare_to=step.get("compare_to", ""), clock=step.get("clock", False),
                nodes=step.get("nodes", 0), kill_after_s=step.get("kill_after_s", 0),
                short=step.get("short", [])))
    return Scenario(
        name=name, title=raw["title"], about=raw.get("about", ""), servers=raw.get("servers", ["ceto", "cassandra"]),
        shards=several(raw.get("shards", 1)), nodes=several(raw.get("nodes", 1)),
        alone=raw.get("alone", []), memory=raw.get("memory", "1G"),
        io_properties=raw.get("io_properties", ""), steps=steps)


def several(value):
    return value if isinstance(value, list) else [value]


def fill(text, given):
    """Values of the matrix; numbers stay in their braces until the scale is known, {nodes} and {scenarios} until the turn is."""
    return re.sub(r"\{(\w+)\}", lambda found: found[0] if found[1] in ("nodes", "scenarios") else str(given[found[1]]), text)


def scaled(text, scale, nodes):
    """The text with its numbers for this scale and this many nodes."""
    text = text.replace("{nodes}", str(nodes)).replace("{scenarios}", os.path.join(HERE, "scenarios"))

    def number(found):
        kind, value = found[1], float(found[2])
        match kind:
            case "rows":
                return str(max(ROWS_MIN, round(value * scale)))
            case "s":
                return str(max(SECONDS_MIN, round(value * scale)))
            case "ops":
                return str(round(value))
        raise Mistake(f"no such kind of number: {found[0]}")
    # The second pass is for ranges that are made of a number: {half:...} would be the field's dist mean.
    text = re.sub(r"\{(rows|s|ops):([\d.]+)\}", number, text)
    if "{" in text:
        raise Mistake(f"braces that mean nothing: {text}")
    return text
