"""Folders with tiny models of the transformers library, each with a tokenizer of another kind."""

import torch
import transformers
from tokenizers import (
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

TEXT = "The quick cat sat on the mat; it's happy. 小猫饿了，它在睡。"


def gpt2(path):
    """Byte-level BPE: tokens are parts of characters."""
    inner = Tokenizer(models.BPE())
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<|endoftext|>"], show_progress=False,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
    )  # fmt: skip
    inner.train_from_iterator([TEXT] * 3, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|endoftext|>"
    )
    config = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_positions=128, n_embd=24, n_layer=2, n_head=3,
        bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return _saved(path, transformers.GPT2LMHeadModel, config, tokenizer)


def bert(path):
    """Wordpieces without spaces, and marks at both ends."""
    inner = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    inner.normalizer = normalizers.BertNormalizer()
    inner.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    inner.train_from_iterator(
        [TEXT] * 3,
        trainers.WordPieceTrainer(vocab_size=70, special_tokens=specials, show_progress=False),
    )
    inner.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer), hidden_size=24, num_hidden_layers=2, num_attention_heads=3,
        intermediate_size=29, max_position_embeddings=64,
    )  # fmt: skip
    return _saved(path, transformers.BertForMaskedLM, config, tokenizer)


def t5(path):
    """Encoder and decoder; sentencepieces with a mark for the space before them."""
    inner = Tokenizer(models.Unigram())
    inner.pre_tokenizer = pre_tokenizers.Metaspace()
    inner.decoder = decoders.Metaspace()
    trainer = trainers.UnigramTrainer(
        vocab_size=70, special_tokens=["<pad>", "</s>", "<unk>"], unk_token="<unk>",
        show_progress=False,
    )  # fmt: skip
    inner.train_from_iterator([TEXT] * 3, trainer)
    inner.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 1)]
    )
    names = {"pad_token": "<pad>", "eos_token": "</s>", "unk_token": "<unk>"}
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, **names)
    config = transformers.T5Config(
        vocab_size=len(tokenizer), d_model=24, d_kv=8, d_ff=29, num_layers=2, num_heads=3,
        decoder_start_token_id=0, eos_token_id=1, pad_token_id=0,
    )  # fmt: skip
    return _saved(path, transformers.T5ForConditionalGeneration, config, tokenizer)


MAKERS = {"gpt2": gpt2, "bert": bert, "t5": t5}


def eager(path, text, head):
    """A head of the last layer as the library gives it; of T5, of its cross-attention."""
    tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    ids = torch.tensor([tokenizer(text)["input_ids"]])
    if path.name != "t5":
        model = transformers.AutoModel.from_pretrained(path, attn_implementation="eager").eval()
        with torch.no_grad():
            return model(ids, output_attentions=True).attentions[-1][0, head]
    kind = transformers.AutoModelForSeq2SeqLM
    model = kind.from_pretrained(path, attn_implementation="eager").eval()
    with torch.no_grad():
        said = model.generate(ids, max_new_tokens=256, num_beams=1, do_sample=False)
        found = model(ids, decoder_input_ids=said[:, :-1], output_attentions=True)
    return found.cross_attentions[-1][0, head]


def _saved(path, kind, config, tokenizer):
    torch.manual_seed(0)
    kind(config).save_pretrained(path)
    tokenizer.save_pretrained(path)
    return path
