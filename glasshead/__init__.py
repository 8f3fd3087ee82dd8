"""Build a Transformer from its attention up, and see what every head attends to.

A run is a folder that `glasshead train` or `glasshead import` made. Load it once and use it; what
takes a run also takes its path.

    import glasshead, torch

    poems = glasshead.load("runs/poems")
    poems.model, poems.tokenizer, poems.config
    print(glasshead.complete(poems, "春江", max_tokens=50, temperature=0.8))
    print(glasshead.translate("runs/de-en", "Ein Hund rennt."))

Look at what its heads looked at. Every weight is exact, and the model runs as fast as without.

    seen = glasshead.look(poems, "春江潮水连海平")
    seen.row(layer=1, head=0, query=-1)        # weights of the last token; they sum to 1
    seen.top(layer=1, head=0, query=-1, k=3)   # the tokens it looked at most
    seen.show()                                # the page on it, in a notebook
    seen.save("poems.glass")                   # one file ...
    glasshead.open_glass("poems.glass")        # ... which opening does not read

The same for any module of yours, or of the transformers library, whatever you call it with:

    ids = torch.tensor([poems.tokenizer.prompt_ids("春江潮水")])
    with glasshead.observing(poems.model) as seen:
        poems.model(ids)
    seen.weights(layer=0)                      # (B, H, T, S)

Models come from the transformers library and go there; a folder of it also loads as it is.

    glasshead.import_model("models/gpt2", "runs/gpt2")
    glasshead.export_model("runs/gpt2", "models/mine")
    glasshead.load("models/mine")

A mistake is one line and a hint.

    try:
        glasshead.load("runs/peoms")
    except glasshead.GlassheadError as error:
        print(error, error.hint, sep="\\n")

Layers to build with lie in `glasshead.attention` and `glasshead.model`; `glasshead --help` has the
same words for the command line.
"""

from typing import TYPE_CHECKING

from glasshead.observe import showing as _showing

if TYPE_CHECKING:
    from glasshead.checkpoint import export_model, import_model, load
    from glasshead.errors import GlassheadError as GlassheadError
    from glasshead.generation.simple import complete, look, translate
    from glasshead.observe.recording import observing
    from glasshead.observe.trace import open_glass

# GlassheadError is here as well; listed, its builtin methods would fill half of the page.
__all__ = [
    "__version__",
    "complete",
    "export_model",
    "import_model",
    "load",
    "look",
    "observing",
    "open_glass",
    "translate",
]

__version__ = "0.1.0"

_showing.shown_by("glasshead.serve.notebook")  # who looks knows no page

# Where each name lies. It is fetched when it is first asked for: `import glasshead` is cheap.
_PLACES = {
    "GlassheadError": "errors",
    "complete": "generation.simple",
    "export_model": "checkpoint",
    "import_model": "checkpoint",
    "load": "checkpoint",
    "look": "generation.simple",
    "observing": "observe.recording",
    "open_glass": "observe.trace",
    "translate": "generation.simple",
}

if not TYPE_CHECKING:  # a name that there is not is then seen before anything runs

    def __getattr__(name: str) -> object:
        from importlib import import_module

        if name not in _PLACES:
            raise AttributeError(f"module 'glasshead' has no attribute '{name}'")
        found = getattr(import_module(f"glasshead.{_PLACES[name]}"), name)
        globals()[name] = found
        return found

    def __dir__() -> list[str]:
        ways = {"__getattr__", "__dir__", "TYPE_CHECKING"}
        own = {name for name in globals() if name[:1] != "_" or name[:2] == "__"}
        return sorted({*own, *_PLACES} - ways)
