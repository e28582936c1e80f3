"""Threads of which exactly one runs at a time, and which one is drawn from a seed.

A thread gives way at `Schedule.step` and `Schedule.wait` only, so that the same seed is the same
schedule. A killed actor's thread goes on to its end, but nothing it calls has any effect: each step
raises `KilledError`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

#: More steps than any schedule needs; one that goes on and on is a defect.
_MAX_STEPS = 60_000

#: What a step takes, and what a sleep does, however short it was meant to be.
_STEP_SECONDS = 0.001
_SLEEP_SECONDS = 1.0


class KilledError(BaseException):
    """The process of this actor is gone."""


@dataclass(eq=False, kw_only=True)
class Process:
    """What an owner is: a process of a host."""

    host: str
    pid: int
    alive: bool = True


@dataclass(eq=False, kw_only=True)
class Actor:
    """A thread of a process.

    Attributes
    ----------
    steps : int
        How many it has taken.
    dies_at : int or None
        The step at which its process is killed.
    begun, ended : int
        Steps of the whole schedule.
    """

    name: str
    process: Process
    work: Callable[[], Any]
    dies_at: int | None
    steps: int = 0
    begun: int = 0
    ended: int | None = None
    result: Any = None
    error: BaseException | None = None
    until: Callable[[], bool] | None = None
    gate: threading.Lock = field(default_factory=threading.Lock)

    @property
    def is_done(self) -> bool:
        return self.ended is not None


class Schedule:
    """One order of the steps of all actors.

    Parameters
    ----------
    rng : random.Random
        Draws who goes on.
    stickiness : float
        How likely it is that the one who runs goes on.
    """

    def __init__(self, rng: random.Random, stickiness: float) -> None:
        self.rng = rng
        self.now = 1_700_000_000.0
        self.steps = 0
        self.trace: list[str] = []
        self._stickiness = stickiness
        self._actors: list[Actor] = []
        self._current: Actor | None = None
        self._finished = threading.Lock()
        self._failure: BaseException | None = None

    @property
    def current(self) -> Actor:
        assert self._current is not None
        return self._current

    def spawn(
        self, name: str, process: Process, work: Callable[[], Any], *, dies_at: int | None = None
    ) -> Actor:
        """Add an actor, which may begin at any step from now on."""
        actor = Actor(name=name, process=process, work=work, dies_at=dies_at, begun=self.steps)
        actor.gate.acquire()
        self._actors.append(actor)
        threading.Thread(target=self._run_actor, args=(actor,), daemon=True).start()
        return actor

    def run(self) -> None:
        """Run all actors to their ends."""
        self._finished.acquire()
        self._hand_over(None)
        self._finished.acquire()
        self._finished.release()
        self._current = None
        if self._failure is not None:
            raise self._failure

    def step(self, name: str) -> None:
        """Let others go on before the current actor does."""
        actor = self.current
        self._count(actor, name)
        self._hand_over(actor)
        self._check(actor)

    def sleep(self, seconds: float) -> None:
        """Let time go by."""
        del seconds
        self.now += _SLEEP_SECONDS
        self.step("sleep")

    def wait(self, until: Callable[[], bool]) -> None:
        """Let others go on until something is true."""
        actor = self.current
        self._check(actor)
        actor.until = until
        self._hand_over(actor)
        actor.until = None
        self._check(actor)

    def kill(self, process: Process) -> None:
        """End a process: its actors do nothing any more."""
        process.alive = False

    def _count(self, actor: Actor, name: str) -> None:
        self._check(actor)
        self.steps += 1
        actor.steps += 1
        self.now += _STEP_SECONDS
        self.trace.append(f"{actor.name} {name}")
        if actor.steps == actor.dies_at:
            self.trace.append(f"{actor.name} is killed")
            self.kill(actor.process)
        if self.steps > _MAX_STEPS:
            self._failure = AssertionError("the schedule does not end")
            for one in self._actors:
                self.kill(one.process)
        self._check(actor)

    def _check(self, actor: Actor) -> None:
        if not actor.process.alive:
            raise KilledError

    def _run_actor(self, actor: Actor) -> None:
        actor.gate.acquire()
        try:
            self._check(actor)
            actor.result = actor.work()
        except BaseException as error:  # noqa: BLE001 - who made the actor looks at it
            actor.error = error
        actor.ended = self.steps
        self._hand_over(actor)

    def _hand_over(self, actor: Actor | None) -> None:
        ready = [one for one in self._actors if _is_ready(one)]
        if not ready:
            if not all(one.is_done for one in self._actors):
                self._failure = AssertionError("all actors wait for each other")
            self._finished.release()
            return
        following = actor
        if actor is None or not _is_ready(actor) or self.rng.random() >= self._stickiness:
            following = self.rng.choice(ready)
        assert following is not None
        if following is actor:
            return
        self._current = following
        following.gate.release()
        if actor is not None and not actor.is_done:
            actor.gate.acquire()


def _is_ready(actor: Actor) -> bool:
    if actor.is_done:
        return False
    return actor.until is None or not actor.process.alive or actor.until()
