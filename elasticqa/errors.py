"""Exceptions, exit codes, and functions that format values and errors on one line."""

import os
from dataclasses import dataclass
from enum import IntEnum

_MAX_SHOWN = 60


def shown(value: object) -> str:
    """Return the representation of any value, on one line and shortened."""
    try:
        text = repr(value)
    except (RecursionError, ValueError):  # nested too deep to print; an integer too long to print
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def one_line(error: BaseException) -> str:
    r"""Return the type of an error and the first line of its message.

    >>> one_line(ValueError("no number\n  at all"))
    'ValueError: no number'
    """
    name, message = type(error).__name__, first_line(error)
    return name if message == name else f"{name}: {message}"


def first_line(error: BaseException) -> str:
    """Return the first line of the message of an error, or its type if it has no message."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


class ExitCode(IntEnum):
    """Exit codes of elasticqa's processes."""

    FAILED = 1
    BAD_REQUEST = 2
    """The same request would be refused again; Slurm does not requeue the job."""
    PEER_LOST = 75
    """EX_TEMPFAIL: another worker was lost; torchrun restarts the worker group."""
    STORE_LOST = 76
    """The rendezvous store is unreachable: run the same command again, on every node, to resume."""
    STOPPED = 143
    """128 + SIGTERM: stopped on request, after a checkpoint; schedulers count torchrun's own code 1 as a failure."""


class ConfigError(ValueError):
    """A request that cannot be met; its message names the value, the rule and a way out."""


class CheckpointError(RuntimeError):
    """A checkpoint that cannot be written or read."""


class JournalError(RuntimeError):
    """Lines of the journal could not be written: training may continue, but the record is incomplete."""


class RunRemovedError(CheckpointError):
    """The run directory was removed during training: a restart would begin a new run under its name."""


class MicroBatchTooLargeError(RuntimeError):
    """A micro-batch that does not fit into the memory of some rank; raised on every rank.

    Attributes:
        what: the message without the way out.
    """

    def __init__(self, micro_batch_size: int, num_tokens: int, device: object) -> None:
        self.what = (
            f"a micro-batch of {micro_batch_size} features, {num_tokens} tokens, "
            f"does not fit into the memory of {device}"
        )
        super().__init__(
            f"{self.what}; use --activation-checkpointing, the component fsdp, a smaller --max-length or model"
        )


class LocalOutOfMemoryError(RuntimeError):
    """This rank ran out of memory while the other ranks wait for it in a collective: the attempt must end.

    Attributes:
        micro_batch_size: number of features of the micro-batch.
        what: the message without the way out.
    """

    def __init__(self, cause: MicroBatchTooLargeError, micro_batch_size: int) -> None:
        self.micro_batch_size, self.what = micro_batch_size, cause.what
        super().__init__(f"{self.what}; the next attempt uses smaller ones")


@dataclass(frozen=True)
class Place:
    """A place in a data set; numbers count from 1, ``field`` is a path of keys."""

    file: str | os.PathLike[str]
    article: int | None = None
    title: str | None = None
    paragraph: int | None = None
    question: int | None = None
    question_id: str | None = None
    field: str | None = None

    def __str__(self) -> str:
        parts = [os.fsdecode(self.file)]
        if self.article is not None:
            title = "" if self.title is None else f" ({shown(self.title)})"
            parts.append(f"article {self.article}{title}")
        if self.paragraph is not None:
            parts.append(f"paragraph {self.paragraph}")
        if self.question is not None:
            parts.append(f"question {self.question}")
        if self.question_id is not None:
            parts.append(f"id {shown(self.question_id)}")
        if self.field is not None:
            parts.append(f"field {self.field}")
        return ", ".join(parts)


class DataError(ValueError):
    """A data set that breaks a rule of its format.

    Attributes:
        place: where the rule is broken.
        rule: what is wrong there, on one line.
    """

    def __init__(self, place: Place, rule: str) -> None:
        super().__init__(place, rule)
        self.place = place
        self.rule = rule

    def __str__(self) -> str:
        return f"{self.place}: {self.rule}"
