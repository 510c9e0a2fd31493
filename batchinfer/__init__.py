"""batchinfer: run an LLM or embedding job over a JSONL file: full, exact, frugal, plain."""

from typing import Final

__version__: Final = "0.1.0"
