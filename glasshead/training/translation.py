"""Translation: a Transformer learns to say in one language what it reads in another."""

from collections.abc import Callable, Sequence
from copy import copy
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from glasshead.errors import ConfigError, InputError
from glasshead.model.transformer import Transformer
from glasshead.text.batches import PairBatch, PairBatches, Rows
from glasshead.text.bpe_dropout import SampledPieces
from glasshead.text.pairs import Pair, bleu_words
from glasshead.text.sources import Report, Skipped
from glasshead.text.table import Ids
from glasshead.text.tokenizer import BPETokenizer, Tokenizer
from glasshead.training.config import TrainConfig
from glasshead.training.dataset import Context, Dataset, Sources, TrainingData, Translate
from glasshead.training.language import fitting_vocabulary
from glasshead.training.parallel_corpus import PairConfig, ParallelCorpus, read_parallel_corpus

__all__ = ["SPECIALS", "PairDataset", "TranslationTask", "bleu", "disagreement"]

SPECIALS = ("<pad>", "<bos>", "<eos>")
SAMPLES = 3  # translations that are shown at each evaluation


class Sentence(NamedTuple):
    """A pair and its ids."""

    pair: Pair
    source: Ids
    target: Ids


class Step(NamedTuple):
    """One batch where the model is, and how many tokens it holds, padding left out."""

    batch: PairBatch
    tokens: int


class TranslationTask:
    """Predict each token of a target from its source and the tokens before it."""

    alike = False

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
        training = self._fitting(parts.training, "training", report)
        held = parts.validation[:: -(-len(parts.validation) // config.eval_pairs)]
        self._held = self._fitting(held, "validation", report)
        self._batches = self._batched(training, seed, self._spelling(training, seed))
        held_batches = self._batched(self._held, seed)
        self._held_batches = [held_batches.at(i) for i in range(held_batches.steps_per_epoch)]
        self._samples: str | None = None

    def batch(self, number: int) -> Step:
        batch = self._batches.at(number)
        pad = self.model.config.pad
        tokens = int((batch.source != pad).sum() + (batch.target_out != pad).sum())
        return Step(self._on_device(batch), tokens)

    def tokens(self, step: Step) -> int:
        return step.tokens

    def loss(self, step: Step) -> Tensor:
        source, target_in, targets = _sides(step.batch)
        if self.config.rdrop:  # every pair twice: dropout leaves out different things
            source, target_in = (torch.cat([ids, ids]) for ids in (source, target_in))
        logits = self.model(source, target_in).float()  # (B, T, V)
        pad, smoothing = self.model.config.pad, self.config.label_smoothing
        twice = torch.cat([targets, targets]) if self.config.rdrop else targets
        loss = F.cross_entropy(
            logits.flatten(0, 1), twice.flatten(), ignore_index=pad, label_smoothing=smoothing
        )
        if self.config.rdrop:
            # Half of R-Drop's sum of two losses and a KL, so that it is still nats a token.
            one, other = logits.chunk(2)
            loss = loss + self.config.rdrop * disagreement(one, other, targets != pad) / 4
        return loss

    def compile(self) -> None:
        self.model.compile()

    def share(self, step: Step, rank: int, size: int) -> tuple[Step, Tensor | float]:
        sides = _sides(step.batch)
        part = PairBatch(*(ids[rank::size] for ids in sides))
        if not len(part.source):
            return step, 0.0
        mine, every = ((t != self.model.config.pad).sum() for t in (part.target_out, sides[2]))
        return Step(part, step.tokens), mine / every

    def with_model(self, model: nn.Module) -> "TranslationTask":
        assert isinstance(model, Transformer)
        other = copy(self)
        other.model = model
        return other

    def evaluate(self) -> dict[str, float]:
        """The surprise in nats a token, without smoothing; BLEU where something translates."""
        sums, tokens, pad = [], 0, self.model.config.pad
        for batch in self._held_batches:
            source, target_in, targets = _sides(self._on_device(batch))
            logits = self.model(source, target_in).float()
            sums.append(
                F.cross_entropy(
                    logits.flatten(0, 1), targets.flatten(), ignore_index=pad, reduction="sum"
                )
            )
            tokens += int((batch.target_out != pad).sum())
        found = {"val_loss": torch.stack(sums).double().sum().item() / tokens}
        if self._translate:
            found["bleu"] = self._bleu(self._translate)
        return found

    def sample(self) -> str | None:
        return self._samples

    def _bleu(self, translate: Translate) -> float:
        sources = [sentence.source.tolist() for sentence in self._held]
        said = [self.tokenizer.decode(ids) for ids in translate(self.model, sources)]
        pairs = [sentence.pair for sentence in self._held]
        self._samples = "\n\n".join(
            f"{pair.source}\n= {pair.target}\n> {text}"
            for pair, text in zip(pairs[:SAMPLES], said, strict=False)
        )
        return bleu(said, [pair.target for pair in pairs])

    def _fitting(self, pairs: Sequence[Pair], part: str, report: Report) -> list[Sentence]:
        """Those that fit into the model and into a batch."""
        most = min(self.model.config.max_len, self.config.max_tokens)
        kept = []
        for pair in pairs:
            source = np.array(self.tokenizer.prompt_ids(pair.source), dtype=np.int32)
            target = self.tokenizer.target_ids(pair.target)
            if max(len(source), len(target) + 1) <= most:
                kept.append(Sentence(pair, source, target))
            else:
                reason = f"longer than {most} tokens"
                report.skipped.append(Skipped(pair.name, reason, pair.line))
        if not kept:
            raise InputError(
                f"none of the {len(pairs)} {part} pairs fits into {most} tokens",
                hint="raise --max-len and --max-tokens",
            )
        return kept

    def _batched(
        self,
        sentences: Sequence[Sentence],
        seed: int,
        spelled: Callable[[int], tuple[Rows, Rows]] | None = None,
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
            spelled=spelled,
        )

    def _spelling(
        self, sentences: Sequence[Sentence], seed: int
    ) -> Callable[[int], tuple[Rows, Rows]] | None:
        """How each epoch cuts its words, where chance has a say in it."""
        dropout, most = self.config.bpe_dropout, self.model.config.max_len
        if not dropout:
            return None
        if not isinstance(self.tokenizer, BPETokenizer):
            raise ConfigError(
                f"bpe_dropout ({dropout}) is for bpe, not for a {self.tokenizer.kind} tokenizer",
                hint="set it to 0",
            )
        pairs = [sentence.pair for sentence in sentences]
        sources, targets = [pair.source for pair in pairs], [pair.target for pair in pairs]
        # Seeds of their own: the order of batches is drawn by `seed` itself.
        left = SampledPieces(self.tokenizer, sources, dropout, seed + 2**40, most)
        right = SampledPieces(self.tokenizer, targets, dropout, seed + 2**41, most - 1)
        return lambda epoch: (left.at(epoch), right.at(epoch))

    def _on_device(self, batch: PairBatch) -> PairBatch:
        device = self.model.head.weight.device
        if device.type == "cpu":
            return batch
        # From pinned memory the copy runs beside the computing.
        return PairBatch(*(t.pin_memory().to(device, non_blocking=True) for t in _sides(batch)))


def _sides(batch: PairBatch) -> tuple[Tensor, Tensor, Tensor]:
    return batch.source, batch.target_in, batch.target_out


def disagreement(one: Tensor, other: Tensor, real: Tensor) -> Tensor:
    """KL(p | q) + KL(q | p) of two predictions (B, T, V), the mean over real tokens (B, T).

    >>> one = torch.tensor([[[0.0, 0.0]]])
    >>> disagreement(one, one, torch.tensor([[True]])).item()
    0.0
    """
    p, q = one.log_softmax(-1), other.log_softmax(-1)
    both = ((p.exp() - q.exp()) * (p - q)).sum(-1)  # (B, T)
    return (both * real).sum() / real.sum()


def bleu(said: Sequence[str], wanted: Sequence[str]) -> float:
    """By sacrebleu, which takes Chinese character by character."""
    from sacrebleu.metrics.bleu import BLEU

    return float(BLEU(tokenize=bleu_words(wanted)).corpus_score(list(said), [list(wanted)]).score)


class PairDataset(Dataset[PairConfig, ParallelCorpus]):
    """A Transformer learns to translate."""

    name, kind, config = "pairs", "transformer", PairConfig
    example = "glasshead train --pairs my.de my.en"
    unused = frozenset({"batch_size", "eval_batches", "pad"})
    fixed = frozenset({"lowercase"})
    measures = ("loss", "bleu")

    def model_settings(self, tokenizer: Tokenizer) -> dict[str, Any]:
        return {**super().model_settings(tokenizer), "pad": tokenizer.specials["<pad>"]}

    def read(
        self,
        sources: Sources,
        config: PairConfig,
        context: Context,
        *,
        tokenizer: Tokenizer | None = None,
        vocab_size: int | None = None,
    ) -> TrainingData[ParallelCorpus]:
        files = {name: context.kept(some) for name, some in sources.items() if some}
        report = Report()
        parts = read_parallel_corpus(files["sources"], files.get("val", []), config, report)
        for line in report.summary():
            context.listener.say(line)
        if tokenizer is None:
            sides = [side for pair in parts.training for side in (pair.source, pair.target)]
            size = vocab_size or fitting_vocabulary(sum(len(side.encode()) for side in sides))
            tokenizer = BPETokenizer.train(sides, size, SPECIALS)
        return TrainingData(tokenizer, parts, parts.fingerprint, files)

    def task(
        self,
        model: nn.Module,
        data: TrainingData[ParallelCorpus],
        config: PairConfig,
        train: TrainConfig,
        context: Context,
    ) -> TranslationTask:
        assert isinstance(model, Transformer)
        report, translator, tokenizer = Report(), context.translator, data.tokenizer
        if train.stop_on == "bleu" and translator is None:
            raise ConfigError("stop_on (bleu) needs a translator", hint="use stop_on loss")
        task = TranslationTask(
            model,
            tokenizer,
            data.data,
            config,
            seed=train.seed,
            translate=translator(tokenizer) if translator else None,
            report=report,
        )
        for line in report.summary():
            context.listener.say(line)
        return task
