"""Agent loop of several outputs, which keeps a book of the reward verl gave each; verl 0.9."""

from __future__ import annotations

from typing import Any

from verl.experimental.agent_loop.agent_loop import AgentLoopOutput
from verl.experimental.agent_loop.single_turn_agent_loop import SingleTurnAgentLoop
from verl_cpu_books import write


class Output(AgentLoopOutput):
    """An output that knows which one it is."""

    _place: tuple[str, int, int]

    def as_dict(self) -> dict[str, Any]:
        """What verl takes to its queue."""
        uid, session, number = self._place
        write(
            "output",
            uid=uid,
            session=session,
            number=number,
            prompt=len(self.prompt_ids),
            response=len(self.response_ids),
            reward=self.reward_score,
        )
        return super().as_dict()


class SeveralOutputs(SingleTurnAgentLoop):
    """Answers one to three times, each time anew."""

    async def run(self, sampling_params: dict[str, Any], **kwargs: Any) -> Any:
        session, result = int(kwargs["session_id"]), list[Output]()
        for number in range(1 + (session + 1) % 3):
            answer = await super().run(sampling_params, **kwargs)
            given = {name: getattr(answer, name) for name in answer.model_fields_set}
            result.append(Output(**given))
            result[-1]._place = (str(kwargs["uid"]), session, number)
        return result
