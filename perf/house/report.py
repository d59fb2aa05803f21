"""The report of a run: Markdown for reading in a terminal, one HTML page with plots, and all numbers as JSON."""
import html
import json
import os
import statistics

from . import aims

NAMES = ["p50", "p95", "p99", "p99.9", "p99.99", "max"]
COLOURS = {"ceto": "#2458a6", "cassandra": "#c05020", "cassandra-latest": "#8a6d00"}


def write(out, results):
    os.makedirs(out, exist_ok=True)
    with open(os.path.join(out, "results.json"), "w") as file:
        json.dump(results, file, indent=1)
    blocks = list(body(results))
    with open(os.path.join(out, "report.md"), "w") as file:
        file.write("\n".join(markdown(blocks)) + "\n")
    with open(os.path.join(out, "report.html"), "w") as file:
        file.write(page(blocks))


def median(runs, name):
    values = [run[name] for run in runs if run.get(name) is not None]
    return statistics.median(values) if values else None


def percentile(runs, at):
    values = [run["percentiles_ms"][at] for run in runs if run.get("percentiles_ms")]
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def ms(value):
    return "" if value is None else f"{value:.3f}" if value < 10 else f"{value:.1f}"


def stalled(runs):
    """Stalls of all rounds, by who held the core; nothing where the server does not tell."""
    counts = {}
    for run in runs:
        for kind, count in run.get("stalls", {}).items():
            counts[kind] = counts.get(kind, 0) + count
    return ", ".join(f"{kind} {count}" for kind, count in counts.items())


def times(of, to):
    return f"{of / to:.2f}" if of and to else ""


def body(results):
    """The report as blocks: ("h1" | "h2" | "p", text), ("table", head, rows), ("plot", title, unit, lines)."""
    at = results["machine"]
    yield "h1", "Bench house"
    yield "p", (f"{results['date']}, scale {results['scale']:g}, {results['rounds']} round(s), servers in turn. "
                f"{at['processor']}, {at['cores']} cores, {at['memory']}, {at['kernel']}"
                f"{', in a virtual machine' if at['virtual'] else ''}; load average "
                f"{' '.join(f'{load:.1f}' for load in at['load'])} before, "
                f"{' '.join(f'{load:.1f}' for load in at['load_after'])} after.")
    yield "p", ("Figures are medians of the rounds; rates have least and greatest behind them. Latency is from when a "
                "request was due to its answer. Take the ratios: rates belong to this machine and this hour.")
    for name, about in results["scenarios"].items():
        steps = [step for step in results["steps"] if step["scenario"] == name]
        if not steps:
            continue
        yield "h2", f"{name}: {about['title']}"
        if about["about"]:
            yield "p", about["about"]
        yield from scenario(steps)
    order = list(worst_first(results))
    if order:
        yield "h2", "Beside the peers, the worst first"
        yield "p", "Rates by the peer's, in this run; where both keep a rate that the step gives, the tail alone says something."
        yield "table", ["rate", "per busy core", "p99.9", "scenario", "step", "cores", "of"], [
            [f"{ratio:.2f}x", *more, name, step, cores, peer] for ratio, more, name, step, cores, peer in order]


def worst_first(results):
    """Every step that ceto and a peer were measured in, by the ratio of their rates: (ratio, [per busy core, p99.9], ...)."""
    found = []
    for name in results["scenarios"]:
        for (step, shards), by_server in groups_of(step for step in results["steps"] if step["scenario"] == name).items():
            good = {server: [run for run in runs if "failure" not in run and "skipped" not in run]
                    for server, runs in by_server.items()}
            ours = good.pop("ceto", [])
            for peer, theirs in good.items():
                rate, peers = median(ours, "rate"), median(theirs, "rate")
                if rate and peers:
                    more = [times(median(ours, "per_core"), median(theirs, "per_core")),
                            times(percentile(ours, 3), percentile(theirs, 3))]
                    found.append((rate / peers, [f"{one}x" if one else "" for one in more], name, step, shards, peer))
    return sorted(found, key=lambda line: line[0])


def worst(results):
    """A line about the step that is worst beside a peer; nothing where none was measured."""
    for ratio, _, name, step, _, peer in worst_first(results)[:1]:
        return f"worst beside a peer: {name}, {step}: {ratio:.2f} times the rate of {peer}"
    return None


def groups_of(steps):
    """Runs by (step, cores), then by server."""
    groups = {}
    for step in steps:
        groups.setdefault((step["step"], cores(step)), {}).setdefault(step["server"], []).append(step)
    return groups


def scenario(steps):
    groups = groups_of(steps)
    rows, idle_rows = [], []
    for (name, shards), by_server in groups.items():
        peers = [server for server in by_server if server != "ceto"]
        for server, runs in by_server.items():
            good = [run for run in runs if "failure" not in run and "skipped" not in run]
            if not good:
                why = runs[0].get("skipped") or "failed: " + runs[0]["failure"][:120]
                rows.append([name, shards, server, why] + [""] * 11)
                continue
            if "connections" in good[0]:
                idle_rows.append([name, server, good[0]["connections"], f"{median(good, 'bytes_each'):.0f}",
                                  f"{100 * median(good, 'busy'):.2f} %"])
                continue
            if "rate" not in good[0]:
                continue  # a figure of the table of aims
            rate, rates = median(good, "rate"), [run["rate"] for run in good]
            per_core = median(good, "per_core")
            ratio = ""
            if server == "ceto" and peers:
                ratio = ", ".join(
                    f"{times(rate, median(by_server[peer], 'rate'))}x rate, "
                    f"{times(per_core, median(by_server[peer], 'per_core'))}x per busy core, "
                    f"{times(percentile(good, 3), percentile(by_server[peer], 3))}x p99.9 of {peer}"
                    for peer in peers)
            to = groups.get((good[0].get("compare_to"), shards), {}).get(server)
            if to:
                ratio += f"{'; ' if ratio else ''}p99 {times(percentile(good, 2), percentile(to, 2))}x that of {good[0]['compare_to']}"
            busy = f"{median(good, 'server_busy'):.2f}"
            shared = "*" if good[0]["shared_cores"] else ""
            spread = f" ({min(rates):,.0f}-{max(rates):,.0f})" if len(rates) > 1 else ""
            rows.append([name, f"{shards}{shared}", server, f"{rate:,.0f}{spread}",
                         *(ms(percentile(good, place)) for place in range(6)),
                         f"{median(good, 'errors'):.0f}", stalled(good), busy,
                         f"{per_core:,.0f}" if per_core else "", ratio])
    if rows:
        yield "table", ["step", "cores", "server", "op/s", *(f"{name} ms" for name in NAMES), "errors", "stalls",
                        "server busy", "op/s per busy core", "ceto is"], rows
    if any(step.get("nodes", 1) > 1 for step in steps):
        names = list(dict.fromkeys(step["server"] for step in steps))
        yield "table", ["of the cluster", *names, "ceto by the first peer", "aim"], list(aims.table(steps, names))
        yield "p", "Aims are most values where nothing else is said."
    if any(step.get("stalls") for step in steps):
        yield "p", ("Stalls: times that a shard held its core beyond 5 ms, by what held it, all rounds together; `preempted` is "
                    "another process on that core.")
    clocks = [step["clock"] for step in steps if "clock" in step]
    if clocks:
        yield "p", (f"Beside it a process that only read the clock was held beyond 5 ms {sum(clock['held'] for clock in clocks)} times, "
                    f"{max(clock['longest_ms'] for clock in clocks):.1f} ms at the longest: by the machine itself.")
    if any(step["shared_cores"] for step in steps):
        yield "p", "* The client had no core of its own."
    if idle_rows:
        yield "table", ["step", "server", "connections", "bytes each", "server busy"], idle_rows
    scaling = list(scaled(groups))
    if scaling:
        yield "table", ["step", "server", "cores", "rate to one core"], scaling
    for (name, shards), by_server in groups.items():
        for unit, place in (("op/s", 1), ("p99 ms", 4), ("p99.9 ms", 5)):
            lines = {}
            for server, runs in by_server.items():
                windows = runs[-1].get("windows") or []
                if len(windows) > 2:
                    lines[server] = [(window[0], window[place]) for window in windows]
            if lines:
                yield "plot", f"{name}, {shards} core(s), last round", unit, lines


def cores(step):
    """Shards of a node; of a cluster a text, with the number of nodes."""
    return step["shards"] if step.get("nodes", 1) == 1 else f"{step['nodes']} nodes of {step['shards']}"


def scaled(groups):
    """How the rate grows with the cores, where a step was measured with several numbers of them."""
    ones = {}
    for (name, shards), by_server in groups.items():
        for server, runs in by_server.items():
            rate = median(runs, "rate")
            if rate and isinstance(shards, int):
                ones.setdefault((name, server), {})[shards] = rate
    for (name, server), rates in ones.items():
        if len(rates) > 1 and 1 in rates:
            for shards, rate in sorted(rates.items()):
                yield [name, server, shards, f"{rate / rates[1]:.2f}"]


def markdown(blocks):
    for block in blocks:
        match block:
            case ("h1", text):
                yield f"# {text}\n"
            case ("h2", text):
                yield f"\n## {text}\n"
            case ("p", text):
                yield f"{text}\n"
            case ("table", head, rows):
                yield "| " + " | ".join(head) + " |"
                yield "|" + "---|" * len(head)
                for row in rows:
                    yield "| " + " | ".join(str(cell).replace("|", "/").replace("\n", " ") for cell in row) + " |"
                yield ""
            case ("plot", title, unit, lines):
                yield f"{title}, {unit} per window: " + "; ".join(
                    f"{server} " + " ".join(f"{value:.4g}" for _, value in points)
                    for server, points in lines.items()) + "\n"


def page(blocks):
    out = ["<!DOCTYPE html><html lang='en'><head><meta charset='utf-8'><title>Bench house</title><style>",
           "body{font:15px/1.45 system-ui,sans-serif;max-width:1100px;margin:2em auto;padding:0 1em;color:#222}",
           "table{border-collapse:collapse;margin:1em 0;font-size:13px}td,th{border:1px solid #ccc;padding:.25em .5em;",
           "text-align:right}td:nth-child(-n+3),th{text-align:left}svg{background:#fafafa;border:1px solid #ddd}",
           "figure{display:inline-block;margin:.5em 1em .5em 0}figcaption{font-size:13px}</style></head><body>"]
    for block in blocks:
        match block:
            case ("table", head, rows):
                cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
                out.append(f"<table><tr>{cells}</tr>")
                for row in rows:
                    out.append("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>")
                out.append("</table>")
            case ("plot", title, unit, lines):
                out.append(plot(title, unit, lines))
            case (tag, text):
                out.append(f"<{tag}>{html.escape(text)}</{tag}>")
    out.append("</body></html>")
    return "\n".join(out)


def plot(title, unit, lines, width=500, height=200, left=64, low=24):
    """Lines over time as SVG, from zero up."""
    top = max(value for points in lines.values() for _, value in points) or 1
    end = max(time for points in lines.values() for time, _ in points) or 1

    def place(time, value):
        return (left + (width - left - 10) * time / end, 10 + (height - low - 10) * (1 - value / top))
    parts = [f"<figure><figcaption>{html.escape(title)}: {unit}</figcaption>"
             f"<svg width='{width}' height='{height}' role='img'>"]
    for share in (0, 0.5, 1):
        _, y = place(0, top * share)
        parts.append(f"<line x1='{left}' x2='{width - 10}' y1='{y:.1f}' y2='{y:.1f}' stroke='#ddd'/>"
                     f"<text x='{left - 4}' y='{y + 4:.1f}' font-size='11' text-anchor='end'>{top * share:,.4g}</text>")
    parts.append(f"<text x='{width - 10}' y='{height - 6}' font-size='11' text-anchor='end'>{end:g} s</text>")
    for at, (server, points) in enumerate(lines.items()):
        colour = COLOURS.get(server, "#444")
        path = " ".join("{:.1f},{:.1f}".format(*place(time, value)) for time, value in points)
        parts.append(f"<polyline points='{path}' fill='none' stroke='{colour}' stroke-width='1.5'/>"
                     f"<text x='{left + 110 * at}' y='{height - 6}' font-size='11' fill='{colour}'>{server}</text>")
    return "".join(parts) + "</svg></figure>"
