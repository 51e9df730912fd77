"""A driver, an actor that starts another one, and a task: the smallest Ray job with all of them."""

from __future__ import annotations

from typing import Any

import ray


class Verifier:
    """Gives a reward."""

    def score(self, answer: str) -> float:
        return float(answer == "4")


class Trainer:
    """Has a verifier of its own, in an environment of its own."""

    def __init__(self) -> None:
        environment = {"env_vars": {"SANDBOX": "1"}}
        actor: Any = ray.remote(num_cpus=0)(Verifier)
        self.verifier = actor.options(runtime_env=environment).remote()

    def train(self) -> float:
        return float(ray.get(self.verifier.score.remote("4")))


@ray.remote(num_cpus=0)
def prepare(rows: int) -> int:
    return rows


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    actor: Any = ray.remote(num_cpus=0)(Trainer)
    trainer = actor.remote()
    print("rows", ray.get(prepare.remote(16)), "reward", ray.get(trainer.train.remote()))


if __name__ == "__main__":
    main()
