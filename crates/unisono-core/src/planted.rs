//! Planted bugs and probes: how the simulator proves that it is awake.
//!
//! A planted bug breaks one rule where that rule is written; a checker must notice within a stated number of seeds.
//! A probe marks a rare state; a long run must have met them all. Without the feature `planted` no bug can be
//! switched on and no state is noted: the core of a real member has neither.

macro_rules! named {
    ($(#[$doc:meta])* $name:ident { $($(#[$item:meta])* $variant:ident,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name {
            $($(#[$item])* $variant,)*
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [$name] = &[$($name::$variant,)*];
        }
    };
}

named! {
    /// A rule that is broken on purpose.
    Planted {
        /// A message is accepted when one member less than its resilience asks for holds it.
        AcceptWithOneAckLess,
        /// The sender of a message counts as a holder, whether it said so or not.
        SenderCountsAsHolder,
        /// A member acknowledges what it has heard of, holes and all.
        AckBeforeHolding,
        /// A member delivers what it holds, accepted or not.
        DeliverTentative,
        /// The sequencer numbers a message that has its number already.
        DuplicateNumbered,
        /// The sequencer numbers what it has of a sender, whether earlier messages are there or not.
        SenderOrderForgotten,
        /// Datagrams of another epoch are taken as of this one.
        OldEpochTaken,
        /// What was held without a number in the old epoch is numbered in the new one.
        HoldKept,
        /// Every send under way is reported failed at a reset, in the log or not.
        KeptReportedFailed,
        /// Who handed the role over goes on numbering.
        OldSequencerGoesOn,
        /// Joins and leaves are accepted like messages at r = 0.
        ChangeAcceptedAlone,
        /// The next join or leave is numbered before the last is accepted.
        NextChangeEarly,
        /// A leaver is gone as soon as its leave is in its log.
        LeaverGoesAtOnce,
        /// A leave is numbered though no quorum of those who stay is there.
        LeaveWithoutQuorum,
        /// A member that promised a ballot goes on storing and acknowledging.
        StoreAfterPromise,
        /// A member that promised a ballot goes on accepting.
        AcceptAfterPromise,
        /// A sequencer that promised a ballot goes on numbering.
        NumberAfterPromise,
        /// A member votes in any ballot, whatever it promised.
        PromiseForgotten,
        /// A proposal that was prepared before is not taken over.
        PreparedIgnored,
        /// The next epoch begins after the last accepted entry: tentative ones are dropped.
        TentativeDropped,
        /// The coordinator takes its own log, though a voter's is longer.
        OwnLogNotLongest,
        /// A member prepares without holding what the next epoch keeps.
        PrepareWithoutHolding,
        /// A coordinator goes on with whoever votes.
        NextViewWithoutQuorum,
        /// A proposal is taken for decided as soon as its coordinator prepared it.
        DecidedAtOnce,
        /// A member purges by its own watermark.
        PurgeByOwnWatermark,
        /// A joiner does not deliver the first message after its join.
        JoinerStartsLate,
        /// The reset event never says that messages may be lost.
        DegradedUnsaid,
        /// Lost places are not asked for.
        NoNack,
        /// The sequencer is silent after its last message.
        NoHeartbeat,
        /// Messages of an excluded sender that are unfinished are kept over the reset.
        UnfinishedKept,
        /// A leave needs only the leaver's word: the sequencer is not told to wait until its messages are numbered.
        LeaveOvertakesMessages,
        /// The history is not bounded.
        HistoryUnbounded,
        /// The role moves though the last join or leave is not accepted.
        RoleMovesOverChange,
        /// The role goes to whoever sent last, however lately it moved.
        RoleFlaps,
        /// Only a founder that is alone looks for other groups, and only for a while.
        OthersUnsought,
        /// Whoever meets another group keeps it to itself.
        ConflictUntold,
        /// A member takes the word of another group of the port that it is out.
        AnyGroupExcludes,
        /// The application is not told that the group stands still.
        HaltedNotTold,
        /// A request that comes again is taken for a new one.
        RepeatRunsAgain,
        /// So is one that a later one in its slot has superseded.
        LowerAttemptRuns,
        /// Any cookie, or none, opens a session.
        CookieUnchecked,
        /// Sessions are forgotten, and cookies from before still open new ones.
        HorizonForgotten,
        /// A client goes elsewhere when a server falls silent, whether the service recognises repeats or not.
        ElsewhereOnSilence,
        /// Another life at a server's address shows that the call was not executed, however young it is.
        OtherLifeBelieved,
        /// A server that pushed a request back takes a copy of it later.
        BusyForgotten,
        /// A server that passed a request on takes a copy of it later.
        PassedOnForgotten,
        /// Calls are passed on without end.
        ForwardsWithoutEnd,
        /// A client does not count how often its call was passed on.
        HopsUncounted,
        /// What a server says of an attempt is taken for the call that has the slot now.
        AnswerToAnyAttempt,
        /// Deadlines pass unnoticed at a client.
        DeadlineForgotten,
        /// Requests are handed out though nobody waits for them any longer.
        ExpiredHandedOut,
        /// Nothing comes of a cancellation.
        CancelIgnored,
        /// Whoever says that it serves a port is believed.
        ProofUnchecked,
        /// A call whose time is over has failed, wherever it was sent.
        LateIsFailed,
        /// A port that was withdrawn is served on.
        WithdrawalForgotten,
        /// A queue takes whatever comes.
        QueueUnbounded,
    }
}

named! {
    /// A rare state worth reaching.
    Probe {
        /// Acceptance waited for an acknowledgement and got it.
        AcceptedByAck,
        /// A member told by itself that enough hold a message.
        AcceptedByOwnTable,
        /// A number came before its data.
        NumberBeforeData,
        /// Data came by BB before its number.
        DataBeforeNumber,
        /// A NACK was answered by somebody who does not order.
        RepairedByMember,
        /// A NACK was repeated.
        NackRepeated,
        /// Nobody keeps the place any more.
        AskedForGone,
        /// Only a heartbeat revealed the last message.
        TailRevealed,
        /// A message was sent again for want of a number.
        Resent,
        /// A message came again that has its number.
        DuplicateRefused,
        /// The sequencer asked a sender for a missing message.
        SenderAsked,
        /// The history was full.
        HistoryFull,
        /// As much was under way as the buffers of sockets hold.
        BuffersFull,
        /// The slowest application shut the window.
        WindowShut,
        /// A sender's window was full.
        SendRefused,
        /// A message of several pieces was delivered.
        PiecesDelivered,
        /// A reset fell into a message of several pieces.
        PiecesGivenUp,
        /// A join waited for the end of a message of several pieces.
        JoinWaitedForPieces,
        /// The role was handed over.
        RoleTaken,
        /// The role moved to a member that sent nearly everything.
        RoleMigrated,
        /// A successor learned of its role from somebody else than its predecessor.
        RoleToldByWitness,
        /// A joiner became a member.
        JoinerEntered,
        /// A join was requested twice.
        JoinRepeated,
        /// A join met a reset.
        JoinMetReset,
        /// A joiner voted.
        JoinerVoted,
        /// Two founders met, and one gave way.
        FounderGaveWay,
        /// Two groups met of which neither could.
        ConflictTold,
        /// A member left.
        LeaverGone,
        /// The sequencer left.
        SequencerLeft,
        /// A leaver voted.
        LeaverVoted,
        /// A leave met a reset.
        LeaveMetReset,
        /// Probes went out after silence and were answered.
        ProbeAnswered,
        /// A member was suspected of being deaf.
        SuspectedDeaf,
        /// A member was suspected for its slowness.
        SuspectedSlow,
        /// This member noticed that it had been asleep.
        WasAsleep,
        /// Two coordinators met.
        TwoCoordinators,
        /// A coordinator was outbid.
        Outbid,
        /// An invitation was ignored: its sender shows no sign of hearing us.
        InvitationUnheard,
        /// A coordinator lacked entries that a voter has.
        CoordinatorPulled,
        /// Somebody lacked entries that the next epoch keeps.
        MemberPulled,
        /// A vote carried a prepared proposal, which was taken over.
        PreparedAdopted,
        /// The view of a reset had an unaccepted change at its end: both sides were asked.
        BothSidesAsked,
        /// A tentative message survived a reset.
        TentativeKept,
        /// A tentative entry was cut off.
        TentativeCut,
        /// A message under way failed.
        SendFailed,
        /// A reset was degraded.
        Degraded,
        /// A coordinator died or fell silent, and another took over.
        CoordinatorReplaced,
        /// Somebody who missed the decision was told.
        DecisionTold,
        /// Nobody of its epoch answered a member, which asked everybody where the group is.
        LeftBehind,
        /// A member learned that it was excluded.
        Excluded,
        /// A reset had no quorum and waited.
        NoQuorum,
        /// A reset brought everybody back.
        NobodyMissing,
        /// A datagram came twice.
        ReplayRefused,
        /// A datagram of an older epoch came.
        StaleRefused,
        /// A frame travelled in parcels.
        ParcelUsed,
        /// A reset found no quorum for the failure detector's time.
        Halted,
        /// A client asked again for want of an answer.
        RequestRepeated,
        /// A request came again that was answered.
        ReplyRepeated,
        /// A request came that a later one in its slot had superseded.
        LowerAttemptDropped,
        /// A session was forgotten.
        SessionForgotten,
        /// Somebody had to show a cookie.
        CookieAsked,
        /// Somebody showed a cookie from before a session was forgotten.
        OldCookieShown,
        /// A request came to another life than it was meant for.
        MeantForAnotherLife,
        /// A server's life was over before the request was sent.
        DeadBefore,
        /// A call went elsewhere since its server fell silent.
        RepeatedElsewhere,
        /// A server was given up.
        ServerGivenUp,
        /// A server pushed a call back.
        PushedBack,
        /// A call was passed on to somebody who had to be asked first.
        ForwardFollowed,
        /// Nobody was where a call was passed on to, or it did not serve the port.
        ForwardAstray,
        /// A call was passed on as often as any.
        ForwardRefused,
        /// A request's time was over when its turn came.
        RequestExpired,
        /// A request was cancelled before its turn came.
        RequestCancelled,
        /// A large request came together.
        RequestPutTogether,
        /// A large reply came together.
        ReplyPutTogether,
        /// Somebody said that it serves a port, and could not prove it.
        ImpostorRefused,
        /// A request waited when its port was withdrawn.
        WithdrawnWaiting,
    }
}

impl Planted {
    /// Breaks a rule of calls, not one of groups.
    pub fn is_of_calls(self) -> bool {
        self >= Planted::RepeatRunsAgain
    }
}

impl Probe {
    /// A state of calls, not one of groups.
    pub fn is_of_calls(self) -> bool {
        self >= Probe::RequestRepeated
    }
}
