"""Options of the scheduler, from `.torchxconfig` and `-cfg`, and the flags of sbatch that they become."""

from collections.abc import Mapping

from torchx.specs import runopts

HELP = {
    "partition": "Partition to run in; the cluster's default without it.",
    "time": "Longest time that one life of the job may take, as sbatch writes it: 30, 4:00:00, 1-12:00:00.",
    "account": "Account to charge.",
    "qos": "Quality of service.",
    "constraint": "Features that every node must have.",
    "gres": "GPUs a node by type, such as gpu:a100:2, instead of the number that the component asks for.",
    "reservation": "Reservation to run in.",
    "exclude": "Nodes to stay away from.",
    "signal": "Signal and seconds before the time limit at which the run saves and is queued again.",
    "comment": "Comment of the job.",
    "mail-user": "Who is mailed.",
    "mail-type": "Events that are mailed, such as END,FAIL.",
}
"""Option by option: each is the flag of sbatch of that name."""

DEFAULTS = {"signal": "USR1@120"}


def run_options() -> runopts:
    """Return the options as TorchX lists and checks them."""
    options = runopts()
    for name, text in HELP.items():
        options.add(name, type_=str, default=DEFAULTS.get(name), help=text)
    return options


def sbatch_flags(config: Mapping[str, object]) -> list[str]:
    """Return the flags of the options that are set.

    >>> sbatch_flags({"partition": "gpu", "time": None, "qos": "short"})
    ['--partition=gpu', '--qos=short']
    """
    return [f"--{name}={config[name]}" for name in HELP if config.get(name)]
