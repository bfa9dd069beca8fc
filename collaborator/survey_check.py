"""Holds the opened survey of a run against this site's own columns, and stops the site where its policy says so.

What is compared is `fedfair.tables.survey_faults`'s. The outcome stays here: it is said to the operator once for
each survey, and the aggregator learns of a stop only that there was one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fedfair.aggregation.survey import SurveyLayout
from fedfair.errors import SurveyError
from fedfair.ids import ParticipantId
from fedfair.news.event import News
from fedfair.news.site import SurveyCompared, SurveyFaultFound
from fedfair.run.kept_sum import KeptSum
from fedfair.tables.profile import DataProfile
from fedfair.tables.site_survey import SiteSurvey
from fedfair.tables.survey_faults import SurveyFault, survey_faults


@dataclass
class SurveyCheck:
    """Everything that a site compares an opened survey with.

    Attributes:
        participant: the site.
        own: its part of the survey.
        layout: the columns of the plan's survey.
        policy: warn or stop, `policy.survey` of its own file.
        profile: of its records, for spellings that differ only in case.
    """

    participant: ParticipantId
    own: SiteSurvey
    layout: SurveyLayout
    policy: Literal["warn", "stop"]
    profile: DataProfile | None = None
    _known: tuple[KeptSum, tuple[SurveyFault, ...]] | None = field(default=None, init=False, repr=False)

    def notices(self, survey: KeptSum) -> tuple[News, ...]:
        """Return what there is to say about a survey; nothing where it was said before.

        Raises:
            RemoteProtocolError: it does not have this site's part in it.
        """
        if self._known is not None and self._known[0] is survey:
            return ()
        faults = self._faults(survey)
        columns = len(self.layout.numeric) + len(self.layout.categories)
        compared = SurveyCompared(len(survey.members), columns, len(faults))
        return (compared, *(SurveyFaultFound(fault) for fault in faults))

    def stop(self, survey: KeptSum) -> SurveyError | None:
        """Return why this site stops after a survey; None where it goes on."""
        faults = self._faults(survey)
        if self.policy == "warn" or not faults:
            return None
        return SurveyError(
            f"the survey shows {len(faults)} probable fault(s) in the records of {self.participant}: "
            + "; ".join(fault.sentence for fault in faults),
            "correct the records and begin a new run; or, if they are right, set policy.survey: warn in "
            "collaborator.yaml and start this site again",
        )

    def _faults(self, survey: KeptSum) -> tuple[SurveyFault, ...]:
        if self._known is None or self._known[0] is not survey:
            is_member = self.participant in survey.members
            spelt = spellings(self.profile)
            faults = survey_faults(survey.header, self.own, self.layout, spelt, is_member=is_member)
            self._known = survey, faults
        return self._known[1]


def spellings(profile: DataProfile | None) -> dict[str, str]:
    """Return by column what is known of spellings that differ only in case."""
    columns = () if profile is None else profile.columns
    return {
        column.name: ", ".join(f"'{one.found}' for '{one.named}'" for one in column.case_variants[:3])
        for column in columns
        if column.case_variants
    }
