"""Translation: a Transformer learns to say in one language what it reads in another."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.errors import ConfigError, InputError
from glasshead.model.transformer import Transformer
from glasshead.text.base_tokenizer import Ids
from glasshead.text.batches import PairBatch, PairBatches, Rows
from glasshead.text.bpe_dropout import BPEDropout
from glasshead.text.pairs import Pair, bleu_words
from glasshead.text.sources import Report, Skipped
from glasshead.text.tokenizer import BPETokenizer, Tokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Dataset, Sources, Translate
from glasshead.training.language import pick_vocab_size
from glasshead.training.parallel_corpus import PairConfig, ParallelCorpus, read_parallel_corpus
from glasshead.training.task import Task, move_batch

__all__ = ["SPECIALS", "PairDataset", "TranslationTask", "bleu", "symmetric_kl"]

SPECIALS = ("<pad>", "<bos>", "<eos>")
SAMPLES = 3  # translations that are shown at each evaluation


class PairDataset(Dataset):
    """Pairs of sentences, from which a Transformer learns to translate."""

    name, kind, config_class = "pairs", "transformer", PairConfig
    example = "glasshead train --pairs my.de my.en"
    unused = frozenset({"batch_size", "eval_batches", "watch_heads"})
    fixed = frozenset({"lowercase"})
    metrics = ("loss", "bleu")
    config: PairConfig

    def read(self, sources: Sources, tokenizer: Tokenizer | None, vocab_size: int | None) -> None:
        save, report = self.context.save_streams, Report()
        self.sources = {name: save(files) for name, files in sources.items() if files}
        self.parts = read_parallel_corpus(
            self.sources["sources"], self.sources.get("val", []), self.config, report
        )
        self.context.say_report(report)
        if tokenizer is None:
            sides = [side for pair in self.parts.training for side in (pair.source, pair.target)]
            size = vocab_size or pick_vocab_size(sum(len(side.encode()) for side in sides))
            tokenizer = BPETokenizer.train(sides, size, SPECIALS)
        self.tokenizer, self.fingerprint = tokenizer, self.parts.fingerprint

    def excerpts(self) -> list[str]:
        return [pair.source for pair in self.parts.validation[:4]]

    def task(self, model: nn.Module, train: TrainConfig) -> "TranslationTask":
        assert isinstance(model, Transformer)
        report, translator = Report(), self.context.translator
        if train.stop_on == "bleu" and translator is None:
            raise ConfigError(
                "stop_on (bleu) needs translations, and nothing translates here",
                hint="pass a translator to Context, or use stop_on='loss'",
            )
        task = TranslationTask(
            model,
            self.tokenizer,
            self.parts,
            self.config,
            seed=train.seed,
            translate=translator(self.tokenizer) if translator else None,
            report=report,
        )
        self.context.say_report(report)
        return task


class Sentence(NamedTuple):
    """A pair and its ids."""

    pair: Pair
    source: Ids
    target: Ids


class CountedBatch(NamedTuple):
    """A batch on the model's device, and the number of its tokens without padding."""

    batch: PairBatch
    tokens: int


class TranslationTask(Task):
    """Predict each token of a target from its source and the tokens before it."""

    model: Transformer

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        parts: ParallelCorpus,
        config: PairConfig,
        *,
        seed: int,
        translate: Translate | None = None,
        report: Report | None = None,
    ) -> None:
        self.model, self.tokenizer, self.config = model, tokenizer, config
        self._translate = translate
        report = Report() if report is None else report
        training = self._encode(parts.training, "training", report)
        held = parts.validation[:: -(-len(parts.validation) // config.eval_pairs)]
        self._validation = self._encode(held, "validation", report)
        self._batches = self._make_batches(training, seed, self._sample_pieces(training, seed))
        batches = self._make_batches(self._validation, seed)
        self._validation_batches = [batches.at(i) for i in range(batches.steps_per_epoch)]
        self._samples: str | None = None

    def batch(self, number: int) -> CountedBatch:
        batch = self._batches.at(number)
        pad = self.model.config.pad
        tokens = int((batch.source != pad).sum() + (batch.target_out != pad).sum())
        return CountedBatch(move_batch(batch, self.model.head.weight.device), tokens)

    def tokens(self, counted: CountedBatch) -> int:
        return counted.tokens

    def loss(self, counted: CountedBatch) -> Tensor:
        source, target_in, targets = _sides(counted.batch)
        if self.config.rdrop:  # every pair twice, with different dropout
            source, target_in = (torch.cat([ids, ids]) for ids in (source, target_in))
        logits = self.model(source, target_in).float()  # (B, T, V)
        pad, smoothing = self.model.config.pad, self.config.label_smoothing
        twice = torch.cat([targets, targets]) if self.config.rdrop else targets
        loss = F.cross_entropy(
            logits.flatten(0, 1), twice.flatten(), ignore_index=pad, label_smoothing=smoothing
        )
        if self.config.rdrop:
            # Half of R-Drop's sum of two losses and a KL, so that the unit is nats per token.
            one, other = logits.chunk(2)
            loss = loss + self.config.rdrop * symmetric_kl(one, other, targets != pad) / 4
        return loss

    def share(
        self, counted: CountedBatch, rank: int, size: int
    ) -> tuple[CountedBatch, Tensor | float]:
        sides = _sides(counted.batch)
        part = PairBatch(*(ids[rank::size] for ids in sides))
        if not len(part.source):
            return counted, 0.0
        mine, every = ((t != self.model.config.pad).sum() for t in (part.target_out, sides[2]))
        return CountedBatch(part, counted.tokens), mine / every

    def evaluate(self) -> dict[str, float]:
        """Return the loss in nats per token without smoothing, and BLEU if something translates."""
        sums, tokens, pad = [], 0, self.model.config.pad
        device = self.model.head.weight.device
        for batch in self._validation_batches:
            source, target_in, targets = _sides(move_batch(batch, device))
            logits = self.model(source, target_in).float().flatten(0, 1)  # (B * T, V)
            sums.append(
                F.cross_entropy(logits, targets.flatten(), ignore_index=pad, reduction="sum")
            )
            tokens += int((batch.target_out != pad).sum())
        found = {"val_loss": torch.stack(sums).double().sum().item() / tokens}
        if self._translate:
            found["bleu"] = self._measure_bleu(self._translate)
        return found

    def sample(self) -> str | None:
        return self._samples

    def _measure_bleu(self, translate: Translate) -> float:
        """Translate the validation sources, and keep some translations to show."""
        sources = [sentence.source.tolist() for sentence in self._validation]
        translations = [self.tokenizer.decode(ids) for ids in translate(self.model, sources)]
        pairs = [sentence.pair for sentence in self._validation]
        self._samples = "\n\n".join(
            f"{pair.source}\n= {pair.target}\n> {text}"
            for pair, text in zip(pairs[:SAMPLES], translations, strict=False)
        )
        return bleu(translations, [pair.target for pair in pairs])

    def _encode(self, pairs: Sequence[Pair], part: str, report: Report) -> list[Sentence]:
        """Tokenise the pairs that fit into the model and into a batch."""
        most = min(self.model.config.max_len, self.config.max_tokens)
        sentences = []
        for pair in pairs:
            source = np.array(self.tokenizer.prompt_ids(pair.source), dtype=np.int32)
            target = self.tokenizer.target_ids(pair.target)
            if max(len(source), len(target) + 1) <= most:
                sentences.append(Sentence(pair, source, target))
            else:
                reason = f"longer than {most} tokens"
                report.skipped.append(Skipped(pair.name, reason, pair.line))
        if not sentences:
            raise InputError(
                f"none of the {len(pairs)} {part} pairs fits into {most} tokens",
                hint="raise --max-len and --max-tokens",
            )
        return sentences

    def _make_batches(
        self,
        sentences: Sequence[Sentence],
        seed: int,
        encode_epoch: Callable[[int], tuple[Rows, Rows]] | None = None,
    ) -> PairBatches:
        pad, bos, eos = (self.tokenizer.specials[name] for name in SPECIALS)
        return PairBatches(
            [sentence.source for sentence in sentences],
            [sentence.target for sentence in sentences],
            max_tokens=self.config.max_tokens,
            seed=seed,
            pad=pad,
            bos=bos,
            eos=eos,
            encode_epoch=encode_epoch,
        )

    def _sample_pieces(
        self, sentences: Sequence[Sentence], seed: int
    ) -> Callable[[int], tuple[Rows, Rows]] | None:
        """Return what splits the words of an epoch at random; None without bpe_dropout."""
        dropout, most = self.config.bpe_dropout, self.model.config.max_len
        if not dropout:
            return None
        if not isinstance(self.tokenizer, BPETokenizer):
            raise ConfigError(
                f"bpe_dropout ({dropout}) needs a bpe tokenizer, not a {self.tokenizer.kind} one",
                hint="use --bpe-dropout 0",
            )
        pairs = [sentence.pair for sentence in sentences]
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        # Other seeds than that of the order of batches.
        left = BPEDropout(self.tokenizer, sources, dropout, seed + 2**40, most)
        right = BPEDropout(self.tokenizer, targets, dropout, seed + 2**41, most - 1)
        return lambda epoch: (left.at(epoch), right.at(epoch))


def _sides(batch: PairBatch) -> tuple[Tensor, Tensor, Tensor]:
    return batch.source, batch.target_in, batch.target_out


def symmetric_kl(one: Tensor, other: Tensor, real: Tensor) -> Tensor:
    """Return KL(p | q) + KL(q | p) of two logits (B, T, V), averaged over the real tokens (B, T).

    >>> one = torch.tensor([[[0.0, 0.0]]])
    >>> symmetric_kl(one, one, torch.tensor([[True]])).item()
    0.0
    """
    p, q = one.log_softmax(-1), other.log_softmax(-1)
    both = ((p.exp() - q.exp()) * (p - q)).sum(-1)  # (B, T)
    return (both * real).sum() / real.sum()


def bleu(translations: Sequence[str], references: Sequence[str]) -> float:
    """Measure with sacrebleu, Chinese character by character."""
    from sacrebleu.metrics.bleu import BLEU

    metric = BLEU(tokenize=bleu_words(references))
    return float(metric.corpus_score(list(translations), [list(references)]).score)
