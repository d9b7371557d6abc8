//! Sets up, finds and removes the network namespaces of labs.
//!
//! The only record of a lab is the kernel's list of named namespaces; the alias of the bridge holds the plan of its
//! network. A lab that belongs to one run of a command is temporary. That run removes it when it ends, also on a signal
//! (by a guard, and by a thread that waits for signals). If the run is killed, the next process that sets up a lab
//! removes it. The owner of a lab holds a lock on the namespace of the bridge; the kernel releases the lock when the
//! owner dies.

use super::quality::{Loss, Rate};
use super::tools;
use crate::output::{self, tell};
use crate::problem::Problem;
use crate::signals;
use anyhow::Context;
use rustix::fs::{FlockOperation, flock};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use signal_hook::iterator::Signals;
use std::fmt::Write;
use std::fs::File;
use std::io::ErrorKind;
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// Maximum number of hosts in a lab.
pub(crate) const HOSTS_MAX: u16 = 250;
/// Folder of the kernel's named namespaces.
const NAMESPACES: &str = "/run/netns";
/// Locked while a lab is claimed. (`ip` locks the folder above itself.)
const CLAIMING: &str = "/run/unisono-labs.lock";
/// Prefix of the names of all namespaces of labs.
const PREFIX: &str = "unisono-";
/// Suffix of the name of the bridge's namespace.
const SWITCH: &str = "-switch";
/// Prefix of the names of temporary labs.
pub(super) const TEMPORARY: &str = "bench-";
const NAME_BYTES_MAX: usize = 40;

/// Bytes of an Ethernet frame that the kernel does not count: preamble, checksum, gap.
const FRAME_EXTRA_BYTES: u64 = 24;
/// Length of the shortest frame, these bytes included.
const FRAME_BYTES_MIN: u64 = 84;
/// Length of the longest frame, these bytes included.
const FRAME_BYTES_MAX: u64 = 1538;
/// Queue of a host for the segment, as transmission time: 100 ms. Longer queues would only add delay.
const QUEUE_MS: u64 = 100;
/// Minimum length of that queue, in frames.
const QUEUE_FRAMES_MIN: u64 = 16;

/// The labs that this process must remove before it ends. The lock is held while a lab is set up or removed; a signal
/// that ends the process takes the lock for good.
static STANDING: Mutex<Vec<Lab>> = Mutex::new(Vec::new());

/// The plan of a lab.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Plan {
    pub(crate) hosts: u16,
    /// Speed of the segment that all hosts share; unlimited if none.
    pub(crate) rate: Option<Rate>,
    pub(crate) loss: Option<Loss>,
    /// True if hosts do not report closed ports, so that the death of a process causes only silence.
    pub(crate) silent: bool,
}

impl Plan {
    /// Returns the plan as text for people.
    pub(crate) fn words(&self) -> String {
        let mut words = format!("{} hosts", self.hosts);
        if let Some(rate) = self.rate {
            let _ = write!(words, " on one segment of {rate}");
        }
        if let Some(loss) = self.loss {
            let _ = write!(words, ", {loss} lost");
        }
        words
    }

    /// Returns the plan as the bridge's alias.
    fn alias(&self) -> String {
        let rate = self.rate.map(|rate| rate.to_string()).unwrap_or_default();
        let loss = self.loss.map(|loss| loss.to_string()).unwrap_or_default();
        format!("hosts={};rate={rate};loss={loss};silent={}", self.hosts, self.silent)
    }

    fn from_alias(alias: &str) -> Option<Plan> {
        let value = |name: &str| {
            alias.split(';').find_map(|part| part.split_once('=').filter(|(key, _)| *key == name))
        };
        Some(Plan {
            hosts: value("hosts")?.1.parse().ok()?,
            rate: value("rate")?.1.parse().ok(),
            loss: value("loss")?.1.parse().ok(),
            silent: value("silent")?.1 == "true",
        })
    }

    fn tools(&self) -> Vec<&'static str> {
        let filtered = self.loss.is_some() || self.silent;
        let mut tools = vec!["ip"];
        tools.extend(self.rate.map(|_| "tc"));
        tools.extend(filtered.then_some("iptables"));
        tools
    }
}

/// A lab that is up.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Lab {
    name: String,
    plan: Plan,
}

/// A host of a lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Host {
    /// The host's number, from 1.
    pub(crate) number: u16,
    pub(crate) namespace: String,
}

impl Host {
    /// Returns the address of the host with this number.
    pub(crate) fn address(number: u16) -> Ipv4Addr {
        Ipv4Addr::from_bits(Ipv4Addr::new(10, 195, 0, 0).to_bits() + u32::from(number))
    }

    /// Returns the file of its namespace.
    pub(crate) fn path(&self) -> PathBuf {
        Path::new(NAMESPACES).join(&self.namespace)
    }

    /// Moves this thread into the host, and all threads that it starts from now on.
    pub(crate) fn enter(&self) -> anyhow::Result<()> {
        enter(&self.path())
    }
}

/// Moves this thread into a network namespace, and all threads that it starts from now on.
pub(crate) fn enter(namespace: &Path) -> anyhow::Result<()> {
    let words = || format!("cannot enter {}: that needs root", namespace.display());
    let file = File::open(namespace).with_context(words)?;
    move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).with_context(words)
}

impl Lab {
    /// Makes the description of a lab that is not up yet.
    pub(super) fn new(name: String, plan: &Plan) -> Lab {
        Lab { name, plan: *plan }
    }

    /// Sets up a lab that stays.
    pub(crate) fn named(name: &str, plan: &Plan) -> Result<Lab, Problem> {
        let fits = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if name.is_empty() || name.len() > NAME_BYTES_MAX || !name.chars().all(fits) {
            return Err(Problem::usage(
                "the name of a lab has 1 to 40 lower-case letters, digits and hyphens",
            ));
        }
        if name.starts_with(TEMPORARY) {
            return Err(Problem::usage(format!(
                "names that begin with {TEMPORARY} are reserved for benchmarks"
            )));
        }
        let lab = Lab::new(name.into(), plan);
        let (mut standing, _lock) = lab.set_up()?;
        standing.retain(|other| *other != lab);
        Ok(lab)
    }

    /// Returns the lab of this name.
    pub(crate) fn find(name: &str) -> Result<Lab, Problem> {
        permitted(&["ip"])?;
        Lab::all()?.into_iter().find(|lab| lab.name == name).ok_or_else(|| {
            let other = if name == super::NAME { String::new() } else { format!(" --name {name}") };
            Problem::failed(format!("there is no lab {name}: type `unisono lab up{other}`"))
        })
    }

    /// Returns all labs that are up.
    pub(crate) fn all() -> Result<Vec<Lab>, Problem> {
        let names = namespaces()?;
        let switches = names.iter().filter_map(|name| name.strip_prefix(PREFIX)?.strip_suffix(SWITCH));
        Ok(switches.map(Lab::read).collect())
    }

    fn read(name: &str) -> Lab {
        let mut lab =
            Lab { name: name.into(), plan: Plan { hosts: 0, rate: None, loss: None, silent: false } };
        let links = tools::run("ip", &["-n", &lab.switch(), "-j", "link", "show", "dev", "bridge"], "");
        let links: Option<serde_json::Value> = links.ok().and_then(|text| serde_json::from_str(&text).ok());
        let plan = links.and_then(|links| Plan::from_alias(links[0]["ifalias"].as_str()?));
        lab.plan = plan.unwrap_or(lab.plan);
        lab
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// True if it belongs to one run of a command.
    pub(crate) fn is_temporary(&self) -> bool {
        self.name.starts_with(TEMPORARY)
    }

    pub(crate) fn hosts(&self) -> impl Iterator<Item = Host> {
        (1..=self.plan.hosts).map(|number| self.numbered(number))
    }

    /// Returns the host with this number, from 1.
    pub(crate) fn host(&self, number: u16) -> Result<Host, Problem> {
        match (1..=self.plan.hosts).contains(&number) {
            true => Ok(self.numbered(number)),
            false => Err(Problem::usage(format!(
                "there is no host {number}: lab {} has hosts 1 to {}",
                self.name, self.plan.hosts
            ))),
        }
    }

    fn numbered(&self, number: u16) -> Host {
        Host { number, namespace: format!("{PREFIX}{}-{number}", self.name) }
    }

    fn switch(&self) -> String {
        format!("{PREFIX}{}{SWITCH}", self.name)
    }

    /// Returns the numbers of the processes that run on its hosts.
    pub(crate) fn processes(&self) -> Result<Vec<String>, Problem> {
        let mut processes = Vec::new();
        for host in self.hosts() {
            let found = tools::run("ip", &["netns", "pids", &host.namespace], "")?;
            processes.extend(found.lines().map(str::to_string));
        }
        Ok(processes)
    }

    /// Drops all packets from one host to another.
    pub(crate) fn cut(&self, from: u16, to: u16) -> Result<(), Problem> {
        match self.filter_from("-C", from, to) {
            Ok(()) => Ok(()),
            Err(_) => self.filter_from("-I", from, to),
        }
    }

    /// Undoes `cut`.
    pub(crate) fn mend(&self, from: u16, to: u16) -> Result<(), Problem> {
        self.filter_from("-D", from, to)
    }

    fn filter_from(&self, what: &str, from: u16, to: u16) -> Result<(), Problem> {
        permitted(&["ip", "iptables"])?;
        let source = Host::address(self.host(from)?.number).to_string();
        filter(&self.host(to)?, &[what, "INPUT", "-s", &source, "-j", "DROP"])?;
        Ok(())
    }

    /// Sets up the lab, or nothing if that fails. Returns the lock under which no other thread of this process sets up
    /// or removes labs, and the lock of the lab's owner.
    pub(super) fn set_up(&self) -> Result<(MutexGuard<'static, Vec<Lab>>, File), Problem> {
        permitted(&self.plan.tools())?;
        remove_on_signals()?;
        let mut standing = standing();
        let lock = self.claim()?;
        standing.push(self.clone());
        if let Err(error) = self.furnish() {
            self.take_away(&mut standing)?;
            return Err(error.into());
        }
        Ok((standing, lock))
    }

    /// Makes the namespace of the bridge, which claims the lab's name, and locks it. Removes labs of dead owners.
    fn claim(&self) -> Result<File, Problem> {
        // Between making and locking a lab, another process must not find it without an owner.
        let claiming = File::create(CLAIMING).with_context(|| format!("cannot write {CLAIMING}"))?;
        flock(&claiming, FlockOperation::LockExclusive).with_context(|| format!("cannot lock {CLAIMING}"))?;
        for lab in Lab::all()?.into_iter().filter(Lab::is_temporary) {
            if File::open(Path::new(NAMESPACES).join(lab.switch()))
                .is_ok_and(|file| flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok())
            {
                lab.take_away(&mut Vec::new())?;
            }
        }
        let switch = self.switch();
        if namespaces()?.contains(&switch) {
            let name = &self.name;
            return Err(Problem::failed(format!(
                "lab {name} is up already: remove it with `unisono lab down --name {name}`, or choose another --name"
            )));
        }
        tools::run("ip", &["netns", "add", &switch], "")?;
        let lock = File::open(Path::new(NAMESPACES).join(&switch))?;
        flock(&lock, FlockOperation::NonBlockingLockExclusive).context("cannot lock the lab")?;
        Ok(lock)
    }

    /// Makes the hosts and connects them to the bridge.
    fn furnish(&self) -> anyhow::Result<()> {
        let hosts: String = self.hosts().map(|host| format!("netns add {}\n", host.namespace)).collect();
        tools::run("ip", &["-batch", "-"], &hosts)?;
        tools::run("ip", &["-n", &self.switch(), "-batch", "-"], &self.links())?;
        for host in self.hosts() {
            let own = self.links_of(&host);
            tools::run("ip", &["-n", &host.namespace, "-batch", "-"], &own)?;
            if let Some(loss) = self.plan.loss {
                let probability = loss.probability().to_string();
                let at_random = ["-m", "statistic", "--mode", "random", "--probability", &probability];
                filter(&host, &[&["-A", "INPUT", "-i", "eth0"], &at_random[..], &["-j", "DROP"]].concat())?;
            }
            if self.plan.silent {
                let closed = ["-p", "icmp", "--icmp-type", "port-unreachable", "-j", "DROP"];
                filter(&host, &[&["-A", "OUTPUT"], &closed[..]].concat())?;
            }
        }
        if let Some(rate) = self.plan.rate {
            tools::run("tc", &["-n", &self.switch(), "-batch", "-"], &self.segment(rate))
                .context("this kernel cannot limit the rate: it needs the modules ifb and sch_htb")?;
        }
        Ok(())
    }

    /// Returns the commands for the bridge, with a port for each host.
    fn links(&self) -> String {
        let mut links = format!(
            "link add bridge type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n\
             link set bridge alias {} addrgenmode none up\n",
            self.plan.alias()
        );
        for Host { number, namespace } in self.hosts() {
            let _ = writeln!(links, "link add port{number} type veth peer name eth0 netns {namespace}");
            let _ = writeln!(links, "link set port{number} master bridge addrgenmode none up");
        }
        if self.plan.rate.is_some() {
            links.push_str("link add segment type ifb\nlink set segment addrgenmode none up\n");
        }
        links
    }

    /// Returns the commands for a host's interfaces. On a segment each frame counts, so segmentation offload is
    /// switched off.
    fn links_of(&self, host: &Host) -> String {
        let frames = if self.plan.rate.is_some() { "gso_max_segs 1" } else { "" };
        format!(
            "link set lo multicast on up\n\
             link set eth0 addrgenmode none {frames} up\n\
             address add {}/16 dev eth0\n\
             route add 224.0.0.0/4 dev eth0\n",
            Host::address(host.number)
        )
    }

    /// Returns the commands for the segment. Each frame that enters the bridge, for one host or for several, first
    /// passes a common bottleneck, in which the hosts take turns as on a wire.
    fn segment(&self, rate: Rate) -> String {
        let bits = rate.bits();
        let share = (bits / u64::from(self.plan.hosts.max(1))).max(8);
        let queue = (QUEUE_MS * rate.bytes_per_ms() / FRAME_BYTES_MAX).max(QUEUE_FRAMES_MIN);
        let burst = (2 * FRAME_BYTES_MAX).max(rate.bytes_per_ms());
        let mut rules = format!(
            "qdisc add dev segment root handle 1: stab overhead {FRAME_EXTRA_BYTES} mpu {FRAME_BYTES_MIN} htb default 1\n\
             class add dev segment parent 1: classid 1:ffff htb rate {bits}bit burst {burst} cburst {burst}\n"
        );
        for Host { number, .. } in self.hosts() {
            let address = Host::address(number);
            let _ = write!(
                rules,
                "class add dev segment parent 1:ffff classid 1:{number:x} htb rate {share}bit ceil {bits}bit \
                 burst {FRAME_BYTES_MAX} cburst {FRAME_BYTES_MAX} quantum {FRAME_BYTES_MAX}\n\
                 qdisc add dev segment parent 1:{number:x} pfifo limit {queue}\n\
                 filter add dev segment parent 1: protocol ip u32 match ip src {address} classid 1:{number:x}\n\
                 qdisc add dev port{number} ingress\n\
                 filter add dev port{number} parent ffff: protocol all u32 match u32 0 0 \
                 action mirred egress redirect dev segment\n"
            );
        }
        rules
    }

    /// Removes the lab.
    pub(crate) fn remove(&self) -> Result<(), Problem> {
        self.take_away(&mut standing())
    }

    /// Removes all namespaces of the lab, that of the bridge last: as long as it exists, the lab can be found.
    fn take_away(&self, standing: &mut Vec<Lab>) -> Result<(), Problem> {
        let own = format!("{PREFIX}{}-", self.name);
        let is_host = |name: &&String| {
            let number = name.strip_prefix(&own);
            number.is_some_and(|number| number.parse::<u16>().is_ok())
        };
        let present = namespaces()?;
        let mut names: Vec<&str> = present.iter().filter(is_host).map(String::as_str).collect();
        let switch = self.switch();
        if present.contains(&switch) {
            names.push(&switch);
        }
        let lines: String = names.iter().map(|name| format!("netns delete {name}\n")).collect();
        tools::run("ip", &["-batch", "-"], &lines)?;
        standing.retain(|lab| lab.name != self.name);
        Ok(())
    }
}

fn standing() -> MutexGuard<'static, Vec<Lab>> {
    STANDING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Removes all labs of this process on the first signal, then ends it. A second signal ends it at once.
fn remove_on_signals() -> Result<(), Problem> {
    static ONCE: Once = Once::new();
    let mut result = Ok(());
    ONCE.call_once(|| {
        result = Signals::new(signals::interrupts()).map(|mut signals| {
            std::thread::spawn(move || {
                let mut arrivals = signals.forever();
                if let Some(first) = arrivals.next() {
                    std::thread::spawn(move || remove_and_end(first));
                }
                if let Some(second) = arrivals.next() {
                    std::process::exit(128 + second);
                }
            });
        });
    });
    Ok(result?)
}

/// Removes the labs and ends the process. Holds the lock until the end, so that no lab is set up meanwhile.
fn remove_and_end(signal: i32) {
    let mut standing = standing();
    for lab in standing.clone() {
        if let Err(problem) = lab.take_away(&mut standing) {
            tell(format_args!("cannot remove a lab: {:#}", problem.into_error()));
        }
    }
    output::exit(128 + signal);
}

/// Checks that this process may set up labs and has these tools. The error says what to do.
fn permitted(tools: &[&str]) -> Result<(), Problem> {
    if !cfg!(target_os = "linux") {
        return Err(Problem::failed("a lab needs Linux: its hosts are network namespaces of that kernel"));
    }
    if !rustix::process::geteuid().is_root() {
        return Err(Problem::failed("a lab needs root, to make network namespaces: use sudo"));
    }
    match tools::missing(tools) {
        Some(words) => Err(Problem::failed(words)),
        None => Ok(()),
    }
}

fn filter(host: &Host, rule: &[&str]) -> anyhow::Result<()> {
    let command = ["netns", "exec", &host.namespace, "iptables", "-w"];
    tools::run("ip", &[&command, rule].concat(), "").map(drop)
}

/// Returns the names of all named namespaces of the machine.
fn namespaces() -> Result<Vec<String>, Problem> {
    let entries = match std::fs::read_dir(NAMESPACES) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries?,
    };
    let names = entries.map_while(Result::ok).filter_map(|entry| entry.file_name().into_string().ok());
    Ok(names.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_comes_back_from_the_alias() {
        let bare = Plan { hosts: 2, rate: None, loss: None, silent: true };
        let slow = Plan {
            hosts: 250,
            rate: Some("10mbit".parse().unwrap()),
            loss: Some("0.5%".parse().unwrap()),
            silent: false,
        };
        for plan in [bare, slow] {
            assert_eq!(Plan::from_alias(&plan.alias()), Some(plan));
        }
        assert_eq!(slow.words(), "250 hosts on one segment of 10mbit, 0.5% lost");
        assert_eq!(Plan::from_alias("anything"), None);
    }

    #[test]
    fn hosts_have_names_and_addresses_of_their_own() {
        let plan = Plan { hosts: 3, rate: None, loss: None, silent: false };
        let lab = Lab { name: "mine".into(), plan };
        let names: Vec<String> = lab.hosts().map(|host| host.namespace).collect();
        assert_eq!(names, ["unisono-mine-1", "unisono-mine-2", "unisono-mine-3"]);
        assert_eq!(Host::address(3), Ipv4Addr::new(10, 195, 0, 3));
        assert!(lab.host(0).is_err() && lab.host(3).is_ok() && lab.host(4).is_err());
    }
}
