"""One file for each invariant; `ALL` is what a run is watched by."""

from tests.sim.checkers.answers import EachRequestIsAnsweredOnce
from tests.sim.checkers.blast import WhoseRecordsAreWholeIsServed
from tests.sim.checkers.calm import BalanceIsCalm
from tests.sim.checkers.commits import CommitsAreFencedAndKept
from tests.sim.checkers.cooperative import CooperativeGivesNothingBack
from tests.sim.checkers.decisions import DecisionsAreExplained
from tests.sim.checkers.durability import RepliesSurviveCrashes
from tests.sim.checkers.epochs import EpochsAreExplained
from tests.sim.checkers.fences import TokensNeverGoDown
from tests.sim.checkers.generations import GenerationsNeverGoBack
from tests.sim.checkers.goes_on import WhatIsHeldGoesOn
from tests.sim.checkers.holds import WhatIsHeldStays
from tests.sim.checkers.lateness import WhoSentInTimeIsNotExpired
from tests.sim.checkers.operators import OperatorsAreTold
from tests.sim.checkers.ownership import NothingIsOwnedTwice
from tests.sim.checkers.planners import WhoIsToPlanPlans
from tests.sim.checkers.refusals import RefusalsChangeNothing
from tests.sim.checkers.replay import ReplayEqualsLive
from tests.sim.checkers.rights import NobodyIsGivenWhatHeMayNotRead
from tests.sim.checkers.room import AFullDiskStopsOnlyWrites
from tests.sim.checkers.settings import AcknowledgedSettingsStay
from tests.sim.checkers.trials import TrialsHarmNobody

ALL = (
    NothingIsOwnedTwice,
    GenerationsNeverGoBack,
    RepliesSurviveCrashes,
    ReplayEqualsLive,
    CommitsAreFencedAndKept,
    EachRequestIsAnsweredOnce,
    CooperativeGivesNothingBack,
    DecisionsAreExplained,
    EpochsAreExplained,
    RefusalsChangeNothing,
    WhoSentInTimeIsNotExpired,
    WhoseRecordsAreWholeIsServed,
    AFullDiskStopsOnlyWrites,
    OperatorsAreTold,
    WhoIsToPlanPlans,
    AcknowledgedSettingsStay,
    WhatIsHeldStays,
    WhatIsHeldGoesOn,
    TrialsHarmNobody,
    BalanceIsCalm,
    TokensNeverGoDown,
    NobodyIsGivenWhatHeMayNotRead,
)
