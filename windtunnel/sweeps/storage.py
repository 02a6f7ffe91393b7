"""Where trials are kept: Optuna's storages, made safe for several processes and for processes that are killed."""

from __future__ import annotations

import time
import warnings
from typing import Any

import optuna
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, InMemoryStorage, RDBStorage
from optuna.trial import FrozenTrial
from sqlalchemy import event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, IntegrityError, OperationalError, SQLAlchemyError

from windtunnel.errors import BadInput

BEAT = 10
"""Seconds between the signs of life of a running trial."""
GRACE = 60
"""Seconds without one after which its process counts as dead."""
RETRIES = 2
"""How often the options of a trial whose process died are tried again."""
PATIENCE = 120
"""Seconds to wait for a file that another process writes."""


def open_storage(storage: str | BaseStorage | None) -> BaseStorage:
    """Open a storage by its URL; None keeps trials in memory.

    Raises
    ------
    BadInput
        For what is no URL, or one that cannot be opened.
    """
    if storage is None:
        return InMemoryStorage()
    if isinstance(storage, BaseStorage):
        return storage
    try:
        url = make_url(storage)
        database = _opened(storage, sqlite=url.get_backend_name() == "sqlite")
    except (ArgumentError, SQLAlchemyError, ImportError) as error:
        reason = str(error).splitlines()[0]
        raise BadInput(
            f"storage={storage!r} cannot be opened ({reason}); give a URL such as sqlite:///sweep.db, in a folder that "
            "exists"
        ) from error
    return database


def _opened(url: str, *, sqlite: bool) -> RDBStorage:
    options: dict[str, Any] = {"connect_args": {"timeout": PATIENCE}} if sqlite else {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ExperimentalWarning)  # of heartbeats
        for attempt in range(10):
            try:
                storage = RDBStorage(
                    url,
                    engine_kwargs=dict(options),
                    heartbeat_interval=BEAT,
                    grace_period=GRACE,
                    heartbeat_stale_trial_callback=try_again,
                )
                break
            except (OperationalError, IntegrityError) as error:
                # Two processes that make the tables of a new file at once get in each other's way.
                if attempt == 9 or "unable to open" in str(error):
                    raise
                time.sleep(0.05 * (attempt + 1))
    if sqlite and storage.engine.url.database not in (None, "", ":memory:"):
        _one_at_a_time(storage)
    return storage


def _one_at_a_time(storage: RDBStorage) -> None:
    """Let SQLite lock the file when a transaction begins.

    By itself it locks at the first write: two processes that both read a waiting trial would both run it.
    """

    def connected(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # the driver would begin transactions of its own

    def begun(connection: Any) -> None:
        connection.exec_driver_sql("BEGIN IMMEDIATE")

    event.listen(storage.engine, "connect", connected)
    event.listen(storage.engine, "begin", begun)
    storage.scoped_session.remove()
    storage.engine.dispose()


def try_again(study: optuna.Study, trial: FrozenTrial) -> None:
    """Queue the options of a trial that its process did not finish; the default is queued by whoever misses it."""
    tried = trial.user_attrs.get("retries", 0)
    if tried < RETRIES and not trial.user_attrs.get("default"):
        options = {**trial.system_attrs.get("fixed_params", {}), **trial.params}
        study.enqueue_trial(options, user_attrs={"retry_of": trial.number, "retries": tried + 1})
