"""Options of the scheduler, from `.torchxconfig` and `-cfg`, and their sbatch flags."""

from collections.abc import Mapping

from torchx.specs import runopts

HELP = {
    "partition": "Partition to run in (default: the cluster's default).",
    "time": "Time limit of the job between two requeues, in sbatch's format: 30, 4:00:00, 1-12:00:00.",
    "account": "Account to charge.",
    "qos": "Quality of service.",
    "constraint": "Features that every node must have.",
    "gres": "GPUs per node by type, such as gpu:a100:2, instead of the component's --gpu.",
    "reservation": "Reservation to run in.",
    "exclude": "Nodes that must not be used.",
    "signal": "Signal, and seconds before the time limit, at which the run saves and is requeued.",
    "comment": "Comment on the job.",
    "mail-user": "Recipient of mails.",
    "mail-type": "Events that cause a mail, such as END,FAIL.",
}
"""Help by option; each option is the sbatch flag of the same name."""

DEFAULTS = {"signal": "USR1@120"}


def run_options() -> runopts:
    """Return the options for TorchX, which lists and checks them."""
    options = runopts()
    for name, text in HELP.items():
        options.add(name, type_=str, default=DEFAULTS.get(name), help=text)
    return options


def sbatch_flags(config: Mapping[str, object]) -> list[str]:
    """Return the sbatch flags of the options that are set.

    >>> sbatch_flags({"partition": "gpu", "time": None, "qos": "short"})
    ['--partition=gpu', '--qos=short']
    """
    return [f"--{name}={config[name]}" for name in HELP if config.get(name)]
