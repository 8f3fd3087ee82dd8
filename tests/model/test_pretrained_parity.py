"""Models of the transformers library come in as they are, and go out as they came."""

import json
import math

import pytest
import torch
from safetensors.torch import load_file, save_file

from glasshead.checkpoint import export_model, import_model, load
from glasshead.generation.decode import generate
from glasshead.generation.sampling import SamplingConfig

hf = pytest.importorskip("transformers", reason="needs transformers")

from tests.model import foreign  # noqa: E402

PROMPT = [7, 11, 101, 211, 31]


def our_greedy(model, ids, n):
    steps = generate(model, [ids], SamplingConfig(temperature=0.0), max_tokens=n)
    return [step[0] for step in steps]


@pytest.fixture(scope="module", params=list(foreign.CASES))
def moved(request, tmp_path_factory):
    """A model of theirs, the folder it was saved to, the run made of that, and its export."""
    path = tmp_path_factory.mktemp("moved")
    model = foreign.build(request.param)
    foreign.save(model, path / "theirs")
    import_model(path / "theirs", path / "run")
    export_model(path / "run", path / "out")
    return model, path


@torch.no_grad()
def test_an_imported_model_gives_the_same_logits(moved):
    model, path = moved
    ids = torch.randint(foreign.VOCABULARY, (3, 59), generator=torch.manual_seed(1))
    ours = load(path / "run").model
    torch.testing.assert_close(ours(ids), model(ids).logits, rtol=0, atol=1e-4)


def test_an_imported_model_continues_a_text_in_the_same_way(moved):
    model, path = moved
    ours = load(path / "run").model
    assert our_greedy(ours, PROMPT, 50) == foreign.their_greedy(model, PROMPT, 50)


def test_an_exported_model_continues_a_text_in_their_library_as_here(moved):
    _, path = moved
    theirs, about = hf.AutoModelForCausalLM.from_pretrained(path / "out", output_loading_info=True)
    assert not any(about.values())
    ours = load(path / "run").model
    assert foreign.their_greedy(theirs.eval(), PROMPT, 50) == our_greedy(ours, PROMPT, 50)


def test_export_and_import_give_back_the_same_tensors(moved, tmp_path):
    _, path = moved
    theirs, out = path / "theirs", path / "out"
    assert foreign.same_bytes(theirs / "model.safetensors", out / "model.safetensors")
    import_model(out, tmp_path / "again")
    run = path / "run"
    assert foreign.same_bytes(run / "model.safetensors", tmp_path / "again" / "model.safetensors")
    settings = [
        json.loads((p / "config.json").read_text())["model"] for p in (run, tmp_path / "again")
    ]
    assert settings[0] == settings[1]


def test_an_exported_tokenizer_gives_the_same_ids(moved):
    _, path = moved
    theirs = hf.AutoTokenizer.from_pretrained(path / "out")
    ours = load(path / "run").tokenizer
    text = f"{foreign.TEXT}\n\n  twice"
    assert theirs(text)["input_ids"] == ours.prompt_ids(text)
    assert theirs.eos_token == "<|endoftext|>"


def test_a_folder_loads_as_it_is(moved):
    _, path = moved
    loaded, run = load(path / "theirs"), load(path / "run")
    ids = torch.tensor([PROMPT])
    assert torch.equal(loaded.model(ids), run.model(ids))
    assert loaded.tokenizer.fingerprint == run.tokenizer.fingerprint
    assert loaded.config.model == run.config.model


def test_parameters_keep_their_dtype(tmp_path):
    model = foreign.build("llama tied").to(torch.bfloat16)
    foreign.save(model, tmp_path / "theirs")
    run = import_model(tmp_path / "theirs", tmp_path / "run")
    assert {t.dtype for t in load_file(run.path / "model.safetensors").values()} == {torch.bfloat16}
    export_model(run.path, tmp_path / "out")
    names = [tmp_path / part / "model.safetensors" for part in ("theirs", "out")]
    assert foreign.same_bytes(*names)
    assert hf.AutoConfig.from_pretrained(tmp_path / "out").dtype == torch.bfloat16


def test_shards_are_read_as_one(tmp_path):
    model = foreign.build("qwen3")
    foreign.save(model, tmp_path / "whole")
    foreign.save(model, tmp_path / "sharded", max_shard_size="20KB")
    assert len([*(tmp_path / "sharded").glob("*.safetensors")]) > 2
    runs = [import_model(tmp_path / n, tmp_path / f"{n} run") for n in ("whole", "sharded")]
    assert foreign.same_bytes(*(run.path / "model.safetensors" for run in runs))


@pytest.mark.parametrize("name", ["gpt2", "llama tied"])
def test_a_bare_model_and_one_with_its_tied_head_written_out_are_the_same(name, tmp_path):
    path = foreign.folder(tmp_path / "theirs", name)
    tensors = load_file(path / "model.safetensors")
    prefix, table = ("transformer.", "wte") if name == "gpt2" else ("model.", "embed_tokens")
    run = import_model(path, tmp_path / "run")
    save_file({**tensors, "lm_head.weight": tensors[f"{prefix}{table}.weight"].clone()},
              path / "model.safetensors")  # fmt: skip
    with_head = import_model(path, tmp_path / "with head")
    save_file({n.removeprefix(prefix): t for n, t in tensors.items()}, path / "model.safetensors")
    bare = import_model(path, tmp_path / "bare")
    for other in (with_head, bare):
        assert foreign.same_bytes(run.path / "model.safetensors", other.path / "model.safetensors")


def test_buffers_that_old_files_hold_are_passed_over(tmp_path):
    path = foreign.folder(tmp_path / "theirs", "gpt2")
    tensors = load_file(path / "model.safetensors")
    plain = import_model(path, tmp_path / "plain")
    mask = torch.ones(1, 1, 97, 97, dtype=torch.bool).tril()
    old = {
        "transformer.h.0.attn.bias": mask,
        "transformer.h.0.attn.masked_bias": torch.tensor(-1.0),
    }
    save_file({**tensors, **old}, path / "model.safetensors")
    run = import_model(path, tmp_path / "run")
    assert foreign.same_bytes(run.path / "model.safetensors", plain.path / "model.safetensors")


@pytest.mark.parametrize("old", [True, False])
def test_settings_are_read_as_older_and_newer_versions_write_them(old, tmp_path):
    path = foreign.folder(tmp_path / "theirs", "llama llama3")
    file = path / "config.json"
    config = json.loads(file.read_text())
    rope = config.pop("rope_parameters")
    if old:
        config["rope_theta"] = rope.pop("rope_theta")
        config["rope_scaling"] = {"type": rope.pop("rope_type"), **rope}
        file.write_text(json.dumps(config))
    model = import_model(path, tmp_path / "run").config.model
    assert (model["rope_base"], model["rope_scaling"]) == (500.0, "llama3:8,1,4,37")


def test_what_a_chat_needs_is_kept(tmp_path):
    path = foreign.folder(tmp_path / "theirs")
    tokenizer = foreign.tokenizer()
    tokenizer.chat_template = "{{ messages }}"
    tokenizer.save_pretrained(path)
    run = import_model(path, tmp_path / "run")
    assert run.config.data["imported"]["chat_template"] == "{{ messages }}"
    export_model(run.path, tmp_path / "out")
    assert hf.AutoTokenizer.from_pretrained(tmp_path / "out").chat_template == "{{ messages }}"


@torch.no_grad()
def test_an_imported_model_and_theirs_find_a_text_equally_likely(tmp_path):
    model = foreign.build("llama one group")
    run = import_model(foreign.save(model, tmp_path / "theirs"), tmp_path / "run")
    loaded = load(run.path)
    ids = torch.tensor([loaded.tokenizer.prompt_ids(foreign.TEXT)])
    theirs = model(ids, labels=ids).loss.item()
    logits = loaded.model(ids)[:, :-1]
    ours = torch.nn.functional.cross_entropy(logits.flatten(0, 1), ids[:, 1:].flatten()).item()
    assert math.isclose(ours, theirs, abs_tol=1e-4)
