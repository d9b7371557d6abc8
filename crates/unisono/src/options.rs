//! What a process chooses before it enters a group: its name, its address, its key, and the members to ask.

use crate::key::Key;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use unisono_core::rpc::CallSettings;
use unisono_core::{Name, Settings};

/// UDP port of a seed that is given without one.
pub const DEFAULT_PORT: u16 = 7195;

/// How a process takes part. The default needs no configuration and stays on this machine's loopback.
///
/// ```
/// use unisono::Options;
/// let mine = Options::default();
/// let named = Options { name: "left hand".parse()?, ..Options::default() };
/// # let _ = (mine, named);
/// # Ok::<(), unisono::NameError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of this member, for people. By default the name of the host and the number of the process.
    pub name: Name,
    /// Address to send from and to receive at; port 0 means any free one. By default 127.0.0.1 without a key; with a
    /// key, the address from which the first seed with a route, or else the default route, is reached, and never one of
    /// loopback, unless this machine has no other interface. If this machine loses that address and gets another one,
    /// clients, services and a member that is alone go on at that one; any other member ends
    /// ([`Ended::Moved`](crate::Ended::Moved)) and may join again.
    /// With 0.0.0.0 the process receives at all IPv4 addresses of this machine, with `[::]` at those of IPv6 too, but the
    /// other members learn only the default one, and receive from that one. A client of calls without an address of its
    /// own here asks each seed from the address that reaches it.
    pub bind: Option<SocketAddr>,
    /// Interface for multicast, named by its address. By default the one that has the bound address.
    pub multicast_interface: Option<Ipv4Addr>,
    /// Key that seals all datagrams; a process without it can neither read them nor take part. Without a key no
    /// datagram leaves this machine, unless `insecure` is set.
    pub key: Option<Key>,
    /// Members to ask for the group, each `HOST:PORT` or a DNS name, at [`DEFAULT_PORT`] unless another port is
    /// given. All addresses of a name are asked, of both IP versions unless `bind` names an address of one. A member has one
    /// address: if it reaches the seeds from several, it looks for the group from each of them in turn. By default there are none, and the group is looked for by multicast.
    pub seeds: Vec<String>,
    /// How long the names among the seeds are looked up again while none of the seeds has an address. 30 s by default:
    /// the first of several processes that start together may have no DNS record yet. Meanwhile a warning is in the
    /// log. After this time a join fails with [`OpenError::Seeds`](crate::OpenError::Seeds); with zero, at once. Joins
    /// and services wait; `create` and clients of calls do not. For the same time each member waits while this machine has
    /// no address yet ([`OpenError::NoAddressYet`](crate::OpenError::NoAddressYet)); clients and services begin without one.
    pub seeds_timeout: Duration,
    /// True if datagrams may leave this machine without a key. Then anyone on the network can read and forge them.
    pub insecure: bool,
    /// Time for which a waiting thread polls the sockets before it sleeps. Zero by default; a longer time makes round
    /// trips faster and occupies a processor.
    pub spin: Duration,
    /// Settings of the group protocol, [`Transport`](crate::Transport) among them.
    pub settings: Settings,
    /// Settings of [calls](crate::rpc).
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

/// Returns the name of the host and the number of the process; the number alone if that is too long.
fn default_name() -> Name {
    let (host, process) = (rustix::system::uname(), std::process::id());
    Name::new(&format!("{}-{process}", host.nodename().to_string_lossy()))
        .or_else(|| Name::new(&process.to_string()))
        .unwrap_or_default()
}
