"""A plan in words."""

from fedfair.plan.description import summary
from fedfair.plan.schema import Plan
from tests import plans

PLAN = plans.stated(federation={"min_collaborators": 2}, task={"standardize": "secure"}, training={"rounds": 300})


def words(**sections: dict[str, object]) -> dict[str, str]:
    return dict(summary(Plan.model_validate(plans.over(PLAN, **sections))))


def test_a_person_reads_what_the_plan_does() -> None:
    assert words() == {
        "federation": "'heart' of clinic-a, clinic-b, clinic-c, connecting to localhost:8443; "
        "a sum needs at least 2 of 3 and waits 600 seconds",
        "learns": "a linear model on breast-cancer, columns standardised by one sum",
        "minimises": "95 % the mean loss of the worst 10 % plus 5 % the mean loss of everybody",
        "trains": "300 rounds of fedsrcvar, 1 local step each in batches of 64 records, "
        "learning rate 0.05 (threshold 0.05), fp32; result: last model",
        "evaluates": "every 10 rounds: mean, accuracy and the mean loss of the worst groups of "
        "5 %, 10 %, 20 %, 30 %, 50 %",
        "protection": "sums are masked; holds against an aggregator that lies",
        "code of its own": "none",
        "leaves a site": "once, how many values each numeric column has, their sum and their sum of squares; "
        "each round, its weight and the weighted change of model and threshold; "
        "each evaluation, three loss histograms of 256 bins",
    }


def test_noise_and_what_matters_most_are_said() -> None:
    said = words(privacy={"sample_level": {"noise_multiplier": 1.5}}, task={"standardize": "none"})
    assert said["differential privacy"] == (
        "of every record (zero-out: replaced by one that contributes nothing): "
        "noise multiplier 1.5 in each local step, 20 in each evaluation, "
        "gradients clipped at 1 (before weighting); how many records a site has is public"
    )
    said = words(secure_aggregation={"mode": "off"}, task={"model": "mine:build"}, training={"local_epochs": 2})
    assert said["protection"].startswith("NONE: ")
    assert said["code of its own"] == "mine:build"
    assert "2 local epochs" in said["trains"]
    assert "the mean loss (the objective" in words(training={"algorithm": "fedavg"})["minimises"]
    hybrid = {"key_agreement": "x25519-mlkem768"}
    said = words(secure_aggregation=hybrid)["protection"]
    assert said.endswith("; keys agreed by X25519 and ML-KEM-768 together")
    assert "ML-KEM" not in words(secure_aggregation={**hybrid, "mode": "off"})["protection"]


def test_what_a_plan_opens_is_said_for_exact_evaluations_means_and_scores() -> None:
    said = words(evaluation={"method": "exact"})["leaves a site"]
    assert "THE LOSS OF ONE PERSON in single precision, of whichever site: 31 bits" in said
    said = words(evaluation={"site_means": True})["leaves a site"]
    assert said == words()["leaves a site"] + (
        "; each evaluation, UNDER THE SITE'S OWN NAME, its number of records, mean loss and accuracy in "
        "each split of 5 or more: the aggregator sees them and publishes the last"
    )
    said = words(evaluation={"scores": True})
    assert said["leaves a site"] == words()["leaves a site"] + (
        "; each evaluation, by split and class, two histograms of the probabilities that the model gives: of the "
        "records of the class, and of the others"
    )
    plain = words()["evaluates"] + "; AUC, Brier score and calibration"
    assert words(evaluation={"scores": True, "calibration": "none", "sets": None})["evaluates"] == plain
    assert said["evaluates"] == (
        f"{plain}, and by the same sums two numbers for each class that make scores probabilities (Platt); by the "
        "same sums sets of classes that miss at most 10 % of any group of 10 % or more, stored with the model"
    )


def test_models_and_sources_have_words_and_names_begin_no_statement() -> None:
    csv = {"csv": {"label": "died", "numeric": "all"}}
    assert words(task={"data": csv, "model": {"name": "mlp", "hidden": [8, 4]}})["learns"].startswith(
        "a perceptron with hidden layers of 8, 4 on column 'died' of each site's CSV file"
    )
    assert words(task={"data": {"mnist": {}}, "model": {"name": "resnet18"}})["learns"].startswith(
        "a ResNet-18 with group norm on mnist"
    )
    assert ", dealt by scheme random" in words(task={"partition": {"scheme": "random"}})["learns"]
    table = {"label": "y\nprotection\tsums are masked", "numeric": ["a"], "train": "x.csv"}
    said = summary(
        Plan.model_validate(plans.over(PLAN, task={"data": {"csv": table}}, secure_aggregation={"mode": "off"}))
    )
    assert [words for heading, words in said if heading == "protection"] == [
        "NONE: the aggregator sees every site's own update in the clear"
    ]


def test_a_plan_that_measures_the_excess_says_what_its_evaluations_sum_of_references() -> None:
    told = words(objective={"measure": "excess"})["leaves a site"]
    assert "three histograms of the excess over references" in told
    assert "of how many it came true" in told
    assert "references" not in words()["leaves a site"]
