"""Mistakes in files: each is one sentence that names the file, the line and the remedy."""

import json
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dualplan as dp
from bank import average_cost
from dualplan.core.errors import within
from dualplan.models.load import require_stable
from dualplan.models.positions import lines_of
from dualplan.search import plans
from dualplan.search.plans import Plan, read_plan, run_plan, solve_by, table_of_keys

# -- lines: every key that tomllib sees has one, and it is the right one ---------------------------


def leaves(data, path=()):
    """The path of every value in parsed TOML."""
    items = (
        data.items()
        if isinstance(data, dict)
        else enumerate(data)
        if isinstance(data, list)
        else ()
    )
    for key, value in items:
        yield (*path, key), value
        yield from leaves(value, (*path, key))


AWKWARD = '''# = [not.a.table]
title = "a # b ] } = \\" c"   # comment with "quotes" and [brackets]
'quoted key' = 1
"esc\\u0041ped\\"" = 2
a.b . "c.d" = 3
lit = 'C:\\path\\'
many = """
[fake]
fake = 1 \\"""
still \\
inside"""""
raw = \'\'\'
x = 'y' ''
[also.fake]
\'\'\'
when = 1979-05-27 07:32:00 # a space in a value
deep = [ # opens
  1, # one
  [2,
   "]"], { k = "}", inner = { z = [7,
   8] } },
  # nothing here
  9,
]
empty = []
none = {}
-bare-key_9 = inf
3.14 = "two parts"
[servers]
  [servers."alpha.beta"]
  ip = "10.0.0.1"
[x.y.z]
w = true
[x]
v = false
[[class]]
name = "one"
[class.route]
two = 0.5
[[class.item]]
n = 1
[[class.item]]
n = 2
[[class]]
name = "two"
route.one = 0.25
route.two = 0.25
  [[class.item]]
  n = 3
[[ spaced . out ]]
k = 1
'''
LINES = {
    ("title",): 2,
    ("quoted key",): 3,
    ('escAped"',): 4,
    ("a",): 5,
    ("a", "b", "c.d"): 5,
    ("lit",): 6,
    ("many",): 7,
    ("raw",): 12,
    ("when",): 16,
    ("deep",): 17,
    ("deep", 0): 18,
    ("deep", 1): 19,
    ("deep", 1, 1): 20,
    ("deep", 2): 20,
    ("deep", 2, "k"): 20,
    ("deep", 2, "inner", "z", 0): 20,
    ("deep", 2, "inner", "z", 1): 21,
    ("deep", 3): 23,
    ("empty",): 25,
    ("none",): 26,
    ("-bare-key_9",): 27,
    ("3", "14"): 28,
    ("servers",): 29,
    ("servers", "alpha.beta"): 30,
    ("servers", "alpha.beta", "ip"): 31,
    ("x", "y", "z"): 32,
    ("x", "y", "z", "w"): 33,
    ("x",): 34,
    ("x", "v"): 35,
    ("class",): 36,
    ("class", 0): 36,
    ("class", 0, "name"): 37,
    ("class", 0, "route"): 38,
    ("class", 0, "route", "two"): 39,
    ("class", 0, "item", 0): 40,
    ("class", 0, "item", 1, "n"): 43,
    ("class", 1): 44,
    ("class", 1, "name"): 45,
    ("class", 1, "route"): 46,
    ("class", 1, "route", "two"): 47,
    ("class", 1, "item", 0, "n"): 49,
    ("spaced", "out", 0): 50,
    ("spaced", "out", 0, "k"): 51,
}


def test_lines_of_everything_that_toml_allows():
    lines = lines_of(AWKWARD)
    assert {path: lines.get(path) for path in LINES} == LINES
    assert set(lines) == {path for path, _ in leaves(tomllib.loads(AWKWARD))}


@pytest.mark.parametrize(
    "text", ["", "\n\n# nothing\n", "a = 1", "\r\n\r\na = 1\r\nb = [\r\n1]\r\n"]
)
def test_lines_of_little(text):
    lines = lines_of(text)
    assert set(lines) == {path for path, _ in leaves(tomllib.loads(text))}
    assert lines.get(("b", 0), 5) == 5
    assert lines.get(("a",), 1) in (1, 3)


KEYS = st.text("ab#.\"'=[]é ", min_size=0, max_size=4)
SCALARS = st.one_of(
    st.integers(-9, 9),
    st.booleans(),
    st.floats(0, 1).map(lambda v: round(v, 3)),
    st.text("x#\"'\\[]{},=\n", max_size=6),
)


def quoted(text):
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


class Writer:
    """Writes TOML in random layouts, and notes the line that each path begins in."""

    def __init__(self, draw):
        self.draw, self.text, self.lines = draw, "", {}

    @property
    def line(self):
        return 1 + self.text.count("\n")

    def blank(self, many=False):
        choices = ["", " ", "\t"] + (["\n", " # ], } = \" '\n", "\n\n"] if many else [])
        self.text += self.draw(st.sampled_from(choices))

    def key(self, key):
        bare = key and all(c in "ab" for c in key)
        literal = "'" not in key
        forms = [quoted(key)] + ([key] if bare else []) + ([f"'{key}'"] if literal else [])
        self.text += self.draw(st.sampled_from(forms))

    def value(self, path, depth):
        kind = self.draw(
            st.sampled_from(["scalar", "long", "array", "inline"] if depth else ["scalar"])
        )
        if kind == "array":
            self.text += "["
            for k in range(self.draw(st.integers(0, 3))):
                self.blank(many=True)
                self.lines[(*path, k)] = self.line
                self.value((*path, k), depth - 1)
                self.blank(many=True)
                self.text += ","
            self.blank(many=True)
            self.text += "]"
        elif kind == "inline":
            self.text += "{"
            for i, key in enumerate(self.draw(st.lists(KEYS, max_size=2, unique=True))):
                self.text += ", " if i else " "
                self.lines[(*path, key)] = self.line
                self.key(key)
                self.text += " = "
                self.value((*path, key), 0)
            self.text += " }"
        elif kind == "long":
            inner = self.draw(st.text("x# =[]\n", max_size=8))
            self.text += self.draw(st.sampled_from([f'"""{inner}"""', f"'''{inner}'''"]))
        else:
            scalar = self.draw(SCALARS)
            self.text += (
                str(scalar).lower()
                if isinstance(scalar, bool)
                else (quoted(scalar) if isinstance(scalar, str) else str(scalar))
            )

    def pairs(self, path):
        for key in self.draw(st.lists(KEYS, max_size=3, unique=True)):
            self.blank(many=True)
            self.lines[(*path, key)] = self.line
            self.key(key)
            self.blank()
            self.text += "="
            self.blank()
            self.value((*path, key), 2)
            self.text += self.draw(st.sampled_from(["\n", ' # a = [ "\n']))

    def document(self):
        self.pairs(())
        for name in ("one", "two"):
            for k in range(self.draw(st.integers(0, 2))):
                self.blank(many=True)
                path = (name, k)
                self.lines.setdefault((name,), self.line)
                self.lines[path] = self.line
                self.text += f"[[{name}]]\n"
                self.pairs(path)
                if self.draw(st.booleans()):
                    self.lines[(*path, "sub")] = self.line
                    self.text += f"[{name}.sub] # [x]\n"
                    self.pairs((*path, "sub"))
        return self.text


@given(st.data())
def test_lines_of_random_files(data):
    """The writer knows where it put each key; tomllib knows which keys there are."""
    writer = Writer(data.draw)
    text = writer.document()
    assert {path for path, _ in leaves(tomllib.loads(text))} == set(writer.lines)
    assert lines_of(text) == writer.lines


# -- networks --------------------------------------------------------------------------------------

NETWORK = """name = "two stations"
time = "continuous"   # rates
servers = ["press", "booth"]

[[class]]
name = "parts"
server = "press"
arrival = 0.8
service = 1.0
route = { paint = 0.9 }

[[class]]
name = "paint"
server = "booth"
service = 1.2
buffer = 10
"""


def changed(old, new, text=NETWORK):
    assert text.count(old) >= 1
    return text.replace(old, new, 1)


MISTAKES = {
    "syntax": (
        "name = \n",
        1,
        ["is not valid TOML", "Invalid value", "column 8", "put text in quotes"],
    ),
    "unclosed": (
        'name = "x"\nservers = ["a",\n\n',
        2,
        ["is not valid TOML", "close what is open, by ] or }"],
    ),
    "text without quotes": (
        changed('"press"\na', "press\na"),
        7,
        ["Invalid value", "put text in quotes"],
    ),
    "key twice": (
        changed("service = 1.0", "service = 1.0\nservice = 2.0"),
        10,
        ["Cannot overwrite", "delete one"],
    ),
    "table twice": (
        NETWORK.replace("[[class]]", "[class]"),
        5,
        ["write [[class]], with two brackets"],
    ),
    "one bracket, then two": (
        changed("[[class]]", "[class]"),
        5,
        ["write [[class]], with two brackets"],
    ),
    "empty": ("# nothing yet\n", 1, ["is empty", "[[class]]"]),
    "unknown key": (changed("time", "tmie"), 2, ["unknown key", "'tmie'", "did you mean 'time'?"]),
    "unknown option": (
        changed('"continuous"', '"continous"'),
        2,
        ["unknown time", "did you mean 'continuous'?"],
    ),
    "option of another type": (
        changed("time", "phantom = 'yes'\ntime"),
        2,
        ["phantom must be true or false"],
    ),
    "option that is no text": (
        changed('"continuous"', "1"),
        2,
        ["time must be one of discrete, continuous"],
    ),
    "name of another type": (
        changed('"two stations"', "[1]"),
        1,
        ["name must be a name in quotes, got [1]"],
    ),
    "unknown key of a class": (
        changed("arrival", "arival"),
        8,
        ["unknown key of class 'parts'", "mean 'arrival'?"],
    ),
    "option below a class": (
        NETWORK + "idling = true\n",
        17,
        ["key of the network", "above the first [[class]]"],
    ),
    "missing key": (changed("service = 1.0\n", ""), 5, ["class 'parts' lacks 'service'", "add it"]),
    "missing name": (changed('name = "paint"\n', ""), 12, ["class 2 lacks 'name'", "add it"]),
    "wrong type": (
        changed("0.8", '"0.8"'),
        8,
        ["arrival must be a number, got '0.8'; write one without quotes"],
    ),
    "no number": (changed("0.8", "true"), 8, ["arrival must be a number, got true; write one."]),
    "below range": (
        changed("0.8", "-0.8"),
        8,
        ["arrival must be a finite number that is not negative, got -0.8"],
    ),
    "not a number": (
        changed("0.8", "nan"),
        8,
        ["arrival must be a finite number that is not negative, got nan"],
    ),
    "no rate": (
        changed("1.2", "0"),
        15,
        ["class 'paint': service must be a positive, finite rate, got 0"],
    ),
    "without end": (
        changed("1.2", "inf"),
        15,
        ["service must be a positive, finite rate, got inf"],
    ),
    "no class of that name": (
        changed("paint = 0.9", "pant = 0.9"),
        10,
        ["a class that is missing", "mean 'paint'?"],
    ),
    "route in a table": (
        changed("route = { paint = 0.9 }", "[class.route]\n# to\npant = 1.0"),
        12,
        ["missing", "did you mean 'paint'?"],
    ),
    "routes sum to more than 1": (
        changed("{ paint = 0.9 }", "{ paint = 0.9, parts = 0.2 }"),
        10,
        ["sum to at most 1", "a sum of 1.1", "lower"],
    ),
    "route above 1": (
        changed("0.9", "1.9"),
        10,
        ["lie in [0, 1]", "got 1.9 for 'paint'", "lower them"],
    ),
    "route below 0": (changed("0.9", "-0.9"), 10, ["got -0.9 for 'paint'; what is left leaves"]),
    "route that is no number": (
        changed("0.9", "nan"),
        10,
        ["got nan for 'paint'; what is left leaves"],
    ),
    "route that is a switch": (
        changed("0.9", "true"),
        10,
        ["needs a probability, got true; write paint = 1.0"],
    ),
    "key behind a route": (
        changed("route = { paint = 0.9 }", "[class.route]\npaint = 0.9\nbuffer = 5"),
        12,
        ["'buffer' is a key of the class, not of its route", "move it above"],
    ),
    "comma in a number": (changed("0.8", "0,8"), 8, ["Expected newline", "a number as 0.125"]),
    "number with a unit": (changed("0.8", "8.0/h"), 8, ["Expected newline", "a number as 0.125"]),
    "table in two lines": (
        changed("{ paint = 0.9 }", "{\n paint = 0.9 }"),
        10,
        ["write { ... } in one line"],
    ),
    "typographic quotes": (changed('"paint"', "“paint”"), 13, ["use straight quotes"]),
    "empty name": (changed('"two stations"', '""'), 1, ["name is empty; give a name"]),
    "several servers": (
        NETWORK + "servers = 2\n",
        17,
        ["one customer at a time", "parallel-servers"],
    ),
    "far from any key": (
        NETWORK + "staff = 2\n",
        17,
        ["unknown key of class 'paint' 'staff'; known: name, server"],
    ),
    "buffer too large": (
        changed("= 10", "= 99999999999999999999"),
        16,
        ["is too large", "leave it out"],
    ),
    "buffer that is no number": (
        changed("= 10", "= nan"),
        16,
        ["buffer nan is no number", "leave it out"],
    ),
    "level of nothing": (
        NETWORK + "level = 5\n",
        17,
        ["level does nothing without excess", "give both or neither"],
    ),
    "penalty for nobody": (
        changed("route = {", "penalty = 2\nroute = {"),
        10,
        ["penalty does nothing without buffer"],
    ),
    "servers in two spellings": (
        changed('servers = ["press", "booth"]\n', "", changed('"booth"\n', '"Press"\n')),
        13,
        ["'Press' and 'press' are two servers", "the same letters", "list both"],
    ),
    "route that is a list": (
        changed("{ paint = 0.9 }", '["paint"]'),
        10,
        ["the name of a class or a table"],
    ),
    "route without a number": (
        changed("0.9", '"all"'),
        10,
        ["route to 'paint' needs a probability", "without quotes"],
    ),
    "two of one name": (
        changed('name = "paint"', 'name = "parts"', changed("paint = 0.9", "parts = 0.1")),
        13,
        ["two classes share the name 'parts'", "give one of them another"],
    ),
    "nobody comes": (
        changed("route = { paint = 0.9 }\n", ""),
        12,
        ["nobody ever comes to class 'paint'", "delete it"],
    ),
    "nobody arrives": (
        changed("arrival = 0.8\n", ""),
        5,
        ["nobody ever arrives", "an arrival rate"],
    ),
    "nobody leaves": (
        changed("paint = 0.9", "paint = 1.0") + 'route = "parts"\n',
        10,
        ["class 'parts' can never leave", "sum to less than 1"],
    ),
    "server without a class": (
        changed('"booth"]', '"booth", "oven"]'),
        3,
        ["'oven' has no class", "take it off"],
    ),
    "server not listed": (
        changed('server = "booth"', 'server = "boot"'),
        14,
        ["not listed in", "mean 'booth'?"],
    ),
    "server twice": (
        changed('"booth"]', '"booth",\n  "press"]'),
        4,
        ["servers lists 'press' twice", "delete one"],
    ),
    "servers that are none": (
        changed('["press", "booth"]', "2"),
        3,
        ["servers must be a list of names"],
    ),
    "half a customer": (
        changed("= 10", "= 10.5"),
        16,
        ["buffer 10.5 is no whole number", "round it"],
    ),
    "nobody fits": (changed("= 10", "= 0"), 16, ["buffer 0 holds nobody", "give 1 or more"]),
    "buffer in words": (
        changed("= 10", '= "none"'),
        16,
        ["buffer must be a number", "or leave it out"],
    ),
    "rates in discrete time": (
        changed("continuous", "discrete"),
        15,
        ["sum to at most 1, got 3; use time='continuous' if these are rates"],
    ),
    "a rate is no probability": (
        changed('time = "continuous"', 'dynamics = "bernoulli"'),
        15,
        ["1.2 is no probability; use time='continuous'"],
    ),
    "contradiction": (
        changed("time", 'dynamics = "bernoulli"\ntime'),
        2,
        ["one event at a time; use dynamics='uniformized'"],
    ),
    "contradiction below": (
        changed("servers", 'discipline = "nonpreemptive"\nidling = true\nservers'),
        4,
        ["idling needs discipline='preemptive'"],
    ),
    "phantoms": (
        changed("servers", 'phantom = true\ndiscipline = "nonpreemptive"\nservers'),
        3,
        ["leave one of them"],
    ),
    "one bracket": (
        NETWORK[: NETWORK.rindex("[[class]]")].replace("[[class]]", "[class]"),
        5,
        ["write [[class]] with two brackets"],
    ),
    "no class": ('name = "x"\ntime = "continuous"\n', 1, ["needs at least one [[class]]"]),
    "class that is no table": ("class = [1]\n", 1, ["class 1 is not a table", "write [[class]]"]),
    "a plan": (
        '# a plan\nmodel = "four-queue"\ntime = "2m"\n',
        2,
        ["a plan and no network", "dualplan solve"],
    ),
    "keys of a plan": (
        changed("servers", 'gap = "2%"\nservers'),
        3,
        ["'gap' is a key of plans", "file of its own"],
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return tmp_path


def one_sentence(error, file, line, words):
    text = str(error)
    assert text.startswith(f"{file}:{line}: "), text
    assert all(word in text for word in words), text
    assert "\n" not in text


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_in_a_network_are_explained_with_their_line(folder, mistake):
    text, line, words = MISTAKES[mistake]
    (folder / "net.toml").write_text(text)
    with pytest.raises(dp.errors.InputError) as caught:
        dp.load("net.toml")
    one_sentence(caught.value, "net.toml", line, words)


def test_the_network_itself_is_without_a_mistake(folder):
    (folder / "net.toml").write_bytes(b"\xef\xbb\xbf" + NETWORK.replace("\n", "\r\n").encode())
    net = dp.load("net.toml")
    assert (net.servers, net.class_names) == (("press", "booth"), ("parts", "paint"))
    (folder / "net.toml").write_text(changed('servers = ["press", "booth"]\n', ""))
    assert (
        dp.load("net.toml").digest == net.digest
    )  # a list of servers is a check and changes nothing


def test_what_came_from_the_command_line_has_no_line(folder):
    (folder / "net.toml").write_text(NETWORK)
    for parameters, words in (
        ({"time": "discreet"}, "unknown time 'discreet'; did you mean 'discrete'?"),
        ({"tmie": "discrete"}, "unknown parameter of network 'two stations' 'tmie'"),
    ):
        with pytest.raises(dp.errors.InputError) as caught:
            dp.load("net.toml", **parameters)
        assert str(caught.value).startswith(words)


def test_from_python_the_words_have_no_place():
    with pytest.raises(
        dp.errors.InputError,
        match=r"^class 'a': service must be a positive, finite rate, got -1\.$",
    ):
        dp.QueueClass("a", "s", service=-1)
    with pytest.raises(dp.errors.InputError) as caught, within("class", 3):
        dp.QueueClass("a", "s", service=-1)
    assert caught.value.at == ("class", 3, "service")


def test_a_file_that_is_no_text(folder):
    (folder / "net.toml").write_bytes(b"time = 'continuous'\nname = '\xff'")
    with pytest.raises(
        dp.errors.InputError,
        match=r"^net.toml:2: there is a character that is not UTF-8; save the file as",
    ):
        dp.load("net.toml")
    (folder / "d.toml").mkdir()
    with pytest.raises(dp.errors.InputError, match=r"'d.toml' is a folder; name a file in it"):
        dp.load("d.toml")


def test_names_that_are_almost_those_of_files(folder):
    (folder / "net.toml").write_text(NETWORK)
    (folder / "net.txt").write_text(NETWORK)
    with pytest.raises(
        dp.errors.InputError, match=r"there is no model 'net'; did you mean 'net.toml'"
    ):
        dp.load("net")
    with pytest.raises(
        dp.errors.InputError,
        match=r"'net.txt' is no model; the name of a network's file must end in .toml",
    ):
        dp.load("net.txt")


def test_the_load_that_bounded_buffers_turn_away_is_no_reason_for_alarm(folder, run):
    """Customers come faster than they are served, but no queue without end gets them all."""
    (folder / "net.toml").write_text(
        changed("arrival = 0.8", "arrival = 5.0\nbuffer = 2", changed("buffer = 10\n", ""))
        + "holding = 2.0\n"
    )
    out = run("check", "net.toml", "--pairs", 20)[1]
    assert "load of press: 5  (bounded buffers turn a part of it away)" in out
    assert "no policy keeps" not in out
    found = json.loads(run("evaluate", "net.toml", "-p", "c-mu", "--steps", 200_000, "--json")[1])
    assert found["status"] == "completed"
    assert not any("load" in note for note in found["notes"])
    (folder / "net.toml").write_text(HEAVY)
    assert (
        "from queues without end: no policy keeps them finite"
        in run("check", "net.toml", "--pairs", 20)[1]
    )


# -- loads of 1 and more ---------------------------------------------------------------------------


def test_certain_loads_count_what_no_buffer_turns_away():
    """By hand: a sends half to b and half to c, c is bounded, d gets all of c.

    b and d are served with a.
    """
    classes = [
        dp.QueueClass("a", "s", service=2.0, arrival=0.8, route={"b": 0.5, "c": 0.5}),
        dp.QueueClass("b", "s", service=1.0, arrival=0.1),
        dp.QueueClass("c", "t", service=0.1, buffer=5, route={"d": 1.0}),
        dp.QueueClass("d", "s", service=1.0),
    ]
    net = dp.QueueingNetwork(classes, time="continuous")
    assert net.loads == pytest.approx({"s": 0.4 + 0.5 + 0.4, "t": 4.0})
    assert net.certain_loads == pytest.approx({"s": 0.4 + 0.5, "t": 0.0})
    net.require_stable()


@pytest.mark.parametrize(("arrival", "finite"), [(0.9, True), (1.0, False), (1.1, False)])
def test_a_load_of_one_is_where_queues_grow_without_end(arrival, finite):
    """One queue cut at n: its mean length stays at ρ/(1 − ρ) as n grows if ρ < 1, and grows with n
    otherwise.
    """

    def length(n):
        net = dp.QueueingNetwork(
            [dp.QueueClass("a", "s", 1.0, arrival, buffer=n)], time="continuous"
        )
        return average_cost(net, net.policy("longer"))

    grows = length(400) > 1.5 * length(200)
    assert grows is not finite
    net = dp.QueueingNetwork([dp.QueueClass("a", "s", 1.0, arrival)], time="continuous")
    if finite:
        net.require_stable()
    else:
        with pytest.raises(
            dp.errors.InputError,
            match=f"server 's' has a load of {arrival:.4g} .*bound a buffer, lower arr",
        ):
            net.require_stable()


HEAVY = changed("arrival = 0.8", "arrival = 1.3")


def test_solve_and_evaluate_refuse_what_has_no_finite_cost(folder, run):
    (folder / "net.toml").write_text(HEAVY)
    (folder / "plan.toml").write_text('model = "net.toml"\ntime = "1s"\n')
    for command in ("evaluate net.toml -p longer", "solve net.toml --time 1s", "solve plan.toml"):
        status, out, err = run(*command.split())
        assert (status, out) == (2, "")
        assert err.startswith(
            "dualplan: net.toml:8: server 'press' has a load of 1.3 from queues without end "
            "('parts')"
        )
        assert "bound a buffer, lower arrivals" in err
    more = ["--overloaded", "--steps", 200_000]
    assert run("evaluate", "net.toml", "-p", "longer", *more)[0] == 0
    discounted = [
        "--criterion",
        "discounted",
        "--gamma",
        0.9,
    ]  # then costs are finite whatever the load
    assert run("evaluate", "net.toml", "-p", "longer", "--steps", 20_000, *discounted)[0] == 0
    assert "no policy keeps" in run("check", "net.toml", "--pairs", 20)[1]


# -- plans -----------------------------------------------------------------------------------------

PLAN = """# a plan
model = "four-queue"
penalty = [30.0]   # H
[set]
buffers = 2
[[features]]
family = "bands"
intervals = [[0, 4],
             [5, 8]]
"""
WRONG = {
    "unknown key": (
        changed("penalty", "penalti", PLAN),
        3,
        ["unknown key of 'plan.toml'", "did you mean 'penalty'?"],
    ),
    "no model": ("# x\nseed = 1\n", 1, ["names no model", 'write model = "..."']),
    "wrong type": (
        changed("[30.0]", '"high"', PLAN),
        3,
        ["penalty must be a positive number, or a list of them"],
    ),
    "out of range": (changed("[30.0]", "-1", PLAN), 3, ["penalty must be a positive number"]),
    "unknown model": (
        changed("four-queue", "four-quue", PLAN),
        2,
        ["unknown model", "did you mean 'four-queue'?"],
    ),
    "unknown parameter": (
        changed("buffers", "bufers", PLAN),
        5,
        ["unknown parameter", "did you mean 'buffers'?"],
    ),
    "bad parameter": (
        changed("buffers = 2", "buffers = 0", PLAN),
        4,
        ["buffer 0 holds nobody", "give 1 or more"],
    ),
    "unknown family": (
        changed("bands", "band", PLAN),
        7,
        ["unknown family of features", "did you mean 'bands'?"],
    ),
    "unknown key of a family": (
        changed("intervals", "interval", PLAN),
        8,
        ["unknown key", "mean 'intervals'?"],
    ),
    "family that lacks a key": (
        PLAN.split("intervals")[0],
        6,
        ["features 'bands' lack 'intervals'", "add it"],
    ),
    "not an interval": (changed("[0, 4]", "[4]", PLAN), 8, ["must be a list of intervals"]),
    "unknown method": (
        changed("[set]", 'method = "adaptiv"\n[set]', PLAN),
        4,
        ["did you mean 'adaptive'?"],
    ),
    "unknown option": (PLAN + "[options]\nbach = 3\n", 11, ["takes no options", "bach"]),
    "criterion without gamma": (
        changed("penalty", 'criterion = "discounted"\npenalty', PLAN),
        3,
        ["needs gamma"],
    ),
    "gamma without criterion": (
        changed("penalty", "gamma = 0.9\npenalty", PLAN),
        3,
        ["belong to criterion"],
    ),
    "gamma above 1": (
        changed("penalty", 'criterion = "discounted"\ngamma = 1.5\npenalty', PLAN),
        4,
        ["strictly between 0 and 1"],
    ),
    "unknown measure": (
        changed("penalty", 'limits = [\n  "length 1 <= 3",\n  "lenght 2 <= 3"]\npenalty', PLAN),
        5,
        ["mean 'length 2'?"],
    ),
    "unknown fallback": (
        changed("penalty", 'fallback = "lbsf"\npenalty', PLAN),
        3,
        ["did you mean 'lbfs'?"],
    ),
    "contradiction": (
        changed("penalty", 'gap = "2%"\npenalty', PLAN),
        3,
        ["policies, time and gap are for a search"],
    ),
    "beta alone": (
        changed("penalty", "beta = 2.0\npenalty", PLAN),
        3,
        ["beta belongs to theory", "epsilon"],
    ),
    "radius too small": (
        changed("penalty", "radius = 0.001\npenalty", PLAN),
        3,
        ["radius must be >="],
    ),
}


@pytest.mark.parametrize("mistake", WRONG)
def test_mistakes_in_a_plan_are_explained_with_their_line(folder, mistake):
    text, line, words = WRONG[mistake]
    (folder / "plan.toml").write_text(text)
    with pytest.raises(dp.errors.InputError) as caught:
        run_plan(read_plan("plan.toml"))
    one_sentence(caught.value, "plan.toml", line, words)


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ('model = "four-queue"\ntime = "2 years"\n', 2, "such as 90s or 2m, got '2 years'"),
        ('model = "four-queue"\ngap = "200%"\n', 2, "a gap is a share of the cost"),
        ('model = "four-queue"\npolicies = [\n"lbfs",\n"lbsf"]\n', 4, "did you mean 'lbfs'?"),
        ('model = "plan.toml"\n', 1, "a plan and no network"),
    ],
)
def test_mistakes_in_a_plan_of_a_search(folder, text, line, words):
    (folder / "plan.toml").write_text(text)
    with pytest.raises(dp.errors.InputError) as caught:
        solve_by(read_plan("plan.toml"))
    one_sentence(caught.value, "plan.toml", line, [words])


def test_a_network_is_no_plan_but_can_be_solved(folder):
    (folder / "net.toml").write_text(NETWORK)
    with pytest.raises(dp.errors.InputError) as caught:
        Plan.read("net.toml")
    one_sentence(caught.value, "net.toml", 5, ["a network and no plan", "Plan('net.toml')"])
    assert read_plan("net.toml").model == "net.toml"
    (folder / "net.toml").write_text('dynamics = "uniformized"\n')
    assert read_plan("net.toml").model == "net.toml"  # it lacks its classes, which `load` says


def test_a_mistake_in_the_network_of_a_plan_has_the_line_of_the_network(folder):
    (folder / "net.toml").write_text(changed("0.8", "-0.8"))
    (folder / "plan.toml").write_text('model = "net.toml"\n')
    with pytest.raises(dp.errors.InputError) as caught:
        solve_by(read_plan("plan.toml"))
    one_sentence(
        caught.value, "net.toml", 8, ["arrival must be a finite number that is not negative"]
    )


def test_options_of_the_command_line_have_no_line(folder, run):
    (folder / "plan.toml").write_text(PLAN)
    status, out, err = run("solve", "plan.toml", "--method", "adaptiv")
    assert (status, out) == (2, "")
    assert "did you mean 'adaptive'?" in err
    assert ":3:" not in err


def test_every_field_of_a_plan_is_declared_as_a_key():
    assert {*plans.PLAN_KEYS, "given", "source"} == set(Plan.__dataclass_fields__)


FORMER = {"budget": ("samples", "20"), "solver": ("method", '"paper"')}


@pytest.mark.parametrize("old", FORMER)
def test_a_key_that_has_another_name_now_is_answered_with_it(folder, run, old):
    new, value = FORMER[old]
    (folder / "plan.toml").write_text(f'model = "four-queue"\n{old} = {value}\n')
    with pytest.raises(dp.errors.InputError) as caught:
        read_plan("plan.toml")
    one_sentence(caught.value, "plan.toml", 2, [f"{old} is called {new} now"])


@pytest.mark.parametrize(
    ("old", "new"), [("--budget", "--samples"), ("--solver", "--method"), ("--jobs", "--workers")]
)
def test_an_option_that_has_another_name_now_is_answered_with_it(run, old, new):
    status, out, err = run("solve", "four-queue", old, "3")
    assert (status, out) == (2, "")
    assert f"{old} is called {new} now" in err
    assert old not in run("solve", "--help")[1]


def test_every_option_of_a_key_is_in_the_help(run):
    told = run("solve", "--help")[1]
    for key in plans.PLAN_KEYS.values():
        for flag in key.flags:
            assert f" {flag} " in told


# -- what the page says ----------------------------------------------------------------------------


def test_the_page_has_the_table_of_keys():
    """To renew it: print(dualplan.search.plans.table_of_keys())."""
    page = (Path(__file__).parents[1] / "docs" / "toml.md").read_text()
    assert f"\n\n{table_of_keys()}\n" in page


def said(call):
    with pytest.raises(dp.errors.InputError) as caught:
        call()
    return str(caught.value)


def test_the_page_has_every_mistake_in_its_very_words(folder):
    page = (Path(__file__).parents[1] / "docs" / "toml.md").read_text()
    network, plan = page.split("## Mistakes in a plan")
    listed = [
        re.findall(r"^\| (.+?) \| `(\w+\.toml:\d+: .+)` \|$", part, re.M)
        for part in (network, plan)
    ]
    words = []
    for mistake, (text, _, _) in MISTAKES.items():
        (folder / "net.toml").write_text(text)
        words.append((mistake, said(lambda: dp.load("net.toml"))))
    (folder / "net.toml").write_text(HEAVY)
    words.append(("load of 1 or more", said(lambda: require_stable(dp.load("net.toml")))))
    assert listed[0] == words
    words = []
    for mistake, (text, _, _) in WRONG.items():
        (folder / "plan.toml").write_text(text)
        words.append((mistake, said(lambda: run_plan(read_plan("plan.toml")))))
    assert listed[1] == words
    assert PLAN in plan
