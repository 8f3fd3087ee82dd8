"""Functions of the page that need no server: their results, and where they paint what."""

import json

import pytest

from glasshead.observe.colours import palette

from .test_page_numbers import of_module

LAYERS = """[{index: 0, rows: "words", cols: "words", kind: "self", heads: 2},
             {index: 1, rows: "words", cols: "words", kind: "self", heads: 2},
             {index: 2, rows: "written_words", cols: "source_words", kind: "cross", heads: 3}]"""
DATA = f"""{{layers: {LAYERS}, pins: {{words: 1, written_words: 4}},
    words: [{{start: 0, stop: 1, text: "a"}}, {{start: 1, stop: 3, text: "b"}}],
    written_words: [{{start: 0, stop: 2, text: "c"}}],
    source_words: [{{start: 0, stop: 3, text: "d"}}, {{start: 3, stop: 4, text: "e"}}],
    statistics: {{relative_entropy: {{values: [[0.5, 0.4], [0.3, null], [0.1, 0.2, 0.3]]}}}}}}"""
RANKED = (
    "{heads: [{layer: 0, head: 1, at: 0}, {layer: 1, head: 0, at: 2}, {layer: 1, head: 1, at: 1}]}"
)
TOLD = (
    "{layers: [{index: 1, heads: [[[0, 0.4]], [[2, 0.6]]]}, {index: 3, heads: [[], [[1, 0.5]]]}]}"
)
LOOK = """{shape: [2, 2, 3], source: ["x", "y", "z"], target: ["er", "da"],
    weights: Float32Array.of(0.4, 0.3, 0.3, 0.2, 0.5, 0.3, 0.1, 0.1, 0.8, 0.6, 0.2, 0.2)}"""
MAP = """Object.assign(Object.create(m.AtlasMap.prototype), {
    layer: {T: 300, S: 450, causal: true, levels: 3, finest: 0}, told: {page: 64},
    size: [462, 250], node: null, camera: {x: 200, y: 150, px: 2}})"""

FUNCTIONS = {
    "engine/sampling": {
        "[7, 7, 2 ** 32 + 7].map((seed) => m.generator(seed)()).map((x, _, [y]) => x === y)":
            [True, True, False],
    },
    "words": {
        "[0, 0.00099, 0.001, 9.9994, 10, 99.94, 100, 12345.6, -0.5, NaN, null].map(m.three)":
            ["0.000", "9.9e-4", "0.001", "9.999", "10.0", "99.9", "100", "12,346", "-0.500", "–",
             "–"],
        "[0, 0.0009, 0.001, 0.0994, 0.0995, 1, NaN].map(m.percent)":
            ["0.0%", "<0.1%", "0.1%", "9.9%", "10%", "100%", "–"],
        "m.count(1234567)": "1,234,567",
    },
    "scale": {
        # The strongest colour belongs to a row with more than one weight.
        "m.Scale.of([1, 0, 0.3, 0.7], 2, 'linear')": {"kind": "linear", "low": 0, "high": 0.7},
        "m.Scale.of([1, 0, 0, 0.5], 2, 'linear').high": 1,
        "m.Scale.of([0, 0], 2, 'linear').high": 1,
        "m.Scale.of([0.2, 0.8], 2, 'log').low * 1e4": 0.8,
        "m.Scale.of([], 1, 'ratio')": {"kind": "ratio", "low": 0.0625, "high": 16},
        "[-1, 0, 0.4, 0.8, 9, NaN].map((x) => new m.Scale('linear', 0, 0.8).shade(x))":
            [0, 0, 128, 255, 255, 0],
        "[0.01, 0.0625, 1, 16, 99, NaN].map((x) => m.Scale.of([], 1, 'ratio').shade(x))":
            [0, 0, 128, 255, 255, 128],
        "[0.0001, 0.01, 1].map((x) => new m.Scale('log', 1e-4, 1).shade(x))": [0, 128, 255],
        # Dark letters on light cells, light ones on dark cells, in both themes.
        "['light', 'dark'].map((w) => [0, 1].map((x) => new m.Scale('linear', 0, 1).ink(x, w)))":
            [["#1b2027", "#f6f8fb"], ["#f6f8fb", "#1b2027"]],
    },
    "views/runs_curves": {
        "[0, 0.0009, 0.02, 1.5, 9999, 10000, 20480, 1e6].map(m.short)":
            ["0", "9e-4", "0.02", "1.5", "10000", "10k", "20.5k", "1M"],
        "[7, 59.6, 3599, 3600, 36125].map(m.clock)":
            ["0:07", "1:00", "59:59", "1:00:00", "10:02:05"],
        "[0, 1, 4, 5, 9].map((s) => m.valueAt([[1, 7], [5, 3]], s))":
            [None, [1, 7], [1, 7], [5, 3], [5, 3]],
        # Each before counts half as much as the next, and the first has none before it.
        "m.smoothed([[1, 8], [2, 2], [3, null], [4, 5]].map(([x, y]) => [x, y ?? NaN]), 0.5)"
        ".map((p) => p.map((x) => (x === x ? x : null)))":
            [[1, 8], [2, pytest.approx((8 + 2 * 2) / 3)], [3, None],
             [4, pytest.approx((8 + 2 * 2 + 4 * 5) / 7)]],
        "m.smoothed([[1, 8], [2, 2]], 0)": [[1, 8], [2, 2]],
        # Between two steps that are known, from 0 on, and after the last.
        "m.along([[5, 1], [10, 2], [20, 3], [99, 4]], [[10, 500], [30, 1500]])":
            [[250, 1], [500, 2], [1000, 3], [1500, 4]],
        "m.along([[5, 1]], [])": [],
        "((c) => ([{step: 3, loss: 2, lr: 1, __proto__x: 1}, {step: 5, loss: 1, tokens: 9},"
        " {step: 5, val_loss: 4, best: true}, {step: 4, returned_from: 5, rate: 1},"
        " {step: 5, loss: 7}].forEach((line) => m.addLine(c, line)),"
        " [m.pointsOf(c, 'loss'), m.pointsOf(c, 'val_loss'), m.pointsOf(c, 'tokens'),"
        " m.metricsOf([c, undefined])]))(m.nothing())":
            [[[3, 2], [5, 7]], [], [], ["lr", "__proto__x"]],
        # The step that it goes back to is part of what follows.
        "((c) => ([{step: 3, loss: 2}, {step: 4, loss: 1}, {step: 4, val_loss: 6},"
        " {step: 5, loss: 9}, {step: 4, returned_from: 5, rate: 1}, {step: 5, loss: 8}]"
        ".forEach((line) => m.addLine(c, line)), ['loss', 'val_loss', 'rate']"
        ".map((name) => m.pointsOf(c, name))))(m.nothing())":
            [[[3, 2], [4, 1], [5, 8]], [[4, 6]], []],
        "((c) => (m.addLine(c, JSON.parse('{\"step\": 1, \"__proto__\": 2}')),"
        " m.metricsOf([c])))(m.nothing())": ["__proto__"],
        "m.lowest([[1, 3], [2, 1], [3, 1]])": [2, 1],
    },
    "views/runs_plot": {
        # A value of each series at each place; what a logarithm has not is left out.
        "m.joined({series: [{points: [[1, 5], [3, 6]]}, {points: [[2, 7], [3, 0]]}], log: true})"
        ".map((row) => [...row].map((x) => x ?? null))":
            [[1, 2, 3], [5, None, 6], [None, 7, None]],
        "m.joined({series: []})": [[]],
        "[m.powers(0.005, 30), m.powers(0.4, 6)]": [[0.01, 0.1, 1, 10], [0.5, 1, 2, 5]],
        "m.zoomed({scales: {x: {min: 0, max: 80}}, cursor: {left: 3}, posToVal: () => 20}, true)":
            [10, 50],
        "m.zoomed({scales: {x: {min: 0, max: 80}}, cursor: {left: -9}}, false)": [-40, 120],
    },
    "drafts": {
        "[m.recall('a'), m.remember('a', 'x'), m.remember('b', 'y'), m.remember('a', 'z'),"
        " m.recall('a'), m.recall('b'), m.remember('b', ''), m.recall('b'),"
        " sessionStorage.getItem('glasshead.typed')].map((x) => x ?? null)":
            [None, None, None, None, "z", "y", None, None, '[["a","z"]]'],
        "(Array.from({length: 30}, (_, n) => m.remember(`n${n}`, 'x')), [m.recall('n5'),"
        " m.recall('n6')])": [None, "x"],
    },
    "views/statistic_names": {
        "['relative_entropy', 'other'].map(m.statisticName)": ["Relative entropy", "other"],
    },
    "views/atlas_heads": {
        # Each cell has the largest of its weights.
        "((x) => [x.rows, x.cols, x.values[0], x.values[2], x.values.at(-1)])(m.shrunk("
        "Float32Array.from({length: 48 * 36}, (_, n) => n % 36), 48, 36))": [24, 24, 1, 4, 35],
        "m.shrunk(Float32Array.of(1, 2, 3, 4, 5, 6), 2, 3).values.join()": "1,2,3,4,5,6",
    },
    "views/look_strips": {
        "[m.moreHeads({heads: [1, 2, 3], of: 3}, false),"
        " m.moreHeads({heads: [1, 2, 3], of: 270}, false),"
        " m.moreHeads({heads: [1, 2, 3], of: 3}, true)]":
            ["All 3 heads", "The first 3 of 270 heads", "Fewer"],
    },
    "views/look_arcs": {
        # In the middle of a straight curve, unless a word stands there.
        "[[], [{x: 140, y: -9, w: 20, h: 18}]].map((boxes) => m.buttonPlace("
        "[0, 0, 100, 0, 200, 0, 300, 0], boxes)).map(({x, covered}) => [Math.round(x), covered])":
            [[150, 0], [102, 0]],
    },
    "views/look_answer": {
        # In a matrix there are no strips to tell of.
        "['lines', 'matrix'].map((shape) => m.captionOf({pin: {row: 1}, rows: [{}, {text: 'b'}],"
        " cols: [...'abcd'].map((text) => ({text})), dir: 'from', same: true, kind: 'linear',"
        " head: 2, layer: {index: 0, name: '0'}, shape,"
        " from: {heads: [{layer: 0, head: 2, most: 0.875, at: 0, weights: [0.875, 0.1, 0, 0]}]}}))"
        ".map((text) => [/88%/.test(text), /strip/.test(text), /row/.test(text)])":
            [[True, True, False], [True, False, True]],
    },
    "views/look_text": {
        "['0', '2', '3', '-1', '1.5', '', undefined].map((x) => m.counted(x, 3))":
            [0, 2, None, None, None, None, None],
    },
    "views/look_cut": {
        "m.edgeItem(1, '*', {start: 2, stop: 4}, {start: 5, stop: 8})": "e1.*.2.4.5.8",
        "m.cutsOf(`h3.2_${m.edgeItem(1, 6, {start: 2, stop: 4}, {start: 5, stop: 8})}`)": {
            "heads": [[3, 2]],
            "edges": [
                {"layer": 1, "head": 6, "query": 2, "query_stop": 4, "key": 5, "key_stop": 8}
            ],
        },
        "m.cutsOf('h1.0_e2.*.3.4.5.6_e2.1.3.4.5.6_h1_e1.2_x_h*.1')": {
            "heads": [[1, 0]],
            "edges": [{"layer": 2, "head": head, "query": 3, "query_stop": 4, "key": 5,
                       "key_stop": 6} for head in (None, 1)]},
    },
    "views/look_choice": {
        f"[{{}}, {{layer: '1'}}].map((now) => m.layersLike({DATA}, now).map((x) => x.index))":
            [[2], [0, 1]],
        f"[{{}}, {{query: 'none'}}, {{query: '2'}}, {{query: '3'}}, {{key: '1'}}].map((now) =>"
        f" m.pinned(now, {DATA}, {LAYERS}[0]).row)": [1, None, 1, None, 1],
        f"[{{}}, {{key: '3'}}, {{key: '4'}}, {{key: '2', query: '1'}}].map((now) =>"
        f" m.pinned(now, {DATA}, {LAYERS}[2]))":
            [{"row": 4, "col": None}, {"row": None, "col": 1}, {"row": 4, "col": None},
             {"row": 0, "col": 0}],
        # Named; ranked by a word, which neither the first nor a full stop is; of least entropy.
        f"[[{{layer: '1', head: '1'}}, null], [{{}}, {RANKED}], [{{layer: '0'}}, {RANKED}],"
        f" [{{}}, null], [{{layer: '0', head: '2'}}, null]].map(([now, ranked]) =>"
        f" ((data) => m.headOf(now, data, data.layers.slice(0, 2), ranked,"
        f" [{{text: 'a'}}, {{text: 'b'}}, {{text: '.'}}]))({DATA}))"
        ".map((x) => [x.layer.index, x.head])":
            [[1, 1], [1, 1], [0, 1], [1, 0], [0, 1]],
    },
    "views/runs_list": {
        "[[59, 1, 2], [60, 1, 2], [0, 2, 2], [0, 2, null], [null, 1, 2]].map(([age, step, steps])"
        " => m.isLive({age, step, steps, kind: 'gpt'}))": [True, False, False, True, False],
        "m.isLive({age: 1, step: 1, steps: 2, kind: 'broken'})": False,
        "[m.hue(0) === m.hue(8), m.hue(0) === m.hue(7)]": [True, False],
    },
    "views/translate_heads": {
        "['0', '2', '3', '-1', '1.5', undefined].map((x) => m.index(x, 3))":
            [0, 2, None, None, None, None],
        f"m.focusedHead({LOOK})": 1,
        f"[...m.mapOf({LOOK}, 1).weights].map((x) => x.toFixed(1)).join()":
            "0.1,0.1,0.8,0.6,0.2,0.2",
        f"m.tellingHead([{LOOK}], {{one: {{referent: 1, stands_for: 'y'}},"
        " both: [{wanted_pronoun: 'er'}, {wanted_pronoun: 'es'}]})":
            {"layer": 0, "head": 0, "weight": pytest.approx(0.3), "word": "er", "referent": "y",
             "shows": False},
    },
    "views/translate_draw": {
        f"[['target', 1], ['source', 2]].map(([side, at]) => m.ranked({LOOK}, {{side, at}}, 2)"
        ".map((one) => one.word))": [["y", "z"], ["er", "da"]],
        "['a\\nb', '\\t', ''].map(m.shown)": ["a↵b", "⇥", "∅"],
    },
    "views/write_side": {
        "['a b', ' a', 'a ', '\\n', '\\t', ''].map(m.visible)": ["a b", "␣a", "a␣", "↵", "⇥", "∅"],
        f"m.chosenHead({TOLD})": {"layer": 1, "head": 1, "most": 0.6},
        f"m.headOf({TOLD}, {{layer: 3, head: 1}})": [[1, 0.5]],
    },
    "views/steps_table": {
        "m.entropy([0.5, 0.5, 0]) / Math.LN2": pytest.approx(1),
        # Four keys, two queries: the first of them sees the first three keys.
        "['causal', 'none', 'model'].map((mask) => m.computed({query: 0, keys: 'abcd',"
        " queries: 'xy', products: [0, 0, 0, 0], scale: 1, allowed: [true, false, true, true]},"
        " {mask}).weights.map((w) => w > 0))":
            [[True, True, True, False], [True] * 4, [True, False, True, True]],
        "m.computed({query: 0, keys: 'ab', queries: 'a', products: [4, 0], scale: 0.5, softcap: 2,"
        " added: [0, 1], v: [[1], [5]]}, {temperature: 2}).scaled":
            [pytest.approx(2 * 0.7615941559557649), 1],
    },
    "views/atlas_map": {
        f"((map) => [map.at(map.toX(31), map.toY(47)), map.view])({MAP})":
            [{"x": 31, "y": 47}, {"r0": 100, "r1": 200, "c0": 100, "c1": 300}],
        # A page of 64 is hidden where all its keys come after all its queries.
        f"((map) => [[0, 0, 3], [0, 0, 4], [0, 1, 4], [1, 0, 2], [1, 0, 3]].map((page) =>"
        f" map.hides(...page)))({MAP})": [False, True, False, False, True],
        f"{MAP}.pages(1).map(String).sort()": [
            f"1,{i},{j}" for i in range(2) for j in range(3)],
    },
    "views/look_matrix": {
        "[[30, 40], [29, 40], [30, 39], [59, 59], [60, 59], [59, 60]].map(([x, y]) =>"
        " m.cellAt({left: 30, top: 40, cell: 10}, {rows: [0, 1], cols: [0, 1, 2]}, x, y))":
            [{"r": 0, "c": 0}, None, None, {"r": 1, "c": 2}, None, None],
    },
    "dom": {
        "m.showDirections('a\\u202etxt.exe\\u2066b\\u061c 猫é')":
            "a⟨U+202E⟩txt.exe⟨U+2066⟩b⟨U+061C⟩ 猫é",
        "m.h('p', {}, ['x\\u200f', null], 'y', m.h('b', {}, '\\u202d')).textContent":
            "x⟨U+200F⟩y⟨U+202D⟩",
        "m.fill(m.h('p', {}, 'old'), '\\u202bnew').textContent": "⟨U+202B⟩new",
        "['ArrowRight', 'ArrowLeft', 'ArrowDown', 'ArrowUp', 'Home', 'End', 'x'].map((key) =>"
        " m.along({key, preventDefault() {}}, [0, 1, 2].map(() => ({focus() {}})), 2))":
            [0, 1, 0, 1, 0, 2, None],
        "m.along({key: 'Home', ctrlKey: true, preventDefault() {}}, [{focus() {}}], 0)": None,
    },
}  # fmt: skip


def test_functions_of_the_page_give_what_they_should(page, served):
    wrong = []
    for module, cases in FUNCTIONS.items():
        for expression, wanted in cases.items():
            found = of_module(page, served, module, expression)
            if found != wanted:
                wrong.append(f"{module}: {expression}\n  {json.dumps(found)} instead of {wanted}")
    assert not wrong, "\n".join(wrong)


# Painting: each call of the painter, with its arguments.

PAINTED = """await (async () => {{
    const calls = [];
    const painter = new Proxy({{ measure: (text) => 8 * text.length }}, {{
      get: (own, name) => own[name] ?? ((...args) => void calls.push([name, ...args])),
    }});
    const {{ Scale }} = await import("/web/scale.js");
    {code};
    return calls;
  }})()"""
BOXES = """const box = (x, y) => ({ x, y, w: 90, h: 30 });
    const boxes = { rows: [0, 99, 198].map((x) => box(x, 0)),
                    cols: [0, 99, 198].map((x) => box(x, 200)) };
    const weights = Float32Array.of(0.9, 0.1, 0, 0.2, 0.3, 0.5, 0, 0.4, 0.6);
    const words = ["a", "b", "c"].map((text) => ({ text }));
    const all = { rows: words, cols: words, weights, scale: Scale.of(weights, 3, "linear") };"""


def painted(page, served, module, code):
    return of_module(page, served, module, PAINTED.format(code=code))


@pytest.mark.parametrize(
    ("focus", "lines", "pinned_at"),
    [
        ({"row": 1, "col": None}, {(144, 45), (144, 144), (144, 243)}, (100, 1)),
        ({"row": None, "col": 1}, {(45, 144), (144, 144), (243, 144)}, (100, 201)),
    ],
)
def test_lines_lead_from_the_word_that_looks_to_the_one_it_looks_at(
    page, served, focus, lines, pinned_at
):
    look = f"{{ ...all, ...{json.dumps(focus)}, pinned: {json.dumps(focus)} }}"
    code = f"{BOXES} m.paintLines(painter, {{ boxes, size: 19, same: false }}, {look})"
    calls = painted(page, served, "views/look_lines", code)
    curves = [args for name, *args in calls if name == "curve"]
    assert {(x1, x2) for x1, *_, x2, _, _ in curves} == lines
    assert {(y1, y2) for _, y1, *_, y2, _ in curves} == {(32, 198)}
    widths = {tuple(args[i] for i in (0, 6)): args[8]["width"] for args in curves}
    assert max(widths, key=widths.get) == ((144, 243) if focus["row"] else (243, 144))
    frames = [(x, y) for name, x, y, *_, style in (c for c in calls if c[0] == "rect")
              if style.get("width") == 2.2]  # fmt: skip
    assert frames == [pinned_at]


def test_frames_of_a_matrix_stand_around_the_pinned_row_and_column(page, served):
    code = f"""{BOXES} m.paintMatrix(painter, {{ left: 30, top: 40, cell: 20 }},
        {{ ...all, row: null, col: null, cell: {{ r: 0, c: 1 }}, pinned: {{ row: 1, col: 2 }} }})"""
    calls = painted(page, served, "views/look_matrix", code)
    frames = [args[:4] for name, *args in calls if name == "rect"]
    assert frames == [[29, 59, 62, 22], [69, 39, 22, 62], [50, 40, 20, 20]]
    labels = [(args[2], args[1]) for name, *args in calls if name == "text"][:3]
    assert labels == [("a", 50), ("b", 70), ("c", 90)]


@pytest.mark.parametrize(
    ("side", "at", "weights"), [("target", 1, [0.2, 0.5, 0.3]), ("source", 0, [0.4, 0.2])]
)
def test_in_translate_the_words_of_the_other_side_are_shaded(page, served, side, at, weights):
    code = f"""const pin = {{ side: "{side}", at: {at} }};
        const {{ source, target, weights }} = {LOOK};
        m.drawLines(painter, {{ source, target, weights: weights.subarray(0, 6) }},
                    {{ w: 600, pin, marked: null, colours: {{ accent: "red", data: "blue" }} }})"""
    calls = painted(page, served, "views/translate_draw", code)
    shades = [(x < 300, style["alpha"]) for name, x, *_, style in
              (c for c in calls if c[0] == "rect") if "alpha" in style]  # fmt: skip
    assert shades == [(side == "target", pytest.approx(0.08 + 0.4 * w)) for w in weights]
    strokes = [style["stroke"] for name, *_, style in calls if name == "curve"]
    assert strokes.count("red") == len(weights)


def test_a_chart_zooms_where_it_is_dragged_and_tells_what_is_there(page, served):
    dragged = """await (async () => {
        const root = document.body.appendChild(document.createElement("div"));
        const got = [];
        let zoom = null;
        const plot = m.plot(root, { w: 500, h: 300, zoom: () => zoom, onzoom: (x) => got.push(x),
          series: [{ name: "a", colour: "red", points: [[0, 5], [40, 1]] }] });
        await new Promise((done) => setTimeout(done));
        const whole = [plot.scales.x.min, plot.scales.x.max];
        const [left, right] = [10, 30].map((x) => plot.valToPos(x, "x"));
        plot.setSelect({ left, top: 0, width: right - left, height: 9 }, true);
        zoom = [10, 30];
        plot.setData(m.joined({ series: [{ points: [[0, 5], [40, 1]] }] }));
        await new Promise((done) => setTimeout(done));
        return [whole, got, [plot.scales.x.min, plot.scales.x.max]];
      })()"""
    found = of_module(page, served, "views/runs_plot", dragged)
    assert found == [[0, 40], [[pytest.approx(10), pytest.approx(30)]], [10, 30]]


def test_a_picture_keeps_how_faint_a_stroke_is(page, served):
    drawn = """((p) => (p.line(0, 0, 1, 1, { alpha: 0.5 }), p.line(0, 0, 1, 1),
        p.rect(0, 0, 1, 1, { alpha: 0.25 }), p.text(0, 0, "x", { alpha: 0.75, align: "right" }),
        p.parts))(new m.SvgPainter())"""
    faint, full, rect, text = of_module(page, served, "paint", drawn)
    assert 'opacity="0.5"' in faint
    assert "opacity" not in full
    assert 'opacity="0.25"' in rect
    assert 'opacity="0.75"' in text
    assert 'text-anchor="end"' in text


def test_a_ranked_head_is_shown_in_the_direction_of_its_list(page, served):
    clicked = """(() => {
        let got;
        const words = ["a", "b"].map((text) => ({ text }));
        const card = m.rankCard({ set: (patch) => (got = patch) });
        const heads = [{ layer: 3, head: 1, most: 0.5, at: 1, weights: [0.25, 0.5] }];
        card.draw({ to: { word: 0, heads }, rows: words, cols: words, kind: "linear",
          same: true, data: { layers: [{ index: 3, name: "L3" }] } });
        card.node.querySelector(".ranking button").click();
        const strip = card.node.querySelector("canvas").getContext("2d").getImageData(1, 0, 1, 1);
        return [got, card.node.querySelector(".weight").textContent, [...strip.data.slice(0, 3)]];
      })()"""
    found = of_module(page, served, "views/look_rank", clicked)
    strongest = palette("linear", "light")[-1].tolist()
    assert found == [{"layer": 3, "head": 1, "dir": "to"}, "50%", strongest]
