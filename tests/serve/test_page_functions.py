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
    "views/chart": {
        "[0, 0.0009, 0.02, 1.5, 9999, 10000, 20480, 1e6].map(m.short)":
            ["0", "9e-4", "0.02", "1.5", "10000", "10k", "20.5k", "1M"],
        "m.evenly(0, 10, 5)": [0, 2, 4, 6, 8, 10],
        "m.evenly(3, 47, 4)": [20, 40],
        "m.evenly(0, 2, 8, true)": [0, 1, 2],
        "[0, 1, 4, 5, 9].map((s) => m.valueAt([[1, 7], [5, 3]], s))":
            [None, [1, 7], [1, 7], [5, 3], [5, 3]],
        "m.thinned([[1, 4], [2, 8], [3, 1], [4, 3], [5, 0]], 3)": [[1, 4], [3.5, 2], [5, 0]],
        "m.thinned([[1, 4], [2, 8]], 2)": [[1, 4], [2, 8]],
    },
    "views/look_text": {
        "['0', '2', '3', '-1', '1.5', '', undefined].map((x) => m.counted(x, 3))":
            [0, 2, None, None, None, None, None],
    },
    "views/look_cut": {
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


def test_a_chart_reads_its_own_places_back(page, served):
    code = """const place = m.chart(painter, { x: 7, y: 3, w: 500, h: 300, colours: {}, series: [
            { name: "a", colour: "red", points: [[0, 5], [40, 1]] }] });
        calls.length = 0;
        calls.push(place.step(place.at(31)), place.at(0) - place.inner.x,
                   place.at(40) - place.inner.x - place.inner.w, place.y(5) < place.y(1))"""
    assert painted(page, served, "views/chart", code) == [pytest.approx(31), 0, 0, True]


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
