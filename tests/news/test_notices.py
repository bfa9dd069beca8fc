"""Every notice has its sentence, the very one that operators and their scripts have read so far."""

from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType

import pytest

from docs.events_page import kinds
from fedfair.aggregation.masking_terms import IN_THE_CLEAR
from fedfair.identity.expiry import Expiry
from fedfair.ids import ParticipantId, RoundNumber
from fedfair.news import run, site, sums, tracker
from fedfair.news.event import LogLevel, News
from fedfair.news.processors import text_lines
from fedfair.news.tracker import TrackerFailed
from fedfair.results.site_figures import SiteFigures, SplitFigures
from fedfair.rounds.events import AfterWaiting, Waiting
from fedfair.run.progress import Progress
from fedfair.statistics.table import Purpose
from fedfair.tables.survey_faults import SurveyFault, SurveyFaultKind

A, B = ParticipantId("clinic-a"), ParticipantId("clinic-b")
SEVEN = RoundNumber(7)
NOON = datetime(2031, 5, 4, 12, 0, tzinfo=UTC)
ABSENT = Waiting((B,), 1, 2, 2, (), AfterWaiting.END, None)

AGGREGATOR: list[tuple[News, str]] = [
    (run.ProtectionStated("it learns one sum"), "secure aggregation: it learns one sum"),
    (run.ProtectionStated(""), IN_THE_CLEAR),
    (run.IdentityWarned("the certificate ends tomorrow"), "the certificate ends tomorrow"),
    (
        run.EarlierRunKept(Path("earlier/0123456789abcdef")),
        "the run continues from a finished one, whose files are in earlier/0123456789abcdef now",
    ),
    (
        run.RunContinued("0123456789abcdef" * 2, SEVEN),
        "continuing run 01234567 after round 7, as recorded in the journal",
    ),
    (run.PortOpened(4433, ("clinic-a", "clinic-b")), "listening on port 4433 for clinic-a, clinic-b"),
    (run.StatusServed("http://localhost:9464/"), "the status of the run is at http://localhost:9464/"),
    (run.EntryRefused("a stranger", "no certificate"), "a stranger was refused: no certificate"),
    (run.InvitationDeclined(A, "budget"), "clinic-a refuses to take part: budget"),
    (run.StreamOpened(A, replaces=False), "clinic-a connected"),
    (
        run.StreamOpened(A, replaces=True),
        (
            "clinic-a returned on a new stream in place of its older one; said again and again, it means that two "
            "machines use its identity"
        ),
    ),
    (run.StreamEnded(A), "clinic-a disconnected"),
    (
        run.StatementDiffers(A, "it states another root"),
        (
            "clinic-a has signed another transcript of the run: it states another root; its statement is kept in "
            "save/transcript.json, and one of the two copies of the run is not what the sums have made of the plan"
        ),
    ),
    (
        run.SitesAwaited(ABSENT, NOON, NOON),
        (
            "1 of 2 sites is here, 2 are needed. Waiting for clinic-b until 12:00:00 UTC, then ending the run, "
            "which resumes when the aggregator is restarted."
        ),
    ),
    (
        sums.AnswerUnawaited(A, Purpose.TRAINING, SEVEN, "no answer within 9 s"),
        "clinic-a has been dropped from the training sum of round 7: no answer within 9 s",
    ),
    (
        sums.SiteLeftBehind(A, Purpose.TRAINING, SEVEN, 2.04, 0.131),
        (
            "clinic-a has not answered the training sum of round 7 within 2.0 s (the median of the sites is "
            "0.13 s); the sum continues without it, and it is asked again later"
        ),
    ),
    (sums.SiteCaughtUp(A, 61.24, None), "clinic-a has answered after 61.2 s, too late for that sum"),
    (sums.LieSuspected(A, "clinic-b says so"), "clinic-a may be lying, or those it contradicts: clinic-b says so"),
    (run.SentAway(A, "it broke the protocol"), "clinic-a is disconnected: it broke the protocol"),
    (run.SiteWithdrew(A, 6, "budget"), "clinic-a withdraws from the federation after round 6: budget"),
    (
        sums.AttemptLost(Purpose.EVALUATION, SEVEN, 2, "1 of 2 contributed"),
        "evaluation sum of round 7, attempt 2, is lost: 1 of 2 contributed",
    ),
    (sums.EvaluationOmitted(SEVEN, "too few"), "the evaluation of round 7 is omitted: too few"),
    (
        sums.JournalBehind({A: 2, B: 3}, 2),
        (
            "sites report rounds beyond the journal: clinic-a by 2 rounds, clinic-b by 3 rounds; "
            "2 rounds are accepted"
        ),
    ),
    (
        sums.JournalBehind({A: 2}, 0),
        (
            "sites report rounds beyond the journal: clinic-a by 2 rounds; too few report this, "
            "so the run continues"
        ),
    ),
    (
        sums.ChangesClipped(SEVEN, 16, 0.0625),
        (
            "round 7: 16 changes were larger than the clip of 0.0625 and were clipped to "
            "it; the metrics count later ones"
        ),
    ),
    (
        sums.ValuesReplaced(SEVEN, Purpose.TRAINING, 5, 1),
        (
            "round 7: 5 values of 1 site(s) in the training sum could not be summed (NaN, infinite or beyond "
            "their bound) and were replaced; each of these sites has a line about it in its own log; the metrics "
            "count later ones "
            "-> lower training.learning_rate, or have the sites look for extreme values in their data"
        ),
    ),
    (
        run.OlderTrustKept("it is damaged"),
        "open streams are checked against the earlier revocation list: it is damaged",
    ),
    (
        run.RevocationListChanged(3, 2),
        "revocation list 3 is in force, with 2 certificate(s); connected sites are sent it",
    ),
    (
        run.CertificateEnding(Expiry("this host's certificate", NOON, 7, "renew it")),
        "this host's certificate expires on 2031-05-04 12:00 UTC, in 7 days -> renew it",
    ),
    (
        run.CertificateEnding(Expiry("the certificate of clinic-a", NOON, -1, "renew it")),
        "the certificate of clinic-a expired on 2031-05-04 12:00 UTC -> renew it",
    ),
    (
        run.CertificateRenewed(NOON),
        "new connections are shown the renewed certificate, good until 2031-05-04 12:00 UTC",
    ),
    (
        run.CertificateUnusable("it has expired"),
        "the certificate on the disk cannot be used, so the present one stays: it has expired",
    ),
    (
        run.StopBegun("SIGTERM"),
        "SIGTERM: telling the collaborators and recording the run; once more to stop at once",
    ),
    (
        run.AbsentSitesAwaited(45.2, ("clinic-a", "clinic-b")),
        "the run is over; listening 45 s longer to tell clinic-a, clinic-b, who are away",
    ),
    (
        run.EndMissed(A),
        (
            "clinic-a has heard that the run is over, but its own copy lacks the last sums -> send it "
            "save/last.safetensors"
        ),
    ),
    (
        TrackerFailed("jsonl:run.jsonl", "No space left on device"),
        (
            "--track jsonl:run.jsonl fails: No space left on device; the run continues, the tracker is tried "
            "again, and this is logged once"
        ),
    ),
]

SITE: list[tuple[News, str]] = [
    (
        site.ReleaseWithheld("membership-tpr-at-01"),
        (
            "this site withholds its agreement to the release of the model: membership-tpr-at-01; its policy "
            "(policy.release) and its own copy of the release audit decide that -> look at the audit in the "
            "report of the run"
        ),
    ),
    (site.RunJoined("0123456789abcdef", 3, 20), "connected; run 01234567 stands at round 3 of 20"),
    (site.SiteStatusServed("http://localhost:1/"), "the status of this site is at http://localhost:1/"),
    (
        site.RetryPlanned("nobody answers", 1.25, 30.0, None),
        "nobody answers; trying again in 1.2 s, then every 30 s or sooner until it answers",
    ),
    (
        site.RetryPlanned("nobody answers", 1.0, 30.0, NOON),
        (
            "nobody answers; trying again in 1.0 s, then every 30 s or sooner until 2031-05-04 12:00 UTC, "
            "then giving up"
        ),
    ),
    (
        site.SumDeclined((Purpose.TRAINING, SEVEN), "its policy"),
        "takes no part in the training sum of round 7: its policy",
    ),
    (site.SumDeclined(None, "its policy"), "takes no part in the session: its policy"),
    (
        site.ComputingEnded("it was ended by SIGKILL", Path("logs/clinic-a_worker.log")),
        (
            "the computing process is started again: it was ended by SIGKILL; its output is in "
            "logs/clinic-a_worker.log"
        ),
    ),
    (site.ValuesOmitted("3 are NaN"), "takes part in this sum, but not with all its values: 3 are NaN"),
    (site.EvaluationDone(SEVEN, 20), "round 7 of 20 evaluated"),
    (site.PrivacyForecast("epsilon 3"), "privacy: epsilon 3"),
    (
        site.RecordsWithheld("5 training records count"),
        "own records: 5 training records count; the others cannot see that",
    ),
    (
        site.RecordsChanged("changed since the run of 2030-05-01: records 31 -> 26"),
        (
            "own records: changed since the run of 2030-05-01: records 31 -> 26; a continued run uses the "
            "records as they are now"
        ),
    ),
    (
        site.SummaryUnwritten(Path("state/a.json"), "no space"),
        "state/a.json was not written, so no check will compare with this run: no space",
    ),
    (site.LeavingBegun("SIGINT"), "SIGINT: leaving the federation; once more to stop at once"),
    (site.PlanRefused("the mode\n  is off"), "the mode is off"),
    (site.AggregatorUntold("nobody answers"), "the aggregator was not notified: nobody answers"),
    (
        site.OwnRecordsEvaluated(
            SiteFigures(
                "sha256:0",
                False,
                7,
                0.1,
                {"train": SplitFigures(57, 0.4123, 1.25, 6, 0.875), "test": SplitFigures(4, 2.0, 3.5, 1, 0.25)},
                {"train": SplitFigures(512, 0.3, 1.0, 52, 1.0), "test": SplitFigures(40, 0.5, None, 4, 0.925)},
            )
        ),
        (
            "round 7, train      here / everybody: records      57 / 512     mean loss  0.4123 /  0.3000  "
            "worst 10 %  1.2500 /  1.0000 (6 here)  accuracy  87.5 / 100.0 %\n"
            "round 7, test       here / everybody: records       4 / 40      mean loss  2.0000 /  0.5000  "
            "worst 10 %  3.5000 / too few (1 here)  accuracy  25.0 /  92.5 %"
        ),
    ),
    (
        site.OwnRecordsEvaluated(SiteFigures("sha256:0", False, 7, 0.1, {}, {})),
        "round 7: this site has no records to evaluate",
    ),
    (
        site.StateUnread(Path("state/a.run"), "it is damaged"),
        (
            "state/a.run cannot be used: it is damaged; this site takes the state of the run from the other "
            "sites, who vouch for it"
        ),
    ),
    (
        site.RunFileUnwritten(Path("runs/a/result.json"), "No space left on device"),
        (
            "runs/a/result.json cannot be written: No space left on device; the run continues, the older file is "
            "kept, and the next evaluation tries again -> make room on the disk, or let this user write there"
        ),
    ),
    (site.ReconnectionBegun("a renewed certificate"), "reconnecting: a renewed certificate"),
    (
        site.SiteCertificateEnding(Expiry("the revocation list", NOON, 0, "refresh it")),
        "the revocation list expires on 2031-05-04 12:00 UTC, in less than a day -> refresh it",
    ),
    (
        site.SiteCertificateUnusable("it has expired"),
        "the certificate on the disk cannot be used, so the present one stays: it has expired",
    ),
    (site.SiteCertificateRenewed(NOON), "a renewed certificate is here, good until 2031-05-04 12:00 UTC"),
    (site.RevocationListTaken(3, 2), "revocation list 3 of the authority was taken over; it has 2 certificate(s)"),
    (
        site.RevocationListRefused("it is older"),
        "a revocation list is refused, and this site's stays: it is older",
    ),
    (
        site.RevocationListUnwritten(Path("cert/revoked.crl"), "Read-only file system"),
        (
            "cert/revoked.crl cannot be written: Read-only file system; the newer revocation list counts for this "
            "connection only"
        ),
    ),
    (
        site.ModelReturned("the model of round 3 of 9, the best that was evaluated"),
        "the run returned the model of round 3 of 9, the best that was evaluated",
    ),
    (
        site.SurveyCompared(4, 3, 0),
        "survey of 4 sites: 3 columns compared with those of all other sites, nothing odd here",
    ),
    (
        site.SurveyCompared(4, 3, 1),
        "survey of 4 sites: 3 columns compared with those of all other sites, 1 probably wrong here",
    ),
    (
        site.SurveyFaultFound(SurveyFault("age", SurveyFaultKind.CONSTANT, "is 1 in all 9 records here")),
        "survey: column 'age': is 1 in all 9 records here",
    ),
    (
        site.LastSumsMissed(7),
        (
            "the run has ended, and this site was away or too slow for its last sums: its own copy ends after "
            "round 7 -> ask the aggregator's operator for save/last.safetensors"
        ),
    ),
    (
        TrackerFailed("jsonl:run.jsonl", "No space left on device"),
        (
            "--track jsonl:run.jsonl fails: No space left on device; the run continues, the tracker is tried "
            "again, and this is logged once"
        ),
    ),
]


@pytest.mark.parametrize(("news", "words"), AGGREGATOR + SITE)
def test_the_sentence_of_every_kind_of_news(news: News, words: str) -> None:
    assert news.sentence == words


@pytest.mark.parametrize(
    ("modules", "examples"),
    [((run, sums, tracker), AGGREGATOR), ((site, tracker), SITE)],
    ids=["aggregator", "site"],
)
def test_every_kind_of_notice_has_its_sentence_here(
    modules: tuple[ModuleType, ...], examples: list[tuple[News, str]]
) -> None:
    assert set(kinds(*modules)) == {type(news) for news, _ in examples}


def test_a_line_is_the_time_and_the_words() -> None:
    lines = list[str]()
    write = text_lines(lines.append)
    write(run.StreamEnded(A))
    write(site.EvaluationDone(SEVEN, 20))
    times, words = zip(*(line.split("Z ", 1) for line in lines), strict=True)
    assert words == ("clinic-a disconnected", "round 7 of 20 evaluated")
    assert all(abs(datetime.now(UTC) - datetime.fromisoformat(f"{time}+00:00")).days == 0 for time in times)


def test_a_sum_has_a_line_at_debug_only_and_an_evaluation_none_above_information() -> None:
    applied = sums.SumApplied(
        Progress(Purpose.TRAINING, SEVEN, 0.5, 2, None, is_best=False, model_changed=True), 20
    )
    for level in LogLevel:
        lines = list[str]()
        text_lines(lines.append, level)(applied)
        assert [line.split("Z ", 1)[1] for line in lines] == (
            ["the training sum of round 7 of 20 was applied"] if level is LogLevel.DEBUG else []
        )
