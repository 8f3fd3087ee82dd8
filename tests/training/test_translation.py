"""Pairs become a task: its loss, its evaluations, and runs of it that can be stopped anywhere."""

import math
import os
import signal

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from glasshead.checkpoint import load, parameters
from glasshead.errors import ConfigError, InputError
from glasshead.generation.beam import greedy_decoder
from glasshead.model.transformer import Transformer, TransformerConfig
from glasshead.text.pairs import Pair
from glasshead.text.sources import Report
from glasshead.text.tokenizer import BPETokenizer, ByteTokenizer
from glasshead.training.optim import hidden_matrices
from glasshead.training.parallel_corpus import PairConfig, ParallelCorpus
from glasshead.training.translation import SPECIALS, TranslationTask, bleu, symmetric_kl
from tests.training.cases import metrics, same_ending
from tests.training.pair_cases import pair_trainer, toy_pairs
from tests.training.test_kill import CALLS, die_at_call, forkserver
from tests.training.test_loop import Interrupts

# All that chance has a hand in, and all that a checkpoint must hold.
ALLOW_ALL = {
    "ema": 0.9,
    "bpe_dropout": 0.2,
    "rdrop": 1.0,
    "label_smoothing": 0.1,
    "dropout": 0.2,
    "stop_on": "bleu",
}


def new_task(config=None, pairs=None, model=None, **changes):
    config, pairs = config or PairConfig(max_tokens=97), pairs or toy_pairs(53)
    sides = [side for pair in pairs for side in (pair.source, pair.target)]
    tokenizer = BPETokenizer.train(sides, 283, SPECIALS)
    torch.manual_seed(7)
    shape = {"max_len": 37, "n_layers": 1, "n_heads": 2, "d_model": 14, **(model or {})}
    made = Transformer(TransformerConfig(vocab_size=tokenizer.vocab_size, **shape))
    return TranslationTask(
        made, tokenizer, ParallelCorpus(pairs[:41], pairs[41:]), config, seed=5, **changes
    )


def log_probs(task, source, target_in):
    return task.model(source, target_in).detach().double().log_softmax(-1)


@pytest.mark.parametrize("smoothing", [0.0, 0.1, 0.3])
def test_the_loss_is_the_smoothed_surprise_of_real_tokens(smoothing):
    task = new_task(PairConfig(max_tokens=97, label_smoothing=smoothing))
    task.model.eval()
    step = task.batch(3)
    source, target_in, targets = (
        step.batch.source,
        step.batch.target_in,
        step.batch.target_out,
    )
    assert (targets == 0).any()
    logs = log_probs(task, source, target_in).numpy()
    V, by_hand = logs.shape[-1], []
    for b, t in np.ndindex(*targets.shape):
        if targets[b, t] != 0:
            wanted = np.full(V, smoothing / V)
            wanted[targets[b, t]] += 1 - smoothing
            by_hand.append(-(wanted * logs[b, t]).sum())
    assert task.loss(step).item() == pytest.approx(np.mean(by_hand), rel=1e-5)
    assert task.tokens(step) == int((source != 0).sum()) + len(by_hand)


def test_two_dropouts_disagreement_is_added_with_its_weight():
    """With dropout off both are alike and R-Drop adds nothing; with it, as much as it weighs."""
    losses = {}
    for weight in (0.0, 1.0, 3.0):
        task = new_task(PairConfig(max_tokens=97, rdrop=weight), model={"dropout": 0.3})
        torch.manual_seed(1)
        train = task.loss(task.batch(0)).item()
        task.model.eval()
        losses[weight] = train, task.loss(task.batch(0)).item()
    assert losses[3.0][1] == pytest.approx(losses[0.0][1], abs=1e-6)
    plain = losses[1.0][0] - (losses[3.0][0] - losses[1.0][0]) / 2
    assert losses[3.0][0] > losses[1.0][0] > plain
    assert plain == pytest.approx(losses[0.0][0], abs=0.5)


@given(st.integers(0, 2**31))
def test_disagreement_is_both_kl_divergences_over_real_tokens(seed):
    generator = torch.Generator().manual_seed(seed)
    one, other = (torch.randn(2, 3, 5, generator=generator).double() for _ in range(2))
    real = torch.tensor([[True, True, False], [True, False, False]])
    p, q = one.softmax(-1), other.softmax(-1)
    both = (p * (p / q).log()).sum(-1) + (q * (q / p).log()).sum(-1)
    assert symmetric_kl(one, other, real).item() == pytest.approx(both[real].mean().item())
    assert symmetric_kl(one, one, real).item() == 0


def test_an_evaluation_is_the_mean_surprise_a_token_and_the_bleu_of_greedy_translations():
    pairs = toy_pairs(53)
    task = new_task(PairConfig(max_tokens=97, label_smoothing=0.2), pairs)
    task._translate = greedy_decoder(task.tokenizer, max_tokens=9)
    task.model.eval()
    with torch.no_grad():
        found = task.evaluate()
        surprises, said = [], []
        for pair in pairs[41:]:  # one by one, without padding
            source, target = map(task.tokenizer.encode_ids, (pair.source, pair.target))
            ids = [1, *target.tolist(), 2]
            logs = log_probs(task, torch.tensor([source.tolist()]), torch.tensor([ids[:-1]]))
            surprises += [-logs[0, t, token].item() for t, token in enumerate(ids[1:])]
            [out] = greedy_decoder(task.tokenizer, 9)(task.model, [source.tolist()])
            said.append(task.tokenizer.decode(out))
    assert found["val_loss"] == pytest.approx(np.mean(surprises), abs=1e-5)
    assert found["bleu"] == bleu(said, [pair.target for pair in pairs[41:]])
    assert task.sample().splitlines()[:3] == [
        pairs[41].source,
        f"= {pairs[41].target}",
        f"> {said[0]}".splitlines()[0],
    ]


def test_an_evaluation_takes_so_many_pairs_from_all_over():
    task = new_task(PairConfig(max_tokens=97, eval_pairs=5))
    assert [sentence.pair.line for sentence in task._validation] == [42, 45, 48, 51]


def test_bleu_knows_its_ends_and_counts_chinese_by_character():
    assert bleu(["the cat is on the mat"] * 2, ["the cat is on the mat"] * 2) == pytest.approx(100)
    assert bleu(["no such words here at all"], ["the cat is on the mat"]) < 10
    assert bleu(["小猫在公园里追蝴蝶玩"], ["小猫在公园里追逐蝴蝶"]) > 20


@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_batches_depend_on_their_number_alone(dropout):
    config = PairConfig(max_tokens=97, bpe_dropout=dropout)
    one, two = new_task(config), new_task(config)
    n = one._batches.steps_per_epoch
    for number in (3 * n + 1, 2, n, 0):
        early, late = one.batch(number), two.batch(number)
        assert torch.equal(early.batch.source, late.batch.source)
        assert torch.equal(early.batch.target_out, late.batch.target_out)
        two.batch(number + 5 * n)


def test_dropped_merges_change_the_ids_from_epoch_to_epoch_but_never_the_text():
    task = new_task(PairConfig(max_tokens=97, bpe_dropout=0.3))
    n, texts, spellings = task._batches.steps_per_epoch, [], set()
    for epoch in range(3):
        said = []
        for number in range(epoch * n, (epoch + 1) * n):
            batch = task.batch(number).batch
            for side in (batch.source, batch.target_out):
                said += [task.tokenizer.decode(row) for row in side]
            spellings.add(tuple(batch.source.flatten().tolist()))
        texts.append(sorted(said))
    assert texts[0] == texts[1] == texts[2]
    wanted = [text for pair in toy_pairs(53)[:41] for text in (pair.source, pair.target)]
    assert texts[0] == sorted(wanted)
    assert len(spellings) == 3 * n


def test_dropped_merges_never_make_a_pair_too_long_for_the_model():
    task = new_task(PairConfig(max_tokens=97, bpe_dropout=0.9), model={"max_len": 11})
    widths = [task.batch(number).batch for number in range(20)]
    assert max(max(b.source.shape[1], b.target_in.shape[1]) for b in widths) <= 11


def test_pairs_too_long_for_the_model_are_left_out_and_named():
    pairs = toy_pairs(53)
    pairs[7] = Pair("ka " * 40 + "lo", "OL", 8, "toy.tsv")
    report = Report()
    task = new_task(pairs=pairs, report=report)
    assert report.summary() == ["skipped 1, longer than 37 tokens: toy.tsv:8"]
    seen = sum(len(task.batch(n).batch.source) for n in range(task._batches.steps_per_epoch))
    assert seen == 40
    with pytest.raises(InputError, match=r"none of the 41 training pairs fits into 2 tokens"):
        new_task(model={"max_len": 2})


def test_dropping_merges_needs_merges():
    pairs = toy_pairs(5)
    model = Transformer(TransformerConfig(vocab_size=259, d_model=8, n_heads=2, n_layers=1))
    with pytest.raises(
        ConfigError, match=r"bpe_dropout \(0.1\) needs a bpe tokenizer, not a byte one"
    ):
        TranslationTask(
            model,
            ByteTokenizer(SPECIALS),
            ParallelCorpus(pairs[:3], pairs[3:]),
            PairConfig(bpe_dropout=0.1),
            seed=1,
        )


def test_muon_takes_the_matrices_of_both_halves_and_no_table():
    model = new_task(model={"n_layers": 2}).model
    names = {name for name, p in model.named_parameters() if p in hidden_matrices(model)}
    assert {name.split(".")[0] for name in names} == {"encoder", "decoder"}
    # qkv, out, up and down in each block, and qkv and out of the cross-attention
    assert len(names) == 2 * 4 + 2 * 6
    assert not any("table" in name or "head." in name for name in names)


@pytest.mark.parametrize("optimizer", ["muon", pytest.param("adamw", marks=pytest.mark.deep)])
def test_a_language_of_ten_words_is_learned(tmp_path, optimizer):
    settings = {"steps": 100, "eval_every": 50, "d_model": 44, "max_tokens": 997, "lr": 0.01}
    settings |= {"n_pairs": 601, "dropout": 0.0, "weight_decay": 0.0, "optimizer": optimizer}
    pair_trainer(tmp_path, "run", **settings).train()
    lines = metrics(tmp_path / "run")
    assert [line["loss"] for line in lines if "loss" in line][-1] < 0.4
    found = [line for line in lines if "val_loss" in line]
    assert found[0]["val_loss"] == pytest.approx(math.log(283), abs=1.5)
    assert found[-1]["val_loss"] < 0.5
    assert found[-1]["bleu"] > 50


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A run with all of it that was never stopped."""
    folder = tmp_path_factory.mktemp("never")
    pair_trainer(folder, "stopped", **ALLOW_ALL).train()
    return folder / "stopped"


@pytest.mark.parametrize("step", [1, 7, 15])  # before, at and between evaluations
def test_a_stopped_run_goes_on_exactly(tmp_path, whole, step):
    stopped = pair_trainer(tmp_path, "run", Interrupts(step), **ALLOW_ALL).train()
    assert stopped.reason == "interrupted"
    pair_trainer(tmp_path, "run").train()
    same_ending(tmp_path / "run", whole)


def work(folder, name, number=0):
    often = {"save_every": 1, "log_every": 1, "eval_every": 11, "steps": 33}
    if number:
        die_at_call(folder / name, number, CALLS)
    pair_trainer(folder, name, **often, **ALLOW_ALL).train()


@pytest.mark.deep  # any kill: test_kill.py; all of the state: test_a_stopped_run_goes_on_exactly
def test_a_killed_run_ends_like_one_never_stopped(tmp_path):
    work(tmp_path, "whole")
    for number in (5, 59, 83):
        process = forkserver().Process(target=work, args=(tmp_path, "killed", number))
        process.start()
        process.join()
        assert process.exitcode == -signal.SIGKILL, "it ended before it could be killed"
    work(tmp_path, "killed")
    same_ending(tmp_path / "killed", tmp_path / "whole")


def test_what_is_evaluated_and_kept_is_the_running_mean(tmp_path):
    trainer = pair_trainer(tmp_path, "run", ema=0.9, steps=7, eval_every=7)
    before = {name: p.clone() for name, p in trainer.model.named_parameters()}
    means, seen = dict(before), []
    update, evaluate = trainer.ema.update, trainer.task.evaluate

    def by_hand(step):
        update(step)
        decay = min(0.9, step / (step + 9))
        for name, p in trainer.model.named_parameters():
            means[name] = decay * means[name] + (1 - decay) * p.detach()

    def evaluated():
        seen.append({name: p.clone() for name, p in trainer.model.named_parameters()})
        return evaluate()

    trainer.ema.update, trainer.task.evaluate = by_hand, evaluated
    trainer.train()
    for name, p in trainer.model.named_parameters():
        torch.testing.assert_close(seen[-1][name], means[name])
        assert not torch.equal(seen[-1][name], p)
    kept = parameters(load(tmp_path / "run").model)
    assert all(torch.equal(kept[name], seen[-1][name]) for name in kept)


def test_bleu_decides_what_is_best_and_when_to_stop(tmp_path):
    trainer = pair_trainer(tmp_path, "run", stop_on="bleu", patience=2, steps=1000)
    found = iter([(3.0, 1.0), (2.0, 9.0), (1.0, 8.0), (0.5, 9.0), (0.4, 50.0)])
    trainer.task.evaluate = lambda: dict(zip(("val_loss", "bleu"), next(found), strict=True))
    outcome = trainer.train()
    assert (outcome.reason, outcome.progress.step) == ("stopped early", 21)
    assert (outcome.progress.best, outcome.progress.best_step) == (
        {"val_loss": 2.0, "bleu": 9.0},
        7,
    )
    assert load(tmp_path / "run").step == 7


def test_bleu_cannot_decide_where_nothing_translates(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.training.pair_cases.greedy_decoder", None)
    with pytest.raises(ConfigError, match=r"stop_on \(bleu\) needs translations"):
        pair_trainer(tmp_path, "run", stop_on="bleu")
    trainer = pair_trainer(tmp_path, "run")
    assert trainer.task.evaluate().keys() == {"val_loss"}
    assert trainer.task.sample() is None
    assert os.listdir(tmp_path / "run")
