"""Small SQuAD documents and tokenizers of every family."""

import json
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import PreTrainedTokenizerBase, PreTrainedTokenizerFast

from elasticqa.data.squad.read import Answer, Example

CONTEXT = (
    "The river Oder, 866 km long, rises in the Czech Republic and flows through Poland. It reaches the Baltic "
    "Sea near Szczecin, whose shipyards employed 12,000 people in 1970; today fewer than 2,000 work there."
)
QUESTIONS = (
    ("q1", "How long is the Oder?", "866 km"),
    ("q2", " Where does it rise?", "the Czech Republic"),
    ("q3", "How many work there today?", "fewer than 2,000"),
    ("q4", "Near which city does it reach the sea?", "Szczecin"),
)


def document() -> dict[str, Any]:
    """Return one article of one paragraph as SQuAD v1.1 JSON has it."""
    qas = [
        {"id": key, "question": text, "answers": [{"text": answer, "answer_start": CONTEXT.index(answer)}]}
        for key, text, answer in QUESTIONS
    ]
    return {"version": "1.1", "data": [{"title": "Oder", "paragraphs": [{"context": CONTEXT, "qas": qas}]}]}


def write(path: Path, content: object) -> Path:
    """Write JSON and return the path."""
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def example(question: str, context: str, start: int, end: int, key: str = "x") -> Example:
    """Return an example whose answer is ``context[start:end]``."""
    return Example(key, "", context, question, (Answer(context[start:end], start),), 0)


_TEXTS = [CONTEXT, *(text for _, text, _ in QUESTIONS), "café naïve Ünsal 東京 tower 12-34 a.b"]


def bert_tokenizer() -> PreTrainedTokenizerBase:
    """Return `[CLS] q [SEP] c [SEP]` with token types; truncates and pads by default."""
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer.train_from_iterator(
        _TEXTS, trainers.WordPieceTrainer(vocab_size=120, special_tokens=special, show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(16)
    tokenizer.enable_padding(length=16)
    return wrap(
        tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
    )


def roberta_tokenizer() -> PreTrainedTokenizerBase:
    """Return `<s> q </s></s> c </s>` over bytes, without token types."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        show_progress=False,
        special_tokens=["<s>", "<pad>", "</s>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
    )
    tokenizer.train_from_iterator(_TEXTS, trainer)
    tokenizer.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=True, add_prefix_space=False
    )
    return _without_types(tokenizer)


def mpnet_tokenizer() -> PreTrainedTokenizerBase:
    """Return `<s> q </s></s> c </s>` over word pieces; it encodes token types that its model does not take."""
    tokenizer: Tokenizer = bert_tokenizer().backend_tokenizer
    tokenizer.add_special_tokens(["<s>", "</s>"])
    begin, end = tokenizer.token_to_id("<s>"), tokenizer.token_to_id("</s>")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B:1 </s>:1", special_tokens=[("<s>", begin), ("</s>", end)]
    )
    return _without_types(tokenizer)


def unigram_tokenizer() -> PreTrainedTokenizerBase:
    """Return `<s> q </s></s> c </s>` over pieces that hold the space before a word."""
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    tokenizer.train_from_iterator(
        _TEXTS, trainers.UnigramTrainer(vocab_size=150, special_tokens=special, unk_token="<unk>", show_progress=False)
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return _without_types(tokenizer)


def wrap(tokenizer: Tokenizer, **options: object) -> PreTrainedTokenizerBase:
    """Return the transformers tokenizer around a backend."""
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **options)


def _without_types(tokenizer: Tokenizer) -> PreTrainedTokenizerBase:
    names = ["input_ids", "attention_mask"]
    return wrap(tokenizer, pad_token="<pad>", cls_token="<s>", sep_token="</s>", model_input_names=names)
