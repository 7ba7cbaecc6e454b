"""The dashboard's settings, read once from environment variables."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from db.storage.home import database_url, home_of, is_home_database, runs_dir_of

DEFAULT_INGEST_INTERVAL_S = 2.0


class SettingsError(ValueError):
    """An environment variable has an invalid value."""

    def __init__(self, name: str, value: str, rule: str) -> None:
        super().__init__(f"{name}={value!r}: {rule}")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of the dashboard."""

    home: Path
    """Holds the run directories and the file `dashboard-token`."""
    database_url: str
    is_home_database: bool = False
    """The database holds the runs of this home only."""
    is_auth_on: bool = True
    hosts: tuple[str, ...] = ()
    """Host names that browsers may use, besides this machine's own."""
    ingest_interval_s: float = DEFAULT_INGEST_INTERVAL_S

    @property
    def runs_dir(self) -> Path:
        """The directory of run directories, which hold the journals."""
        return runs_dir_of(self.home)

    @property
    def token_file(self) -> Path:
        """The file with the login token."""
        return self.home / "dashboard-token"

    @classmethod
    def from_environ(cls, environ: Mapping[str, str]) -> "Settings":
        """Return the settings of a process."""
        hosts = environ.get("ELASTICQA_DASHBOARD_HOSTS", "")
        return cls(
            home=home_of(environ),
            database_url=database_url(environ),
            is_home_database=is_home_database(environ),
            is_auth_on=_switch(environ, "ELASTICQA_DASHBOARD_AUTH"),
            hosts=tuple(name.strip().lower() for name in hosts.split(",") if name.strip()),
            ingest_interval_s=_seconds(environ, "ELASTICQA_DASHBOARD_INGEST_INTERVAL_S"),
        )


def _switch(environ: Mapping[str, str], name: str) -> bool:
    value = environ.get(name, "on")
    if value not in {"on", "off"}:
        raise SettingsError(name, value, "write `on` or `off`; unset means on")
    return value == "on"


def _seconds(environ: Mapping[str, str], name: str) -> float:
    value = environ.get(name, str(DEFAULT_INGEST_INTERVAL_S))
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not 0.05 <= seconds <= 3600:
        raise SettingsError(name, value, f"write seconds from 0.05 to 3600; unset means {DEFAULT_INGEST_INTERVAL_S}")
    return seconds
