"""The error of a file that cannot be imported."""

from pathlib import Path


class ImportFormatError(ValueError):
    """A file that cannot be imported; the message is one line with file, position and rule."""

    def __init__(self, path: Path, place: str, problem: str) -> None:
        self.path = path
        self.place = place
        message = f"{path}: {place}: {problem}" if place else f"{path}: {problem}"
        # Names and values may contain line breaks.
        super().__init__(" ".join(message.split()))
