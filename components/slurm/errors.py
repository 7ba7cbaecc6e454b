"""The error of this scheduler."""

from torchx.specs.finder import ComponentValidationException


class SlurmError(ComponentValidationException):  # type: ignore[misc] # torchx has no types
    """A job cannot be submitted or queried.

    Derived from the exception that TorchX's command line prints as a message; it prints others as a traceback.
    """
