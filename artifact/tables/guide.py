"""The answer of ``guide`` in, what a reader wants first out."""

from typing import Any

from rich.console import Console
from rich.markup import escape


def guide(answer: dict[str, Any], console: Console) -> None:
    """Show what the guide answers for each model, and where it was written."""
    for model, sentences in answer["answer"].items():
        console.print(f"[bold]{escape(model)}[/bold]: {escape(' '.join(sentences))}\n")
    console.print(
        f"{answer['evidence']}, {len(answer['contrasts'])} contrasts: {escape(answer['file'])}", soft_wrap=True
    )
