"""Build a Transformer from its attention up, and see what every head attends to.

Train a model on a text, or on pairs of sentences. The result is a run: a model, its tokenizer and
its config, stored in a folder. `glasshead train` makes the same.

    import glasshead, torch

    run = glasshead.train("poems.txt", preset="nano", out="runs/poems", steps=20)
    run = glasshead.load("runs/poems")
    run.model, run.tokenizer, run.config, run.metrics

What takes a run also takes its path.

    print(glasshead.generate(run, "春江", max_tokens=50, temperature=0.8))
    print(glasshead.translate("runs/de-en", "Ein Hund rennt."))

See what its heads attend to. Every weight is exact, and the model runs on its usual fast kernels.

    trace = glasshead.look(run, "春江潮水连海平")
    trace.row(layer=1, head=0, query=-1)        # weights of the last token; they sum to 1
    trace.top(layer=1, head=0, query=-1, k=3)   # the tokens with the largest weights
    trace.show()                                # the interactive page, in a notebook
    trace.save("poems.glass")                   # one file ...
    glasshead.open_glass("poems.glass")         # ... which is opened without reading it whole

The same for any module of yours or of the transformers library, however you call it; and what it
computes without some heads.

    ids = torch.tensor([run.tokenizer.prompt_ids("春江潮水")])
    with glasshead.observing(run.model) as trace:
        run.model(ids)
    trace.weights(layer=0)                      # (B, H, T, S)
    with glasshead.ablating(run.model, heads=[(1, 0)]):
        run.model(ids)

What every head does, with proofs.

    glasshead.heads(run, "春江潮水" * 60, tokens=48, draws=2).heads("induction")

Why it gives its answer: what every head adds, and every token that the head looks at.

    glasshead.why(run, "春江潮水连海").attribution.edges[:3]

Models come from the transformers library and go there; its folders also load directly.

    glasshead.import_model("models/gpt2", "runs/gpt2")
    glasshead.export_model("runs/gpt2", "models/mine")
    glasshead.load("models/mine")

A reader of the embedded world answers what a pronoun stands for, and says what it cannot know.

    reader = glasshead.train(task="refer", out="runs/reader", steps=20)
    print(glasshead.ask(reader, "恐龙饿坏了。").outside)     # 'unknown': a word it has not learned

Attention that you wrote yourself is checked: right, or which mistake it is.

    def attention(q, k, v):
        return (q @ k.mT).softmax(-1) @ v

    glasshead.check(attention).mistakes[0].name     # 'scale-missing'

A mistake is one line and a hint.

    try:
        glasshead.load("runs/peoms")
    except glasshead.GlassheadError as error:
        print(error, error.hint, sep="\\n")

Classes to build with: `MultiHeadAttention`, `Mask`, `GPT`, `GPTConfig`, `Transformer` and
`TransformerConfig`; more are in `glasshead.attention` and `glasshead.model`. `glasshead --help` has
the same words for the command line.
"""

from typing import TYPE_CHECKING

from glasshead.lazy import lazy_names
from glasshead.observe import viewer as _viewer

if TYPE_CHECKING:
    from glasshead.api.heads import heads
    from glasshead.api.inference import complete, generate, look, translate
    from glasshead.api.train import train
    from glasshead.api.why import why
    from glasshead.attention import Mask as Mask
    from glasshead.attention import MultiHeadAttention as MultiHeadAttention
    from glasshead.checkpoint import Run as Run
    from glasshead.checkpoint import export_model, import_model, load
    from glasshead.errors import GlassheadError as GlassheadError
    from glasshead.lab.ask import ask
    from glasshead.lab.check.report import check
    from glasshead.model import GPT as GPT
    from glasshead.model import GPTConfig as GPTConfig
    from glasshead.model import Transformer as Transformer
    from glasshead.model import TransformerConfig as TransformerConfig
    from glasshead.observe.ablation import Edge as Edge
    from glasshead.observe.ablation import ablating
    from glasshead.observe.recording import observing
    from glasshead.observe.trace import Trace as Trace
    from glasshead.observe.trace import open_glass

# Functions only: `help(glasshead)` prints everything that is listed here, and the methods that our
# classes inherit from torch.nn.Module would fill a hundred pages.
__all__ = [
    "__version__",
    "ablating",
    "ask",
    "check",
    "complete",
    "export_model",
    "generate",
    "heads",
    "import_model",
    "load",
    "look",
    "observing",
    "open_glass",
    "train",
    "translate",
    "why",
]

__version__ = "0.1.0"

_viewer.set_viewer("glasshead.serve.notebook")  # `observe` may not import the page

# Where each name is. It is imported when it is first used, so that `import glasshead` is cheap.
_NAMES = {
    "api.heads": ["heads"],
    "api.inference": ["complete", "generate", "look", "translate"],
    "api.train": ["train"],
    "api.why": ["why"],
    "attention.mask": ["Mask"],
    "attention.multihead": ["MultiHeadAttention"],
    "checkpoint": ["Run", "export_model", "import_model", "load"],
    "errors": ["GlassheadError"],
    "lab.ask": ["ask"],
    "lab.check.report": ["check"],
    "model.gpt": ["GPT", "GPTConfig"],
    "model.transformer": ["Transformer", "TransformerConfig"],
    "observe.ablation": ["Edge", "ablating"],
    "observe.trace": ["Trace", "open_glass"],
    "observe.recording": ["observing"],
}

if not TYPE_CHECKING:  # a type checker then finds names that do not exist
    __getattr__, __dir__ = lazy_names(__name__, globals(), _NAMES)
