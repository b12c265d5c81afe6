"""The two `skills:` sections as they come from a YAML file: plain lists and text."""

from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from skills.catalog import AgentSkillsConfig, SkillsConfig


def test_lists_from_a_file_are_taken_and_defaults_show_everything() -> None:
    assert SkillsConfig.model_validate({"directories": ["./a", "/b"]}).directories == ("./a", "/b")
    assert SkillsConfig().directories == ()
    assert AgentSkillsConfig.model_validate({"allow": ["x"], "deny": []}).allow == ("x",)
    assert (AgentSkillsConfig().allow, AgentSkillsConfig().deny) == (("*",), ())


@pytest.mark.parametrize(
    ("model", "data"),
    [
        (SkillsConfig, {"directories": "./a"}),
        (SkillsConfig, {"directories": [1]}),
        (SkillsConfig, {"folders": []}),
        (AgentSkillsConfig, {"allow": "*"}),
        (AgentSkillsConfig, {"allow": None}),
        (AgentSkillsConfig, {"alow": []}),
    ],
)
def test_what_is_not_a_list_of_texts_is_refused(model: type[BaseModel], data: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        model.model_validate(data)
