from __future__ import annotations

from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfair.certificate.issue import IssueTerms, draft
from fedfair.certificate.sentences import (
    at_most,
    confidence,
    guess_sentence,
    limits,
    main_statement,
    mixture_sentences,
    population_sentence,
    sample_sentence,
    share,
)
from fedfair.results.loss_text import decimals_for
from tests.certificate.certificate_makers import (
    NOW,
    make_certificate,
    make_plan,
    make_record,
    make_told_record,
    some_losses,
)


@given(st.floats(0.0, 1e6))
def test_a_number_in_words_is_never_below_the_proven_one(value: float) -> None:
    shown = Decimal(at_most(value))
    assert Decimal(value) <= shown <= Decimal(value) + Decimal(1).scaleb(-decimals_for(value))


@pytest.mark.parametrize(("value", "words"), [(0.1, "10%"), (1.0, "100%"), (0.3, "30%"), (0.005, "0.5%")])
def test_shares_are_in_percent(value: float, words: str) -> None:
    assert share(value) == words


def test_no_confidence_is_rounded_up_to_certainty() -> None:
    record, plan = make_record(test=some_losses()), make_plan()
    for delta, words in ((0.05, "95%"), (0.001, "99.9%"), (1e-9, "99.9999999%")):
        assert confidence(draft(record, plan, IssueTerms("test", (0.1,), delta=delta), issued_at=NOW)) == words


def test_the_statements_in_words() -> None:
    made = make_certificate()
    worst = main_statement(made)
    assert worst.group_size == make_plan().objective.worst_group_size
    assert sample_sentence(made, worst) == (
        "No group making up at least 10% of the 1000 evaluated people, people the model has not seen, has a mean "
        f"loss above {at_most(worst.sample[1])}."
    )
    assert worst.population is not None
    assert population_sentence(made, worst) == (
        "With 95% confidence, no group making up at least 10% of the population that those people represent has a "
        f"mean loss above {at_most(worst.population)}, where a loss above 4.000 counts as 4.000."
    )


PROPORTIONS = (
    "That population mixes the sites' people in the proportions of the evaluated records, one record a person."
)


def test_the_population_is_said_to_mix_the_sites_as_the_evaluated_records_do() -> None:
    untold = "The shares of the sites in the evaluated records are not published."
    assert list(mixture_sentences(make_certificate())) == [PROPORTIONS, untold]
    terms = IssueTerms("test", (0.1,))
    for sites, words in (
        ({"clinic-a": 750, "clinic-b": 250}, "clinic-a 75.0%, clinic-b 25.0%"),
        ({"clinic-a": 750}, "clinic-a 75.0%, others 25.0%"),
    ):
        record = make_told_record(sites, some_losses())
        made = draft(record, make_plan(site_means=True), terms, issued_at=NOW)
        assert list(mixture_sentences(made)) == [PROPORTIONS, f"The evaluated records are from: {words}."]


def test_weights_of_the_sites_are_said_as_shares_of_the_population() -> None:
    plan = make_plan(site_means=True, site_weights={"clinic-a": 3.0, "clinic-b": 1.0})
    record = make_told_record({"clinic-a": 500, "clinic-b": 500}, some_losses())
    made = draft(record, plan, IssueTerms("test", (0.1,)), issued_at=NOW)
    mixed, told = mixture_sentences(made)
    assert mixed.endswith("by the weights that the plan declares: clinic-a 75.0%, clinic-b 25.0%.")
    assert told == "The evaluated records are from: clinic-a 50.0%, clinic-b 50.0%."


def test_a_bound_that_every_model_meets_is_called_nothing() -> None:
    made = make_certificate(some_losses(20))
    worst = main_statement(made)
    assert worst.population == made.loss_range
    assert "nothing is proven: 20 evaluated people are too few" in population_sentence(made, worst)


def test_training_records_are_never_said_to_speak_for_others() -> None:
    made = draft(make_record(train=some_losses()), make_plan(), IssueTerms("train", (0.1,)), issued_at=NOW)
    assert "Nothing is proven about people who were not evaluated" in population_sentence(made, made.statements[0])
    assert any(
        "trained on the evaluated people: this proves nothing about new people" in text for text in limits(made)
    )
    assert not any("were drawn from the people of their sites" in text for text in limits(made))
    assert list(mixture_sentences(made)) == ["The shares of the sites in the evaluated records are not published."]


def test_the_limits_say_how_large_losses_count_and_whom_the_records_stand_for() -> None:
    losses = some_losses(500)
    losses[:12] = 9.0
    told = " ".join(limits(make_certificate(losses)))
    assert "a loss above 4.000 counts as 4.000" in told
    assert "Above it: at most 12 of the 500 evaluated losses" in told
    assert "not about accuracy" in told
    assert "do not represent those whom the model will be used for, or the sites have other shares there" in told
    assert "everybody has one record" in told
    assert "each range holds at least 10" in told
    validation = draft(
        make_record(validation=losses), make_plan(), IssueTerms("validation", (0.1,)), issued_at=NOW
    )
    assert "by which the run chose among its models" in " ".join(limits(validation))


@pytest.mark.parametrize(("loss", "words"), [(0.1, "served better than that"), (2.0, "served worse than that")])
def test_the_worst_group_is_held_against_guessing(loss: float, words: str) -> None:
    assert words in guess_sentence(make_certificate(np.full(100, loss)))
