"""docs/explain/algorithms.md against the facts in code, and the facts against themselves."""

import re
from typing import get_args

import pytest

from fedfair.errors import PlanError
from fedfair.plan.algorithms import ALGORITHMS, AlgorithmName, OptionsSection, check_deployable
from fedfair.policy.disclosures import MEANING, SUMS_ONLY
from fedfair.report.disclosure_table import EXAMPLE, TERMS, amount, formula, table
from tests.conftest import REPOSITORY

PAGE = (REPOSITORY / "docs" / "explain" / "algorithms.md").read_text()


ABOUT_ONE = {"group-losses", "site-losses", "site-updates", "records"}


def test_what_is_about_one_is_revealed_and_deployed_runs_say_nothing_of_it() -> None:
    for facts in ALGORITHMS.values():
        assert set(facts.numbers) <= set(TERMS)
        assert all(count <= facts.numbers.get(term, 0) for term, count in facts.about_one.items())
    # Of one group over all sites FedMinMax does, which a site's policy allows by name or not at all.
    told = {name: facts for name, facts in ALGORITHMS.items() if facts.deployed and facts.about_one}
    assert [(name, set(facts.about_one), facts.kinds[0]) for name, facts in told.items()] == [
        ("fedminmax", {"G"}, "group-losses")
    ]
    for name, facts in ALGORITHMS.items():
        assert bool(facts.about_one) == bool(ABOUT_ONE & set(facts.kinds)), name
        assert facts.kinds, name
    assert {*ABOUT_ONE, *SUMS_ONLY} == set(MEANING)


def test_the_table_is_the_one_of_the_code_with_facts_for_every_algorithm_and_option() -> None:
    assert table() in PAGE
    assert set(ALGORITHMS) == set(get_args(AlgorithmName))
    headings = re.findall(r"^## (.*)$", PAGE, re.MULTILINE)
    missing = [facts.title for facts in ALGORITHMS.values() if not facts.deployed and facts.title not in headings]
    assert missing == []
    taken = {option for facts in ALGORITHMS.values() for option in facts.options}
    assert taken == set(OptionsSection.model_fields)
    assert [option for option in taken if f"options.{option}`" not in PAGE] == []
    assert formula({"d": 1, "1": 2}) == "d + 2"
    assert formula({"m": 1, "d": 2}) == "2 d + m"
    assert formula({}) == "0"
    assert amount({"d": 2, "m": 1}, EXAMPLE) == 2 * 9730 + 51
    assert amount({"K d": 1, "1": 3}, EXAMPLE) == 51 * 9730 + 3
    # 16 inputs to 512 units with biases, and those to 2 outputs with biases.
    assert EXAMPLE["d"] == 16 * 512 + 512 + 512 * 2 + 2


@pytest.mark.parametrize("name", [name for name, facts in ALGORITHMS.items() if not facts.deployed])
def test_a_deployment_is_refused_in_words(name: AlgorithmName) -> None:
    with pytest.raises(PlanError, match=f"{name} is for simulation only: (each round|it needs every)") as caught:
        check_deployable(name)
    assert "fedfair simulate" in caught.value.remedy
