//! What a process chooses before it enters a group: its name, its address, its key, and whom to ask.

use crate::key::Key;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use unisono_core::rpc::CallSettings;
use unisono_core::{Name, Settings};

/// The UDP port of a seed that is given without one.
pub const DEFAULT_PORT: u16 = 7195;

/// How this process takes part. The default needs no configuration and stays on this machine's loopback.
///
/// ```
/// use unisono::Options;
/// let mine = Options::default();
/// let named = Options { name: unisono::Name::new("left hand").unwrap(), ..Options::default() };
/// # let _ = (mine, named);
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// What people call this member. By default the name of the host and the number of the process.
    pub name: Name,
    /// The address to send from and to be reached at; port 0 takes any free one. By default 127.0.0.1 without
    /// a key, and with one the address from which the seeds, or else the default route, are reached. 0.0.0.0 and
    /// `[::]` hear what comes to any address of this machine; others are told that same one, and see only it.
    pub bind: Option<SocketAddr>,
    /// The interface for multicast, named by its address. By default the one that has the bound address.
    pub multicast_interface: Option<Ipv4Addr>,
    /// Seals everything that is sent; who does not hold it can neither read nor take part. Without one,
    /// nothing leaves this machine unless `insecure` is set.
    pub key: Option<Key>,
    /// Members to ask for the group, each `HOST:PORT` or a DNS name (whose addresses are all asked, at
    /// [`DEFAULT_PORT`] unless another is given). By default the group is looked for by multicast.
    pub seeds: Vec<String>,
    /// How long names among the seeds are looked up again while none of the seeds has an address: a first process of many
    /// that start together has no DNS record yet. Joins and services wait so, founders and calls do not. After this time a join fails with [`OpenError::Seeds`](crate::OpenError::Seeds); it
    /// does so at once if this is zero. A warning in the log says that it waits. 30 s by default.
    pub seeds_timeout: Duration,
    /// Leave the machine without a key all the same.
    pub insecure: bool,
    /// How long a thread that waits looks at the sockets again and again before it sleeps. Nothing by
    /// default: it makes round trips faster and costs a processor.
    pub spin: Duration,
    /// The protocol's own settings, [`Transport`](crate::Transport) among them.
    pub settings: Settings,
    /// Those of [calls](crate::rpc).
    pub calls: CallSettings,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            name: default_name(),
            bind: None,
            multicast_interface: None,
            key: None,
            seeds: Vec::new(),
            seeds_timeout: Duration::from_secs(30),
            insecure: false,
            spin: Duration::ZERO,
            settings: Settings::default(),
            calls: CallSettings::default(),
        }
    }
}

/// The name of the host and the number of the process; the number alone if that is too long.
fn default_name() -> Name {
    let (host, process) = (rustix::system::uname(), std::process::id());
    Name::new(&format!("{}-{process}", host.nodename().to_string_lossy()))
        .or_else(|| Name::new(&process.to_string()))
        .unwrap_or_default()
}
