"""One default for one setting: what a caller may leave out means the same in every function."""

import inspect

import pytest
from house.public import PUBLIC

#: Unit weights that drift by a tenth, labels without noise, normal inputs, nothing regularised, flipped or left out.
DEFAULTS = {
    **{"sigma_w": 1.0, "sigma_e": 0.1, "sigma_y": 0.0, "noise": 0.0, "kurtosis": 3.0, "variance": 1.0},
    **{"eps": 0.0, "flip": 0.0, "dropout": 0.0, "since": 0, "dim": 0, "seed": 0, "normalised": False, "below": 0.0},
}
#: Sentences whose labels are noisy by design.
OTHERS = {("icl.tasks.rules.RuleLanguage", "sigma_y")}


@pytest.mark.parametrize("setting", DEFAULTS)
def test_a_setting_left_out_is_the_same_everywhere(setting):
    """By the signatures of all that is public; None leaves a setting to be found."""
    found = {
        name: parameters[setting].default
        for name, (function, _) in PUBLIC.items()
        if setting in (parameters := inspect.signature(function).parameters) and (name, setting) not in OTHERS
    }
    left_out = {name: value for name, value in found.items() if value not in (None, inspect.Parameter.empty)}
    assert left_out, f"no function has a default for {setting}"
    assert {name: value for name, value in left_out.items() if value != DEFAULTS[setting]} == {}
