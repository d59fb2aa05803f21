#!/usr/bin/env python3
"""make.py [--check]  Writes grafana/*.json, one dashboard for each file in panels/. With --check it writes nothing, and fails
if a file is not what it would write.

A file in panels/ has the dashboard's `uid`, `title`, `description` and `variables` (names of VARIABLES below), then its panels in
reading order:

    [[panel]]
    row = "Requests"                the panel begins a row with this title
    title = "Errors"
    kind = "timeseries"             or "stat", "heatmap", "table"; timeseries if left out
    unit = "reqps"                  one of Grafana's units
    description = '''...'''         what is shown, what a bad value looks like, what to do then
    queries = [['sum by ($by) (rate(scylla_x{@shard}[$__rate_interval]))', 'legend']]
    percentiles = "scylla_y"        instead of queries: four percentiles of a histogram
    histogram = "scylla_y"          instead of queries: the buckets of a histogram, for a heat map
    steps = [[1, "red"]]            values from which on a colour holds; below the first one it is green
    width, height, min, max, stack, decimals

The words of MATCHERS stand for label matchers. The legend may be left out where a query sums `by ($by)`.
"""

import json
import re
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).resolve().parent
#: Grafana 11; later versions convert it when they load it.
SCHEMA_VERSION = 39
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}
COLUMNS = 24
#: Width and height of a panel that names none.
SIZES = {"stat": (4, 4), "timeseries": (8, 8), "heatmap": (12, 9), "table": (24, 10)}
KEYS = {"row", "title", "kind", "unit", "description", "queries", "percentiles", "histogram", "steps", "width", "height",
        "min", "max", "stack", "decimals"}

NODE = 'cluster=~"$cluster",job=~"$job",instance=~"$instance"'
SHARD = NODE + ',shard=~"$shard"'
MATCHERS = {"@node": NODE, "@shard": SHARD, "@table": SHARD + ',ks=~"$keyspace",cf=~"$table"'}
PERCENTILES = (("0.5", "p50"), ("0.95", "p95"), ("0.99", "p99"), ("0.999", "p99.9"))
BY_LEGEND = "{{cluster}} {{instance}} {{shard}}"

#: Variables that are lists of a label's values: the label, a metric that has it, the matchers before it, and the text for
#: "all". A Prometheus that sets no label `cluster` has all its nodes in "all" of that; jobs are never all jobs of Prometheus.
PRESENT = "scylla_scylladb_current_version"
VARIABLES = {
    "cluster": ("cluster", PRESENT, "", ".*"),
    "job": ("job", PRESENT, 'cluster=~"$cluster"', None),
    "instance": ("instance", PRESENT, 'cluster=~"$cluster",job=~"$job"', ".*"),
    "shard": ("shard", "scylla_reactor_cpu_busy_ms", "@node", ".*"),
    "keyspace": ("ks", "scylla_column_family_tablet_count", "@node", ".*"),
    "table": ("cf", "scylla_column_family_tablet_count", '@node,ks=~"$keyspace"', ".*"),
}
#: What sums are by: text and labels.
BY = (("node", "instance"), ("shard", "instance, shard"), ("cluster", "cluster"))


def expanded(text):
    """The text with matchers in the place of their words."""
    return re.sub(r"@\w+", lambda word: MATCHERS[word.group()], text)


def variable(name):
    label, metric, matchers, text_of_all = VARIABLES[name]
    query = expanded(f"label_values({metric}{{{matchers}}}, {label})" if matchers else f"label_values({metric}, {label})")
    return {
        "name": name, "label": name.capitalize(), "type": "query", "datasource": DATASOURCE,
        "definition": query, "query": {"qryType": 1, "query": query, "refId": "PrometheusVariableQueryEditor-VariableQuery"},
        "refresh": 2, "regex": "", "sort": 3 if name == "shard" else 1, "hide": 0, "skipUrlSync": False, "options": [],
        "multi": True, "includeAll": True, "allValue": text_of_all,
        "current": {"selected": True, "text": ["All"], "value": ["$__all"]},
    }


def by_variable():
    options = [{"selected": at == 0, "text": text, "value": value} for at, (text, value) in enumerate(BY)]
    query = ",".join(f"{text} : {value.replace(',', chr(92) + ',')}" for text, value in BY)
    return {"name": "by", "label": "Sums by", "type": "custom", "query": query, "options": options, "current": options[0],
            "multi": False, "includeAll": False, "hide": 0, "skipUrlSync": False}


def datasource_variable():
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "regex": "", "refresh": 1,
            "multi": False, "includeAll": False, "hide": 0, "skipUrlSync": False, "options": [],
            "current": {"selected": True, "text": "default", "value": "default"}}


def queries(panel):
    """Pairs of an expression and a legend."""
    if "percentiles" in panel:
        bucket = f"sum by (le) (rate({panel['percentiles']}_bucket{{@shard}}[$__rate_interval]))"
        return [(f"histogram_quantile({share}, {bucket})", legend) for share, legend in PERCENTILES]
    if "histogram" in panel:
        return [(f"sum by (le) (increase({panel['histogram']}_bucket{{@shard}}[$__rate_interval]))", "{{le}}")]
    return [(query[0], query[1] if len(query) > 1 else BY_LEGEND) for query in panel["queries"]]


def target(ref, expression, legend, kind):
    made = {"refId": ref, "datasource": DATASOURCE, "editorMode": "code", "expr": expanded(expression), "legendFormat": legend,
            "range": kind in ("timeseries", "heatmap"), "instant": kind in ("stat", "table")}
    if kind in ("heatmap", "table"):
        made["format"] = kind
    return made


def defaults(panel, kind):
    steps = [{"color": "green", "value": None}] + [{"color": color, "value": value} for value, color in panel.get("steps", ())]
    made = {"unit": panel["unit"], "color": {"mode": "thresholds" if kind == "stat" else "palette-classic"},
            "mappings": [], "thresholds": {"mode": "absolute", "steps": steps}}
    made.update({key: panel[key] for key in ("min", "max", "decimals") if key in panel})
    if kind == "timeseries":
        stacked = panel.get("stack", False)
        made["custom"] = {
            "drawStyle": "line", "lineInterpolation": "linear", "lineWidth": 1, "fillOpacity": 30 if stacked else 8,
            "gradientMode": "none", "showPoints": "never", "spanNulls": False, "axisPlacement": "auto",
            "stacking": {"mode": "normal" if stacked else "none", "group": "A"},
            "thresholdsStyle": {"mode": "dashed" if panel.get("steps") else "off"},
        }
    return made


def options(panel, kind):
    if kind == "timeseries":
        return {"legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
                "tooltip": {"mode": "multi", "sort": "desc"}}
    if kind == "stat":
        return {"colorMode": "value", "graphMode": "none", "justifyMode": "auto", "orientation": "auto", "textMode": "auto",
                "wideLayout": True, "showPercentChange": False, "percentChangeColorMode": "standard",
                "reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}}
    if kind == "heatmap":
        return {
            "calculate": False, "cellGap": 1, "cellValues": {"unit": "short"}, "showValue": "never",
            "color": {"mode": "scheme", "scheme": "Oranges", "fill": "dark-orange", "exponent": 0.5, "steps": 64, "reverse": False},
            "exemplars": {"color": "rgba(255,0,255,0.7)"}, "filterValues": {"le": 1e-9}, "legend": {"show": True},
            "rowsFrame": {"layout": "auto"}, "tooltip": {"mode": "single", "yHistogram": True},
            "yAxis": {"axisPlacement": "left", "reverse": False, "unit": panel["unit"]},
        }
    return {"showHeader": True, "frameIndex": 0, "cellHeight": "sm", "footer": {"show": False, "reducer": ["sum"], "fields": ""}}


def panels(described):
    """Panels with their places: from left to right, and a row that begins closes the line before it."""
    made, x, y, tallest = [], 0, 0, 0
    for panel in described:
        if unknown := set(panel) - KEYS:
            raise SystemExit(f"panel {panel.get('title')}: no such key: {', '.join(sorted(unknown))}")
        kind = panel.get("kind", "heatmap" if "histogram" in panel else "timeseries")
        width, height = panel.get("width", SIZES[kind][0]), panel.get("height", SIZES[kind][1])
        if "row" in panel:
            x, y, tallest = 0, y + tallest, 0
            made.append({"id": len(made) + 1, "type": "row", "title": panel["row"], "collapsed": False, "panels": [],
                         "gridPos": {"h": 1, "w": COLUMNS, "x": 0, "y": y}})
            y += 1
        if x + width > COLUMNS:
            x, y, tallest = 0, y + tallest, 0
        targets = [target(chr(ord("A") + at), *query, kind) for at, query in enumerate(queries(panel))]
        made.append({
            "id": len(made) + 1, "type": kind, "title": panel["title"], "description": " ".join(panel["description"].split()),
            "datasource": DATASOURCE, "gridPos": {"h": height, "w": width, "x": x, "y": y}, "targets": targets,
            "fieldConfig": {"defaults": defaults(panel, kind), "overrides": []}, "options": options(panel, kind),
        })
        x, tallest = x + width, max(tallest, height)
    return made


def dashboard(described):
    variables = [datasource_variable(), *map(variable, described["variables"]), by_variable()]
    restarts = {"name": "Restarts", "enable": True, "hide": False, "iconColor": "purple", "datasource": DATASOURCE,
                "expr": expanded("changes(process_start_time_seconds{@node}[2m]) > 0"), "step": "1m",
                "titleFormat": "{{instance}} was started", "textFormat": "", "tagKeys": ""}
    return {
        "uid": described["uid"], "title": described["title"], "description": described["description"], "tags": ["ceto"],
        "schemaVersion": SCHEMA_VERSION, "version": 1, "id": None, "editable": True, "graphTooltip": 1, "fiscalYearStartMonth": 0,
        "time": {"from": "now-1h", "to": "now"}, "refresh": "30s", "timezone": "browser", "weekStart": "", "timepicker": {},
        "annotations": {"list": [restarts]}, "templating": {"list": variables}, "panels": panels(described["panel"]),
        "links": [{"title": "ceto", "type": "dashboards", "tags": ["ceto"], "asDropdown": True, "includeVars": True,
                   "keepTime": True, "targetBlank": False, "icon": "external link", "tooltip": "", "url": ""}],
    }


def made():
    """The text of each dashboard's file, by its path."""
    files = {}
    for path in sorted((HERE / "panels").glob("*.toml")):
        content = dashboard(tomllib.loads(path.read_text()))
        files[HERE / "grafana" / f"{path.stem}.json"] = json.dumps(content, indent=1, ensure_ascii=False) + "\n"
    return files


def stale():
    """Names of files that are not what the panels say, or that no panels are for."""
    wanted, there = made(), set((HERE / "grafana").glob("*.json"))
    differ = {path for path, text in wanted.items() if path not in there or path.read_text() != text}
    return sorted(path.name for path in differ | (there - set(wanted)))


if __name__ == "__main__":
    if sys.argv[1:] == ["--check"]:
        if names := stale():
            raise SystemExit(f"not as dashboards/make.py writes them: {', '.join(names)}")
    elif sys.argv[1:]:
        raise SystemExit(__doc__)
    else:
        for path in set((HERE / "grafana").glob("*.json")) - set(made()):
            path.unlink()
        for path, text in made().items():
            path.write_text(text)
