//! Planted bugs and probes: with them the simulator proves that its checkers work.
//!
//! A planted bug breaks one rule where that rule is written; a checker must notice it within a stated number of seeds.
//! A probe marks a rare state; a long run must reach all of them. Without the feature `planted` no bug can be switched
//! on and no state is recorded: the core of a real member has neither.

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$item])* $variant,)*
        }

        impl $name {
            /// All variants.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
        }
    };
}

named! {
    /// A rule that is broken on purpose.
    Planted {
        /// A message is accepted when one member less than its resilience requires holds it.
        AcceptWithOneAckLess,
        /// Half of a view counts as a majority.
        MajorityIsHalf,
        /// A message of quality total is accepted when a majority holds it.
        TotalCountsMajority,
        /// A group whose quorums need not intersect takes messages that a majority, or all, must hold.
        MajorityUnderAtLeast,
        /// A message that asks for more than the group's resilience needs one holder less than it asks for.
        ResilientOffByOne,
        /// A message that was delivered early is delivered again at its seqno.
        EarlyDeliveredAgain,
        /// A member goes on delivering early after it promised a reset.
        EarlyAfterPromise,
        /// A source ordered message is delivered on receipt, whatever its sender sent before.
        SourceOrderOnReceipt,
        /// A vote does not say what its voter delivered early.
        EarlyLeftOutOfVotes,
        /// A proposal keeps only what its coordinator delivered early.
        TailOfCoordinatorOnly,
        /// A joiner delivers early before its own join is accepted.
        EarlyByJoiner,
        /// What is kept of early messages is not in the order of senders and numbers.
        TailUnsorted,
        /// A reset also keeps early messages that the kept log has.
        TailThoughNumbered,
        /// A member that prepares a proposal puts what it keeps of early messages into its log.
        TailFiledBeforeDecided,
        /// A coordinator that adopts a proposal prepared before keeps the early messages of its own voters.
        TailMadeAnew,
        /// A member that gives the role away forgets what it has delivered early.
        EarlyForgottenAtHandOver,
        /// A member that promises a reset forgets the early messages that have seqnos.
        EarlyForgottenWhenNumbered,
        /// A reset reports the sender's messages as ok through the last one that it keeps.
        OutcomesByPrefix,
        /// A message that a reset keeps because it was delivered early is reported as failed.
        FailedThoughInTail,
        /// Any number of messages may be early.
        EarlyUnbounded,
        /// A message of the quality *majority* asks for a majority of the view at the end of the log.
        MajorityOfViewAbove,
        /// An unreliable message takes a number of the messages that get seqnos.
        UnreliableSharesNumbers,
        /// The unreliable messages of a datagram that arrives twice are delivered twice.
        UnreliableTwice,
        /// The sender of a message counts as a holder, even if it has not acknowledged it.
        SenderCountsAsHolder,
        /// A member acknowledges everything that it knows of, gaps included.
        AckBeforeHolding,
        /// A member delivers everything that it holds, accepted or not.
        DeliverTentative,
        /// The sequencer numbers a message that has a seqno already.
        DuplicateNumbered,
        /// The sequencer numbers a message whether or not it has the earlier ones of its sender.
        SenderOrderForgotten,
        /// A member takes datagrams of another epoch for datagrams of this one.
        OldEpochTaken,
        /// Data without a seqno in the old epoch is numbered in the new one.
        UnorderedKept,
        /// A reset reports every message under way as failed, even if it is in the log.
        KeptReportedFailed,
        /// A sequencer that handed the role over goes on numbering.
        OldSequencerGoesOn,
        /// Joins and leaves are accepted like messages at r = 0.
        ChangeAcceptedAlone,
        /// The next join or leave is numbered before the last one is accepted.
        NextChangeEarly,
        /// A leaver stops as soon as its leave is accepted.
        LeaverGoesAtOnce,
        /// A leave is numbered although the members that stay are no quorum.
        LeaveWithoutQuorum,
        /// A member that promised a ballot goes on storing and acknowledging.
        StoreAfterPromise,
        /// A member that promised a ballot goes on accepting.
        AcceptAfterPromise,
        /// A sequencer that promised a ballot goes on numbering.
        NumberAfterPromise,
        /// A member votes in any ballot, whatever it has promised.
        PromiseForgotten,
        /// A coordinator does not adopt a proposal that was prepared before.
        PreparedIgnored,
        /// The next epoch begins after the last accepted entry: tentative entries are dropped.
        TentativeDropped,
        /// The coordinator takes its own log although a voter's is longer.
        OwnLogNotLongest,
        /// A member prepares without holding what the next epoch keeps.
        PrepareWithoutHolding,
        /// A coordinator goes on with any voters, quorum or not.
        NextViewWithoutQuorum,
        /// A proposal counts as decided as soon as its coordinator has prepared it.
        DecidedAtOnce,
        /// A member purges by its own watermark alone.
        PurgeByOwnWatermark,
        /// A joiner does not deliver the first message after its join.
        JoinerStartsLate,
        /// The reset event never reports that messages may be lost.
        DegradedUnsaid,
        /// A member does not request lost seqnos.
        NoNack,
        /// The sequencer sends no heartbeat after its last message.
        NoHeartbeat,
        /// A reset keeps unfinished messages of an excluded sender.
        UnfinishedKept,
        /// A leaver requests its leave before all its messages have a seqno.
        LeaveOvertakesMessages,
        /// The history is not bounded.
        HistoryUnbounded,
        /// The role moves although the last join or leave is not accepted.
        RoleMovesOverChange,
        /// The role moves to the member that sent last, however recently it moved.
        RoleFlaps,
        /// Only a founder that is alone looks for other groups, and only for a while.
        OthersUnsought,
        /// A member that meets another group does not report it.
        ConflictUntold,
        /// Members answer an accept.
        AcceptAnswered,
        /// A member believes another group of the port that it was excluded.
        AnyGroupExcludes,
        /// The application gets no `Halted`.
        HaltedNotTold,
        /// The sequencer numbers messages while the view has fewer members than the group's minimum.
        ServesBelowMinimum,
        /// A process that is only to join or form founds a group alone when it hears no answer.
        FoundsAfterSilence,
        /// The answer of a halted group keeps a participant silent in its formation until its time is over.
        HaltedAnswerKept,
        /// Of two groups that meet, chance decides which gives way, not the number of events ordered.
        GivesWayByLot,
        /// A member that promised a ballot confirms.
        ConfirmedByPromised,
        /// A confirmation counts one member that has not answered.
        ConfirmedEarly,
        /// A confirmation does not heed how far the logs of those that answer go.
        ConfirmIgnoresEnds,
        /// A member goes on after its life has ended.
        EndedAcknowledges,
        /// A participant of a formation prepares what a recording of an earlier start proposes.
        PrepareUnechoed,
        /// A participant promises the ballot of a coordinator that may be dead since an earlier start.
        PromiseUnechoed,
        /// Any cookie admits a joiner.
        JoinCookieUnchecked,
        /// A member takes copies of a datagram, and recordings of this epoch.
        ReplayTaken,
        /// A member notes the number of a datagram before it knows that the datagram is genuine.
        WindowBeforeOpening,
        /// A member seals all its datagrams under one number.
        NumberNotCounted,
        /// A member that answers and does not get on is excluded only when the window or the history is full.
        ProgressNotLookedAt,
        /// In a ring a pass that numbered nothing calls for another one.
        NullPassCalls,
        /// In a ring the token goes to the next but one.
        PassSkipsNext,
        /// In a ring the token goes to the member before, not to the next.
        PassGoesBack,
        /// In a ring no member repeats a pass that was lost.
        PassNotRepeated,
        /// In a ring a confirmation may name a pass, which is no event.
        ConfirmNamesPass,
        /// In a ring a member takes the token as soon as it knows the pass, whatever it lacks below.
        TokenTakenWithHole,
        /// In a ring a member takes the token once more at each input, by the pass by which it has taken it already.
        TokenTakenTwice,
        /// In a ring passes take no room in the history: as many messages are numbered as if it had none.
        PassesLeftOutOfRoom,
        /// In a ring the token rests while messages wait for room.
        RestsOnFullWindow,
        /// In a ring a member keeps the token though its own application stands still and all others wait for it.
        StuckSiteKeepsToken,
        /// In a ring the token goes round while members join, leave, listen or are suspected.
        PassedWhileUnsettled,
        /// In a ring a member that was asked to admit a joiner gives the token on as soon as it comes.
        JoinerForgottenAtPass,
        /// In a ring a member that is asked for the group names itself, though the token rests elsewhere.
        AskedAtRestNamesItself,
        /// In a ring a member that takes the token drops what it holds without seqnos.
        WaitingDroppedAtPass,
        /// In a ring a pass is repeated by its giver alone.
        PassToldByGiverAlone,
        /// In a ring a member that hears all but this one's multicasts is not sent copies.
        DeafMemberUnnoticed,
        /// A member returns the stamp of an earlier sequencer to a later one, which takes it for proof that it is heard.
        StampOfAnotherTerm,
        /// In a ring the token rests as soon as its holder knows that enough members hold the last message, its sender or not.
        OwnHoldingCounted,
        /// In a ring each member bounds the bytes that it numbers itself, not those that all number.
        OwnBytesAloneCounted,
        /// The token moves, and the next change is numbered, before a switch of the order is accepted.
        SwitchBeforeAcceptance,
        /// Whether an event that names a sequencer is a pass is told by the order at the end of the log.
        SwitchByEnd,
        /// A joiner is told the order with which the group was founded.
        SwitchNotInBase,
        /// A switch of the order that a reset cuts off stays in force.
        SwitchKeptOverCut,
        /// A reset heeds the floor of its coordinator alone.
        FloorOfCoordinator,
        /// Members that go on after a reset ask for no floor any more.
        FloorForgotten,
        /// The floor of a member that left or was excluded stays in force.
        FloorKeptAfterLeave,
        /// Multicasts go as far as the member asks that joined last.
        HopsOfLastJoiner,
        /// A member takes over a client from outside without asking what its former relay still sends.
        RelayChangedEarly,
        /// A member forgets the clients from outside by its own clock.
        ClientForgottenByClock,
        /// A repeated request is taken for a new one.
        RepeatRunsAgain,
        /// A request that a later one in its slot has superseded is executed.
        LowerAttemptRuns,
        /// Any cookie, or none, opens a session.
        CookieUnchecked,
        /// Sessions are forgotten, and cookies from before that still open new ones.
        HorizonForgotten,
        /// A client goes to another server when a server falls silent, even if the service does not recognise repeats.
        ElsewhereOnSilence,
        /// Another life at a server's address shows that the call was not executed, however young that life is.
        OtherLifeBelieved,
        /// A server that pushed a request back executes a copy of it later.
        BusyForgotten,
        /// A server that passed a request on executes a copy of it later.
        PassedOnForgotten,
        /// Calls are passed on without limit.
        ForwardsWithoutEnd,
        /// A client does not count how often its call was passed on.
        HopsUncounted,
        /// A server's answer to any attempt is taken for an answer to the call that has the slot now.
        AnswerToAnyAttempt,
        /// A client does not notice deadlines.
        DeadlineForgotten,
        /// A server hands out requests for which no client waits any longer.
        ExpiredHandedOut,
        /// A cancellation has no effect.
        CancelIgnored,
        /// A process that claims to serve a port is believed without proof.
        ProofUnchecked,
        /// A server signs an answer to every copy of a question, and a client checks every copy of an answer.
        SignsEachCopy,
        /// A frame about an attempt is believed whatever address it comes from.
        AnswerFromAnywhere,
        /// A call whose time is over is reported as failed, wherever it was sent.
        LateIsFailed,
        /// A server goes on serving a port that was withdrawn.
        WithdrawalForgotten,
        /// A queue has no bound.
        QueueUnbounded,
        /// A call that may have happened is repeated at a server of another instance.
        RepeatsAtOtherInstance,
        /// Of the clients of a queue of which half is used, those that have nothing there are refused.
        InnocentRefusedFirst,
        /// The places of a queue have a share for each life, and none for each address.
        ShareOfLifeAlone,
        /// A member that was excluded founds a group if it finds none.
        ExcludedFounds,
        /// A read is answered without a confirmation.
        ReadUnconfirmed,
        /// A snapshot lacks the memory of commands.
        MemoryNotInSnapshot,
        /// A client's outcomes are forgotten when another client gives a command.
        MemoryFreedEarly,
        /// A newcomer that changes donors keeps the first pieces of the former list.
        DonorsMixed,
        /// A newcomer takes a piece whatever its digest is.
        PieceUnchecked,
        /// A state machine is shown the members after the next command that was received here.
        MembersElsewhere,
        /// A copy goes on whatever the digests of the others are.
        ChainUncompared,
        /// A command is applied and answered before disks have it.
        AnsweredUndurable,
        /// A server announces what its disk has not synced yet.
        AnnouncedUnsynced,
        /// Servers go on from any of their logs, not from the highest.
        AnyLogChosen,
        /// Logs are compared by their length, whatever their generation.
        LogsByLength,
        /// Logs are compared by the generation in which their last entry was written.
        LogsByLastEpoch,
        /// A generation is promised before it is on disk.
        PromiseUnsynced,
        /// A server says that it has adopted the chosen state before its disk has it.
        BaseUnsynced,
        /// A blank disk counts as a good one.
        BlankCounted,
        /// A disk counts although another server has written down that it had more.
        OldImageAccepted,
        /// A disk gets the new generation before it has the state that goes with it.
        AdoptedInPlace,
        /// The end of a write of an earlier life says that the disk has the state of a later one.
        EarlierStateCounts,
        /// A majority of the last view goes on, not one of the configured servers.
        QuorumOfView,
        /// A confirmed read shows what the server holds, durable or not.
        ReadShowsUndurable,
        /// A disk that is not done with a job after 10 s counts as hung, although it gets on.
        ClockPerJob,
        /// A snapshot on disk claims to contain what was not applied yet.
        SnapshotBeyondApplied,
        /// The log is cut before the block that names the snapshot is on disk.
        LogCutFirst,
        /// A snapshot is named before its parts are synced.
        PartsUnsynced,
        /// That the disk gets on with a snapshot is forgotten.
        SnapshotProgressForgotten,
        /// A replay begins with entries that the snapshot contains.
        ReplayNotSkipped,
        /// A log with a damaged middle is cut there, as if that were a torn tail.
        MiddleCut,
        /// Records that a recycled file holds of an earlier log are taken for records of the new one.
        RecycledTaken,
        /// The zeros that follow the last record of a log are taken for damaged records.
        ZerosTakenForTorn,
        /// A majority of the servers creates the service.
        CreatedByMajority,
        /// With durability one: a view serves, and no disk has it.
        ViewUnwritten,
        /// With durability one: a server serves a view as soon as its own disk has it.
        ViewWrittenByOne,
        /// With durability one: a view is written before the log below it.
        ViewBeforeLog,
        /// With durability one: servers wait for those that no disk mourns, not for the last view.
        MournedUnion,
        /// With durability one: a server that was up since it wrote any view stands in for the others.
        AnySurvivor,
        /// With durability one: a survivor forgets what it held and had not written.
        SurvivorForgets,
        /// With durability one: a joiner's disk counts before the members have written its view.
        JoinerCountedEarly,
        /// A reset goes on without the members that have the state.
        StateLeftBehind,
        /// A member that lacks the state counts towards the minimum of a service in memory.
        NewcomerCounted,
        /// A second process of a name that has one vote is admitted while the first is in the view.
        DoubledNameCounted,
        /// The first two claims of a line both have the lock.
        LockHeldByTwo,
        /// A holder whose member has gone keeps its lock.
        LockKeptByExcluded,
        /// A state machine frees the locks of a member that has gone only with the next command.
        LockFreedElsewhere,
        /// The fence of a grant is the fence before, if the clock of the claim is not later.
        FenceRepeats,
        /// Fences count grants alone, whatever the clocks say: they fall when the locks are founded anew.
        FenceWithoutClock,
        /// When a holder releases its lock, the second in line gets it.
        LockWaiterSkipped,
        /// A member that receives a request for a handler answers it, whether or not it holds the handler.
        HandlerAnsweredByReceiver,
        /// A member to which a request for a handler was forwarded answers it, although it does not hold the handler any more.
        HandlerAnsweredByForwarded,
        /// A member that has gone keeps its handlers.
        HandlerOfDeadKept,
        /// A command that would be refused is ordered.
        CapabilityUnlooked,
        /// A command is refused by a state that may be behind.
        RefusedUnconfirmed,
        /// A command is refused by a state although an earlier attempt at it was executed.
        RepeatRefusedEarly,
        /// One disk fewer than a majority of the servers makes an entry durable.
        OneMarkLess,
        /// The members of the view alone are counted: a majority of them makes an entry durable.
        MarksOfView,
        /// A newcomer says a mark before its disk has the state.
        MarkBeforeState,
        /// A server counts what it holds as synced by itself.
        OwnPlaceUnsynced,
        /// What the sequencer alone holds is accepted, in a group whose members keep what they hold on disk.
        AcceptedBySequencerAlone,
        /// A read waits for what its server held, whatever the others that confirm hold.
        ReadWaitsForOwnEnd,
        /// With durability one: a majority of the members makes an entry accepted.
        OneAcceptedByMajority,
        /// A command is executed however long its client may wait for the outcome.
        DeadlineUnbounded,
        /// A server that comes again says the mark of its former life in the present generation.
        MarkOfFormerLife,
        /// A mark is said once, whatever becomes of the datagram.
        MarkNotRepeated,
        /// With durability one: what a reset carried over counts before the members have written their new view.
        CarriedOverCounted,
    }
}

named! {
    /// A rare state that a long run should reach.
    Probe {
        /// Acceptance waited for an acknowledgement and got it.
        AcceptedByAck,
        /// A member inferred by itself that enough members hold a message.
        AcceptedByOwnTable,
        /// A seqno arrived before its data.
        NumberBeforeData,
        /// Data arrived by BB before its seqno.
        DataBeforeNumber,
        /// A NACK was answered by a member that is not sequencer.
        RepairedByMember,
        /// A NACK was repeated.
        NackRepeated,
        /// A NACK asked for a seqno that every member had held and that was freed.
        AskedForGone,
        /// Only a heartbeat revealed the last message.
        TailRevealed,
        /// A message was resent because no seqno came.
        Resent,
        /// A message arrived again that has a seqno already.
        DuplicateRefused,
        /// The sequencer requested a missing message from its sender.
        SenderAsked,
        /// The history was full.
        HistoryFull,
        /// As many bytes were under way as the sockets hold.
        BuffersFull,
        /// The slowest application shut the window.
        WindowShut,
        /// A sender's window was full.
        SendRefused,
        /// A message of several pieces was delivered.
        PiecesDelivered,
        /// A reset discarded an unfinished message of several pieces.
        PiecesGivenUp,
        /// A join waited for the end of a message of several pieces.
        JoinWaitedForPieces,
        /// The role was handed over.
        RoleTaken,
        /// The role moved to a member that sent nearly everything.
        RoleMigrated,
        /// A successor learned of its role from a member other than its predecessor.
        RoleToldByWitness,
        /// A joiner became a member.
        JoinerEntered,
        /// A join was requested twice.
        JoinRepeated,
        /// A reset interrupted a join.
        JoinMetReset,
        /// A joiner voted.
        JoinerVoted,
        /// Two founders met, and one gave way.
        FounderGaveWay,
        /// Two groups met, and neither could give way.
        ConflictTold,
        /// A member left.
        LeaverGone,
        /// The sequencer left.
        SequencerLeft,
        /// A leaver voted.
        LeaverVoted,
        /// A reset interrupted a leave.
        LeaveMetReset,
        /// Probes went out after silence and were answered.
        ProbeAnswered,
        /// A member was suspected of being deaf.
        SuspectedDeaf,
        /// A member was suspected of being slow.
        SuspectedSlow,
        /// A sequencer that kept the others waiting gave the role away.
        GaveWay,
        /// This member noticed that it had been asleep.
        WasAsleep,
        /// Two coordinators met.
        TwoCoordinators,
        /// A coordinator was outbid.
        Outbid,
        /// An invitation was ignored, because its sender shows no sign of receiving our datagrams.
        InvitationUnheard,
        /// A coordinator lacked entries that a voter has.
        CoordinatorPulled,
        /// A member lacked entries that the next epoch keeps.
        MemberPulled,
        /// A vote carried a prepared proposal, which the coordinator adopted.
        PreparedAdopted,
        /// The view of a reset had an unaccepted change at its end, so members of both sides were asked.
        BothSidesAsked,
        /// A tentative message survived a reset.
        TentativeKept,
        /// A reset kept a message that was delivered early and had no seqno.
        TailKept,
        /// A reset kept a message that was delivered early, and failed an earlier one of its sender.
        TailWithHole,
        /// A coordinator adopted a proposal that keeps messages that were delivered early.
        TailAdopted,
        /// A member that had prepared one coordinator's proposal prepared another one's, which keeps other early messages.
        TailsDiffer,
        /// A tentative entry was dropped.
        TentativeCut,
        /// A message under way failed.
        SendFailed,
        /// A reset was degraded.
        Degraded,
        /// A coordinator died or fell silent, and another took over.
        CoordinatorReplaced,
        /// A member that missed the decision received it later.
        DecisionTold,
        /// No member of its epoch answered a member, which then asked all known addresses where the group is.
        LeftBehind,
        /// A member learned that it was excluded.
        Excluded,
        /// A reset had no quorum and waited.
        NoQuorum,
        /// A reset with a quorum waited for more members, because a member asks for them.
        FloorAwaited,
        /// A reset brought all members back.
        NoneMissing,
        /// A datagram arrived twice.
        ReplayRefused,
        /// A datagram of another epoch arrived.
        StaleRefused,
        /// A frame travelled in parcels.
        ParcelUsed,
        /// An unreliable message arrived before its receiver's application knew its sender.
        UnreliableHeld,
        /// A reset found no quorum for the failure detector's time.
        Halted,
        /// A confirmation asked members again.
        ConfirmRepeated,
        /// A confirmation began anew after a reset.
        ConfirmMetReset,
        /// A confirmation waited for entries that a member that answered holds.
        ConfirmWaitedForEntries,
        /// A life ended at once.
        EndedAtOnce,
        /// A client repeated a request because no answer came.
        RequestRepeated,
        /// A request arrived again that had been answered.
        ReplyRepeated,
        /// A request arrived that a later one in its slot had superseded.
        LowerAttemptDropped,
        /// A session was forgotten.
        SessionForgotten,
        /// A client had to show a cookie.
        CookieAsked,
        /// A client showed a cookie from before a session was forgotten.
        OldCookieShown,
        /// A request reached another life than the one it was meant for.
        MeantForAnotherLife,
        /// A server's life was over before the request was sent.
        DeadBefore,
        /// A call went to another server because its server fell silent.
        RepeatedElsewhere,
        /// A server was given up.
        ServerGivenUp,
        /// A server pushed a call back.
        PushedBack,
        /// A call was passed on to a server that had to prove first that it serves the port.
        ForwardFollowed,
        /// A call was passed on to an address without a server, or to one that did not serve the port.
        ForwardAstray,
        /// A call was passed on the maximum number of times.
        ForwardRefused,
        /// A request's time was over when its turn came.
        RequestExpired,
        /// A request was cancelled before its turn came.
        RequestCancelled,
        /// A large request was reassembled.
        RequestPutTogether,
        /// A large reply was reassembled.
        ReplyPutTogether,
        /// A process claimed to serve a port and could not prove it.
        ImpostorRefused,
        /// A signature was not made or not checked, because too many were asked for.
        ProofBudgetSpent,
        /// A request waited when its port was withdrawn.
        WithdrawnWaiting,
        /// A server of another instance than the client's answered.
        OtherInstanceMet,
        /// A newcomer got the state from a donor.
        StateFetched,
        /// A piece of a state did not have the digest that it was listed with.
        PieceSpoiled,
        /// A newcomer changed donors while pieces were missing.
        DonorChanged,
        /// A newcomer had to forget events that waited for the state.
        BacklogFull,
        /// The outcomes of a copy differed from those of a majority.
        CopyDiffers,
        /// A reset with a quorum waited for a member that has the state.
        StateAwaited,
        /// The beginning of a large request was handed out before the rest had arrived.
        BeginningHandedOut,
    }
}

impl Planted {
    /// True if it breaks a rule of calls, not one of groups.
    pub fn is_of_calls(self) -> bool {
        (Planted::RepeatRunsAgain..Planted::ExcludedFounds).contains(&self)
    }

    /// True if it breaks a rule of replicated state.
    pub fn is_of_replicas(self) -> bool {
        self >= Planted::ExcludedFounds
    }
}

impl Probe {
    /// True if it is a state of calls, not one of groups.
    pub fn is_of_calls(self) -> bool {
        (Probe::RequestRepeated..Probe::StateFetched).contains(&self)
    }

    /// True if it is a state of replicas.
    pub fn is_of_replicas(self) -> bool {
        self >= Probe::StateFetched
    }
}
