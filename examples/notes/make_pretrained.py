"""Trains the encoder of this example to guess words of made-up notes of no hospital, and writes its weights.

Usage: python examples/notes/make_pretrained.py FILE.safetensors

A seventh of the words is hidden, and guessed from the others (masked language modelling: Devlin et al., "BERT",
2019). Seconds on one core; the same file every time.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import nn

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE / "src")]

from make_notes import IDS, PADDING, WORDS, notes  # noqa: E402
from notes_model import NotesClassifier  # noqa: E402

HIDDEN = len(WORDS)
"""The id of a word that is to be guessed."""

STEPS, BATCH = 300, 64


def pretrained(steps: int = STEPS) -> NotesClassifier:
    """Return the model after so many steps; nothing has trained its head."""
    torch.manual_seed(0)
    model = NotesClassifier(classes=2)
    ids = torch.from_numpy(notes(4000, 0.1, seed=0)[0])
    optimizer = torch.optim.AdamW(model.encoder.parameters(), lr=2e-3)
    for _ in range(steps):
        batch = ids[torch.randint(len(ids), (BATCH,))]
        guessed = (torch.rand(batch.shape) < 1 / 7) & (batch != IDS[PADDING])
        found, _ = model.tokens(batch.masked_fill(guessed, HIDDEN))
        scores = found[guessed] @ model.encoder.embeddings.word_embeddings.weight.T
        loss = nn.functional.cross_entropy(scores, batch[guessed])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Weights of an encoder that has read notes.")
    parser.add_argument("file", type=Path)
    save_file(pretrained().state_dict(), parser.parse_args().file)
