"""What Slurm or a job's definition refuses, said once."""

from torchx.specs.finder import ComponentValidationException


class SlurmError(ComponentValidationException):  # type: ignore[misc] # torchx has no types
    """A job cannot be submitted or asked about.

    A kind of TorchX's own exception, since its command line shows that one as a message and any other as a traceback.
    """
