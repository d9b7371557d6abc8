//! What a process chooses before it opens a replica: how the service is founded, and how long it waits.

use super::error::ReplicaEnd;
use std::sync::Arc;
use std::time::Duration;
use unisono_core::replica::Durability;
use unisono_core::{ConfigError, EntryMode, Formation, GroupConfig, Quorum, SlowMember};

/// Time after which a member whose application does not receive is excluded.
const SLOW_REPLICA_MAX: Duration = Duration::from_secs(10);
/// Default time for a replica in memory to get the state: 30 s.
pub(super) const OPEN_WITHIN: Duration = Duration::from_secs(30);

/// How a replica enters its service. Founding a service and joining it are different acts: a process that hears no
/// member cannot know that there is none.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Founding {
    /// Founds the service anew, with the state that the program gives, whether or not there is one already. For the
    /// first start of a single copy, and for a new beginning after all copies were lost.
    Create,
    /// Joins the service; waits until there is one.
    Join,
    /// Founds the service together with the other participants of the formation, or not at all.
    Form(Formation),
    /// Joins the service, or forms it together with the other participants if no member answers. The right choice for
    /// processes that are started and restarted by themselves.
    JoinOrForm(Formation),
}

impl Founding {
    /// Returns how the first life enters. Fewer members than can form the service acknowledge nothing: the others may have
    /// formed it anew. What counts there counts here: the participants' names.
    pub(super) fn entry(&self, mut config: GroupConfig) -> EntryMode {
        if let Founding::Form(formation) | Founding::JoinOrForm(formation) = self {
            if Durability::of(&config) != Durability::Ordered {
                config.members_min = config.members_min.max(formation.at_least);
            }
            if config.quorum == Quorum::MajorityOfView {
                config.quorum = Quorum::MajorityOfNamed(formation.participants.clone());
            }
        }
        match self.clone() {
            Founding::Create => EntryMode::Found(config),
            Founding::Join => EntryMode::Join,
            Founding::Form(formation) => EntryMode::Form(formation, config),
            Founding::JoinOrForm(formation) => EntryMode::JoinOrForm(formation, config),
        }
    }
}

/// How a replica works. What concerns the whole service is decided by those that found it; a joiner takes it over.
///
/// ```
/// use unisono::GroupConfig;
/// use unisono::replica::{Durability, ReplicaOptions};
/// // Nothing is ordered while fewer than two members are there.
/// let config = GroupConfig { members_min: 2, ..GroupConfig::default() };
/// let careful = ReplicaOptions { config, ..ReplicaOptions::default() };
/// // A shared object of a parallel program: no copy but the own one matters.
/// let fast = ReplicaOptions { durability: Durability::Ordered, ..ReplicaOptions::default() };
/// # let _ = (careful, fast);
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplicaOptions {
    /// Configuration of the group, if this process founds it. The durability sets the resilience. Where it says
    /// [`SlowMember::Wait`], a member that does not receive is excluded after 10 s all the same, and `keeps_state` is
    /// set. `members_min` is at least that of the formation with which the service is founded, unless it is only
    /// *ordered*. With a formation, *majority of the view* counts only members with the participants' names
    /// ([`Quorum::MajorityOfNamed`]).
    pub config: GroupConfig,
    /// What holds a command before its caller gets the answer, if this process founds the service in memory. On disk all
    /// members hold it, whatever stands here, and [`DiskOptions::durability`](super::DiskOptions::durability) says how many
    /// disks have it.
    pub durability: Durability,
    /// Maximum time until [`Replica::open`](super::Replica::open) or
    /// [`Replica::open_on_disk`](super::Replica::open_on_disk) has the state. `None`, the default, is 30 s in memory, and no
    /// limit on disk: there a server waits until enough others are there, for example when machines boot minutes apart. The
    /// time counts anew as long as the state arrives or is written to the disk, however large it is.
    pub open_within: Option<Duration>,
    /// Maximum time for a command or read of this process. 60 s by default; for a command at most an hour.
    pub command_within: Duration,
}

impl Default for ReplicaOptions {
    fn default() -> ReplicaOptions {
        ReplicaOptions {
            config: GroupConfig::default(),
            durability: Durability::default(),
            open_within: None,
            command_within: Duration::from_secs(60),
        }
    }
}

impl ReplicaOptions {
    /// Refuses a service in which fewer than a majority may go on without what a majority holds.
    pub(super) fn check(&self) -> Result<(), ReplicaEnd> {
        let Quorum::AtLeast(least) = self.config.quorum else { return Ok(()) };
        if self.durability != Durability::HeldByMajority || self.config.quorums_intersect() {
            return Ok(());
        }
        let error = ConfigError {
            parameter: "quorum at least",
            value: least.into(),
            allowed: "more than half of members_max where a majority holds what is answered",
        };
        Err(ReplicaEnd::NotEntered(Arc::new(error.into())))
    }

    /// Returns the configuration with which the group is founded.
    pub(super) fn group_config(&self) -> GroupConfig {
        let slow_member = match self.config.slow_member {
            SlowMember::Wait => SlowMember::ExcludeAfter(SLOW_REPLICA_MAX),
            chosen => chosen,
        };
        let resilience = self.durability.resilience();
        GroupConfig { resilience, slow_member, keeps_state: true, ..self.config.clone() }
    }
}
