"""The table of what a cluster is measured by: each figure, beside the peers' and the aim.

Figures are medians of the rounds. Steps are found by the names that scenarios/three.toml gives them; a figure whose step was not
measured is left out.
"""
import statistics

CLUSTER, ALONE = "three", "one"


class Figures:
    """The runs of one scenario that succeeded, by server, number of nodes and step."""

    def __init__(self, steps):
        self.runs = {}
        for step in steps:
            if "failure" not in step and "skipped" not in step:
                key = step["server"], ALONE if step["nodes"] == 1 else CLUSTER, step["step"]
                self.runs.setdefault(key, []).append(step)

    def median(self, server, nodes, step, value):
        """The median of what `value` takes from each run; nothing where no run has it."""
        found = [value(run) for run in self.runs.get((server, nodes, step), [])]
        found = [one for one in found if one is not None]
        return statistics.median(found) if found else None

    def of(self, step, value):
        """The figure of a cluster, as a function of the server."""
        return lambda server: self.median(server, CLUSTER, step, value)

    def quorum_over_one(self, step):
        """Microseconds that the median of a single request takes longer at QUORUM than at ONE."""
        def difference(server):
            quorum, one = (self.median(server, CLUSTER, f"{step} alone cl={level}", median_ms) for level in ("QUORUM", "ONE"))
            return None if quorum is None or one is None else 1000 * (quorum - one)
        return difference

    def to_one_node(self, step):
        """Rate per busy core of three nodes, by that of one node."""
        def ratio(server):
            three, one = (self.median(server, nodes, f"{step} cl=QUORUM", field("per_core")) for nodes in (CLUSTER, ALONE))
            return three / one if three and one else None
        return ratio


def field(name):
    return lambda run: run.get(name)


def median_ms(run):
    return run["percentiles_ms"][0] if run.get("percentiles_ms") else None


def busiest(run):
    return 100 * max(run["quiet_busy"])


def errors_after(run):
    """Errors that the load counted, without those before the kill."""
    return run["errors_counted"] - run["errors_before"]


def table(steps, servers):
    """Rows: what, the figure of each server, ceto's by the first peer's, the aim."""
    figures = Figures(steps)
    lines = [
        ("start to the first answer at QUORUM, s", figures.of("start", field("first_answer_s")), "{:.2f}", "1"),
        ("idle, the busiest node, % of a core", figures.of("idle", busiest), "{:.2f}", "0.5"),
        ("CREATE TABLE, p50 ms", figures.of("new tables", field("table_p50_ms")), "{:.2f}", "5"),
        ("100 CREATE TABLE, s", figures.of("new tables", field("tables_s")), "{:.2f}", "1"),
        ("the same, until all nodes agree, s", figures.of("new tables", field("tables_agreed_s")), "{:.2f}", ""),
        ("kill -9: last error after it, s", figures.of("a node is killed", field("last_error_s")), "{:.2f}", "2"),
        ("kill -9: errors after it", figures.of("a node is killed", errors_after), "{:.0f}", ""),
        ("kill -9: p99.9 of seconds 2 to 10 after it, ms", figures.of("a node is killed", field("p999_after_ms")), "{:.1f}", "50"),
        ("writes, QUORUM over ONE, p50 µs", figures.quorum_over_one("write"), "{:.0f}", "150"),
        ("reads, QUORUM over ONE, p50 µs", figures.quorum_over_one("read"), "{:.0f}", "150"),
    ]
    for step in ("write", "read"):
        for level in ("QUORUM", "ONE"):
            lines.append((f"{step}s at {level} per busy core, 1/s", figures.of(f"{step} cl={level}", field("per_core")), "{:,.0f}",
                          "10 times the peer's"))
    lines.append(("writes per busy core, by those of one node", figures.to_one_node("write"), "{:.2f}", "at least 0.25"))
    lines.append(("reads per busy core, by those of one node", figures.to_one_node("read"), "{:.2f}", "at least 0.4"))
    for what, value, form, aim in lines:
        found = {server: value(server) for server in servers}
        if all(one is None for one in found.values()):
            continue
        shown = ["" if found[server] is None else form.format(found[server]) for server in servers]
        ours = found.get("ceto")
        peers = [found[server] for server in servers if server != "ceto"]
        ratio = f"{ours / peers[0]:.3g}" if ours is not None and peers and peers[0] else ""
        yield [what, *shown, ratio, aim]
