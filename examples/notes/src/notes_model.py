"""The classifier of this example: a small encoder of `transformers`, and a linear head over its mean token.

Its records are token ids, which reach it as floating-point numbers like any column; 0 is padding.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from transformers import BertConfig, BertModel

CONFIG = BertConfig(
    vocab_size=64,
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=2,
    intermediate_size=64,
    max_position_embeddings=18,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)
"""Of the encoder. It is made here, and nothing is downloaded."""


class NotesClassifier(nn.Module):
    """Logits of a note from its token ids."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.encoder = BertModel(CONFIG, add_pooling_layer=False)
        self.head = nn.Linear(CONFIG.hidden_size, classes)

    def tokens(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return what the encoder makes of ids (notes, length): (notes, length, hidden), and which are a word."""
        seen = ids != 0
        seen[:, 0] = True
        return self.encoder(input_ids=ids, attention_mask=seen.long()).last_hidden_state, seen

    def forward(self, features: Tensor) -> Tensor:
        """Return logits (notes, classes) of token ids (notes, length) of any width."""
        hidden, seen = self.tokens(features.long())
        share = seen.to(hidden.dtype) / seen.sum(1, keepdim=True)
        return self.head(torch.einsum("nlh,nl->nh", hidden, share))


def build(schema: object) -> nn.Module:
    """Return the model of the plan."""
    return NotesClassifier(schema.classes)
