"""What a PromQL expression names: metrics, labels in matchers, and labels that it groups or matches by.

A tokenizer and as much grammar as that takes. What Grafana puts in the place of its variables is put there first.
Source: prometheus.io/docs/prometheus/latest/querying/basics, and Grafana's global variables.
"""

import re
from collections import namedtuple

#: A selector: the metric's name, and the labels of its matchers.
Selector = namedtuple("Selector", "metric labels")
#: Labels in `by`, `without`, `on`, `ignoring` or a `group_`, and the selectors that have to have each of them.
Grouping = namedtuple("Grouping", "word labels selectors")
Token = namedtuple("Token", "kind text at")

TOKENS = (
    ("space", r"\s+|#[^\n]*"),
    ("string", r'"(?:\\.|[^"\\\n])*"' + r"|'(?:\\.|[^'\\\n])*'|`[^`]*`"),
    ("duration", r"(?:\d+(?:ms|[smhdwy]))+(?![\w.])"),
    ("number", r"0[xX][0-9a-fA-F]+|(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?(?![\w.])|(?:[iI][nN][fF]|[nN][aA][nN])(?![\w:])"),
    # No name of ours begins with a colon, which stands between two durations.
    ("name", r"[a-zA-Z_][\w:]*"),
    ("mark", r"=~|!~|!=|==|>=|<=|[=<>+\-*/%^(){}\[\],:@]"),
)
TOKEN = re.compile("|".join(f"(?P<{kind}>{pattern})" for kind, pattern in TOKENS))
AGGREGATIONS = {"sum", "min", "max", "avg", "group", "stddev", "stdvar", "count", "count_values", "bottomk", "topk", "quantile"}
GROUPINGS = {"by", "without", "on", "ignoring", "group_left", "group_right"}
WORDS = {"and", "or", "unless", "atan2", "offset", "bool"} | GROUPINGS
CLOSES = {"(": ")", "{": "}", "[": "]"}

#: What Grafana knows by itself.
GLOBALS = {"__rate_interval": "1m", "__interval": "15s", "__range": "1h"}


class Mistake(Exception):
    """The expression is not PromQL, or is more than this understands."""


def without_variables(text, variables=()):
    """The text with a value in the place of each of Grafana's variables; one that is not known is a mistake."""
    known = {**GLOBALS, **dict(variables)}

    def value(found):
        name = found.group(1) or found.group(2)
        if name not in known:
            raise Mistake(f"no variable {name} in: {text}")
        return known[name]

    return re.sub(r"\$(?:(\w+)|\{(\w+)(?::\w+)?\})", value, text)


def tokens(text):
    """Tokens without spaces and comments."""
    at, found = 0, []
    while at < len(text):
        match = TOKEN.match(text, at)
        if not match:
            raise Mistake(f"no token at {at}: {text}")
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup, match.group(), at))
        at = match.end()
    return found


def ends(stream):
    """The place of the end of each bracket, by the place of its beginning."""
    pairs, opened = {}, []
    for at, token in enumerate(stream):
        if token.kind != "mark":
            continue
        if token.text in CLOSES:
            opened.append(at)
        elif token.text in CLOSES.values():
            if not opened or CLOSES[stream[opened[-1]].text] != token.text:
                raise Mistake(f"unbalanced {token.text}")
            pairs[opened.pop()] = at
    if opened:
        raise Mistake(f"no end of {stream[opened[-1]].text}")
    return pairs


def unquoted(string):
    return string[1:-1] if string[0] == "`" else re.sub(r"\\(.)", r"\1", string[1:-1])


def matchers(stream):
    """Labels of matchers between braces, and the name that a matcher of `__name__` asks for."""
    labels, metric, rest = [], None, list(stream)
    while rest:
        if len(rest) < 3 or rest[0].kind != "name" or rest[1].text not in ("=", "!=", "=~", "!~") or rest[2].kind != "string":
            raise Mistake(f"no matcher: {' '.join(token.text for token in rest)}")
        if rest[0].text != "__name__":
            labels.append(rest[0].text)
        elif rest[1].text == "=":
            metric = unquoted(rest[2].text)
        else:
            raise Mistake("a metric has to be named")
        if len(rest) > 3 and rest[3].text != ",":
            raise Mistake(f"no comma after the matcher of {rest[0].text}")
        rest = rest[4:]
    return labels, metric


def parse(text):
    """Selectors and groupings of an expression."""
    stream = tokens(text)
    if not stream:
        raise Mistake("nothing there")
    end_of = ends(stream)
    selectors, groupings, at = [], [], 0

    def is_mark(place, mark):
        return place < len(stream) and stream[place].kind == "mark" and stream[place].text == mark

    while at < len(stream):
        token = stream[at]
        if token.kind == "name" and token.text in GROUPINGS and is_mark(at + 1, "("):
            inside = stream[at + 2:end_of[at + 1]]
            labels = [part.text for part in inside[::2]]
            if any(part.kind != "name" for part in inside[::2]) or any(part.text != "," for part in inside[1::2]):
                raise Mistake(f"no list of labels after {token.text}")
            groupings.append((at, token.text, labels))
            at = end_of[at + 1] + 1
        elif token.kind == "name" and token.text not in WORDS and not is_mark(at + 1, "(") and not is_grouped(stream, at):
            labels, end = [], at + 1
            if is_mark(at + 1, "{"):
                end = end_of[at + 1] + 1
                labels, other = matchers(stream[at + 2:end - 1])
                if other:
                    raise Mistake(f"two names: {token.text} and {other}")
            selectors.append((at, Selector(token.text, labels)))
            at = end
        elif is_mark(at, "{"):
            labels, metric = matchers(stream[at + 1:end_of[at]])
            if not metric:
                raise Mistake("a selector without a metric's name")
            selectors.append((at, Selector(metric, labels)))
            at = end_of[at] + 1
        elif is_mark(at, "["):
            inside = [part for part in stream[at + 1:end_of[at]] if part.text != ":"]
            if not inside or any(part.kind != "duration" for part in inside):
                raise Mistake("no duration between brackets")
            at = end_of[at] + 1
        else:
            at += 1
    within = lambda first, last: [found for place, found in selectors if first < place < last]
    named = [Grouping(word, labels, within(*argument(stream, end_of, place, word))) for place, word, labels in groupings]
    return [found for _, found in selectors], named


def is_grouped(stream, at):
    """Whether the name is an aggregation whose labels stand before its argument."""
    return stream[at].text in AGGREGATIONS and at + 1 < len(stream) and stream[at + 1].text in ("by", "without")


def argument(stream, end_of, place, word):
    """Where the selectors stand that a grouping at this place is about: the argument of its aggregation, or all of them."""
    if word not in ("by", "without"):
        return -1, len(stream)
    after = end_of[place + 1] + 1
    if is_grouped(stream, place - 1):
        if after not in end_of:
            raise Mistake(f"nothing after {word}")
        return after, end_of[after]
    begins = [first for first, last in end_of.items() if last == place - 1]
    if not begins or stream[begins[0] - 1].text not in AGGREGATIONS:
        raise Mistake(f"no aggregation before {word}")
    return begins[0], place - 1
