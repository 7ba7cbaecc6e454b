"""What is wrong with a file that somebody else's program wrote."""

from pathlib import Path


class ImportFormatError(ValueError):
    """A file cannot be taken; one line with the file, the place in it, and the rule that it breaks."""

    def __init__(self, path: Path, place: str, problem: str) -> None:
        self.path = path
        self.place = place
        message = f"{path}: {place}: {problem}" if place else f"{path}: {problem}"
        # A name or a value may hold a line break; the message stays one line.
        super().__init__(" ".join(message.split()))
