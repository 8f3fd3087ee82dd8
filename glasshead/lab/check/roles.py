"""Guess what each parameter of a function or constructor is for, by its name.

The guess only orders what is tried: what a mask means, how tensors are laid out and what is
returned is found out by calling.
"""

import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["Parameter", "by_role", "declared_polarity", "parameters", "role_of",
           "stated_polarity", "words_of"]  # fmt: skip

# The first pattern that fits a whole name, in lower case and without underscores, decides.
_ROLES: list[tuple[str, str]] = [
    ("matrix", r"(w|weight|weights|w_?)?(q|k|v|o|query|key|value|out|output|qkv|kv)"
               r"(w|weights?|matrix|proj|projection|kernel|mat)"),
    ("matrix", r"(w|weight|weights)(q|k|v|o|query|key|value|out|output|qkv|kv)(proj|projection)?"),
    ("vector", r"(b|bias)(q|k|v|o|query|key|value|out|output|qkv)|(q|k|v|o|qkv|out)bias"),
    ("params", r"params?|parameters|variables|weights|state|theta"),
    ("kv_heads", r"(n|num)?(kv|keyvalue)(heads?|groups?)|nquerygroups|numkeyvalueheads|ngroups"
                 r"|numgroups|nkvh|hkv|nkv|kvh"),
    ("heads", r"(n|num|number)?(of)?(attn|attention|query|q)?heads?|h|nh|nhead|numhead|hq"),
    ("max_len", r"(max)?(block|context|ctx|seq|sequence)?(size|len|length)(max)?|nctx|ctx|maxt"
                r"|max(position|positions|seq|sequence|context|block|target|n)"
                r"(embeddings|len|length|size)?|blocksize|contextlength|seqlen|maxpos(itions)?"),
    ("head_width", r"(d|dim|size|n)?(head|perhead|k|v|key|value|qk)(size|dim|width|channels)?"
                   r"|d(k|v|h|head|q|kv)|headdim|headsize|dimhead|keydim|valuedim|sizeperhead"),
    ("width", r"(d|dim|n|num)?(model|embd|embed|emb|hidden|embedding|state|attn|attention|feature"
              r"|features|units|channels?|in|out|input|output|query|width|inner|context|memory|mem|enc"
              r"|encoder|cross|source|src)"
              r"(size|dim|dims|width|features|units|channels)?|dim|d|c|e|units|features|width"
              r"|din|dout|nin|nout|nembd|nstate"),
    ("layers", r"(n|num)(layers?|blocks?)|depth"),
    ("vocab", r"(vocab|vocabulary)(size)?|nvocab|numtokens|ntokens?"),
    ("dropout", r".*(dropout|pdrop|droprate|dropp).*|p|rate|drop"),
    ("training", r"(is)?train(ing)?"),
    ("deterministic", r"deterministic|inference|evalmode"),
    ("causal", r"(is|use|apply)?(causal|masked|autoregressive|decoder)(mask|attention)?"),
    ("wants_weights", r"(need|return|output|with)(attn|attention|the)?(weights|attentions?|attn"
                      r"|scores|attentionscores|attentionweights)|average.*weights"),
    ("lengths", r"(key|valid|seq|sequence|src|source|kv|context)?(lens|lengths|validlen(gth)?s?)"),
    ("relative", r"rel(ative)?(pos(ition)?)?(al)?(bias|table|embeddings?|scores?)(table)?|t5bias"),
    ("mask", r".*mask(ed)?|allowed|keep|valid|visible|mayattend|attend|attnbias|attentionbias"
             r"|hidden|ignore|pad|padding|isreal|real|blocked|m|is\w*(pad|padding|token|word)s?"),
    ("bias_flag", r".*bias.*"),
    ("scale", r"scale|scaling|softmaxscale|temperature|scalefactor|attentionscale|smscale"),
    ("window", r"(sliding|attention|local|attn)?window(size|len|length)?"),
    ("lookback", r"(look)?back|before|nback|lookbehind"),
    ("softcap", r"(attn|attention|logits?|attnlogit)?(softcap|softcapping|logitcap|cap)"),
    ("slopes", r"(alibi)?slopes?"),
    ("sinks", r"(attn|attention)?sinks?(logits?|scores?)?"),
    ("batch", r"(max)?(n|num)?(batch|bs)(size|es)?"),
    ("positions", r"pos(itions?)?(ids?)?|startpos|offset|inputpos|cacheposition"),
    ("uses_cache", r"(use|with|return)(kv)?(cache|past|present)"),
    ("cache", r".*(cache|past|layerpast|kvstate|prefix).*"),
    ("angles", r"cos|sin|freqs?(cis)?|rope|rotary|rotaryemb|positionembeddings|inv_?freq"),
    ("rng", r"rngs?|generator|seed|prng(key)?|rngkey|randomkey|keyrng|gen"),
    ("config", r"config|cfg|args|hparams|conf|c_?fg|opts?|configuration"),
    ("q", r"(x|in|input|the)?(q|queries|query)(s|x|in|input|states|heads|tensor|vectors?|s_in)?"),
    ("k", r"(x|in|input|the)?(k|keys|key)(s|x|in|input|states|heads|tensor|vectors?)?"),
    ("v", r"(x|in|input|the)?(v|values|value|vals?)(s|x|in|input|states|heads|tensor|vectors?)?"),
    ("memory", r"memory|mem|context|ctx|enc.*|.*encoder.*|kv|y|keyvaluestates?|cross.*|source"
               r"|cond.*|xkv|src|other|kvinput|xenc|xcross|context_?states"),
    ("x", r"x|xs|xq|inputs?|hiddenstates?|h|hidden|tokens?|embeddings?|embeds?|seq|sequence|tgt"
          r"|inputtensor|data|residual|batch|e|words|z|inp|tensor"),
    ("ids", r"ids|idx|inputids|tokenids"),
]  # fmt: skip
# Names that mean a tensor when a function is called, a size when something is constructed.
_CALL_FIRST = ("q", "k", "v", "memory", "x", "ids")


@dataclass(frozen=True)
class Parameter:
    name: str
    role: str  # "" if unknown
    required: bool
    default: Any
    keyword_only: bool = False
    annotation: Any = inspect.Parameter.empty


def words_of(name: str) -> str:
    """Return a name in lower case without underscores and digits' separators."""
    return re.sub(r"[_\W]", "", name).lower()


def role_of(name: str, calling: bool) -> str:
    """Return the role of a parameter of a call, or of a constructor."""
    plain = words_of(name)
    order = sorted(_ROLES, key=lambda pair: pair[0] not in _CALL_FIRST) if calling else _ROLES
    for role, pattern in order:
        if re.fullmatch(pattern, plain):
            if not calling and (role == "vector" or plain in ("hidden", "m", "valid", "weights")):
                continue
            return role
    return ""


def parameters(function: Callable[..., Any], calling: bool = True) -> list[Parameter]:
    """Return the parameters that a caller may give, without self, *args and **kwargs."""
    found: Iterable[inspect.Parameter]
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        found = _documented(function)
    kinds = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    listed = [
        Parameter(
            each.name,
            role_of(each.name, calling),
            each.default is inspect.Parameter.empty,
            None if each.default is inspect.Parameter.empty else each.default,
            each.kind is inspect.Parameter.KEYWORD_ONLY,
            each.annotation,
        )
        for each in found
        if each.kind not in kinds
    ]
    # A flag whose default is None leaves it to the module.
    listed = [
        _with_role(e, "") if e.role == "causal" and e.default is None and not e.required else e
        for e in listed
    ]
    return _complete(listed) if calling else listed


def _documented(function: Callable[..., Any]) -> Iterable[inspect.Parameter]:
    """Read the signature of a built-in function from the first lines of its documentation."""
    match = re.match(r"\s*\w+(\([^()]*\))", inspect.getdoc(function) or "")
    if not match:
        return []
    names: dict[str, Any] = {}
    try:
        exec(f"def function{match[1]}: ...", names)  # no name in it is called
    except (SyntaxError, NameError):
        return []
    return inspect.signature(names["function"]).parameters.values()


def _complete(listed: list[Parameter]) -> list[Parameter]:
    """Give roles by their order to parameters whose names say nothing: q, k, v; or x."""
    for n, each in enumerate(listed):
        if each.role == "x" and words_of(each.name) == "h" and n:
            listed[n] = _with_role(each, "heads")
    roles = {each.role for each in listed}
    tensors = [n for n, each in enumerate(listed) if each.required and each.role in ("", "x", "h")]
    out = list(listed)
    order: tuple[str, ...] = ()
    if not roles & {"q", "k", "v", "ids"} and len(tensors) == 3:
        order = ("q", "k", "v")
    elif not roles & {"q", "x", "ids"} and tensors:
        order = ("x", "memory")
    for n, role in zip(tensors, order, strict=False):
        out[n] = _with_role(listed[n], role)
    if "q" in roles and not roles & {"k", "v", "memory"} and "x" not in roles:
        out = [_with_role(each, "x") if each.role == "q" else each for each in out]
    return out


def _with_role(each: Parameter, role: str) -> Parameter:
    rest = (each.required, each.default, each.keyword_only, each.annotation)
    return Parameter(each.name, role, *rest)


# What a text about a mask says, and what True, 1 or "set" then means.
_KEEP_WORDS = (
    r"may attend|can attend|to attend|attended|attend to|allowed|keep|kept|visible|real|valid"
    r"|not masked|unmasked|participate|see\b|look at|attends?\b|takes? part"
    r"|(?:may|can) (?:be )?(?:look|seen)|looked at"
)
_HIDE_WORDS = (
    r"masked|hidden|hide|ignore[ds]?|blocked|padding|pad\b|not attend|disallow|forbidden|excluded"
    r"|not allowed|no attention|invisible|future|cannot attend|must not|may not"
    r"|(?:not|cannot) (?:be )?(?:look|seen?)"
)
_NOT = r"(?:not|cannot|never|must not|may not|no) "
_DENIED = r"(?:not|cannot|never|must not|may not|no) (?!masked|hidden|ignored|blocked)"
_TRUE = r"\b(?:true|1s?|ones?|nonzero|non-zero)\b"
_FALSE = r"\b(?:false|0s?|zeros?)\b"
_LINK = r"(?:(?!\b(?:true|false|0|1)\b)[^.,;]){0,60}?"
_DECLARED = {
    "hide": re.compile(
        rf"{_TRUE}{_LINK}(?:{_NOT}{_LINK}(?:{_KEEP_WORDS})|{_HIDE_WORDS})"
        rf"|{_FALSE}(?!{_LINK}{_DENIED}){_LINK}(?:{_KEEP_WORDS})",
        re.I,
    ),
    "keep": re.compile(
        rf"{_TRUE}{_LINK}(?:{_KEEP_WORDS})"
        rf"|{_FALSE}(?!{_LINK}(?:not masked|unmasked)){_LINK}(?:{_NOT}|{_HIDE_WORDS})",
        re.I,
    ),
}
_KEEP_NAMES = (
    r"allowed|keep|valid|visible|mayattend|attend|attentionmask|isreal|real|.*keepmask"
    r"|is\w*(token|word)s?"
)
_HIDE_NAMES = r"hidden|ignore|blocked|(.*)?keypaddingmask|pad|ispad|.*padmask|paddingmask|masked"


_ADDED = re.compile(
    r"\badditive\b|added to (?:the )?(?:\w+ )?(?:scores|logits)|0 (?:or|for|and) .{0,30}negative"
    r"|(?:large|big) negative|0 (?:or|and) (?:-|minus |negative )inf",
    re.I,
)


def declared_polarity(name: str, text: str) -> str:
    """Return what True means in a mask as its text or name says: "keep", "hide", "add" or "".

    >>> declared_polarity("mask", "mask: (T, S), True = may attend")
    'keep'
    >>> declared_polarity("mask", "True where a key must not be attended to")
    'hide'
    >>> declared_polarity("mask", "mask: 0 where attention is not allowed")
    'keep'
    >>> declared_polarity("mask", "mask: added to the scores")
    'add'
    """
    if stated := stated_polarity(name, text):
        return stated
    plain = words_of(name)
    if re.fullmatch(_KEEP_NAMES, plain):
        return "keep"
    return "hide" if re.fullmatch(_HIDE_NAMES, plain) else ""


def stated_polarity(name: str, text: str) -> str:
    """Return the polarity that the text states, whatever the name suggests."""
    for part in (*_passages(name, text), *_sentences(text)):
        part = re.sub(r"[`*\s]+", " ", part)
        if _ADDED.search(part.partition("#")[0]):
            return "add"
        found = [(m.start(), kind) for kind, rule in _DECLARED.items() if (m := rule.search(part))]
        if found:
            return min(found, key=lambda pair: (pair[0], pair[1] != "hide"))[1]
    return ""


def _passages(name: str, text: str) -> Iterator[str]:
    """Yield what stands after a parameter's name, up to the next parameter or an empty line."""
    lines = text.splitlines()
    for n, line in enumerate(lines):
        if not re.search(rf"\b{re.escape(name)}\b.*(:|=|#)", line):
            continue
        passage = [line]
        for after in lines[n + 1 : n + 9]:
            if not after.strip() or re.match(r"\s*\w+( \([^)]*\))?:", after) or "#" in after:
                break
            passage.append(after)
        yield " ".join(passage)


def _sentences(text: str) -> Iterator[str]:
    """Yield the sentences that are about a mask."""
    for sentence in re.split(r"(?<=[.;])\s|\n\s*\n", text):
        if re.search(r"mask|attend", sentence, re.I):
            yield sentence


def by_role(listed: list[Parameter]) -> Mapping[str, Parameter]:
    """Return the first parameter of each role."""
    return {each.role: each for each in reversed(listed) if each.role}
