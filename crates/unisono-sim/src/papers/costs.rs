//! What work costs on the papers' machines: every cost of the testbed, with its origin.
//!
//! A parameter is *given* by a paper, *fitted* on one number of a paper, or *assumed*. Ten are fitted, on ten points;
//! everything else the testbed predicts. [KT96 Table 3] gives the time of a null message by layers: user 514 µs, group 740,
//! FLIP 570, Ethernet 916. The parameters are a split of these sums:
//!
//! - Each of the two packets is sent and received once. An end of Ethernet costs E = (916 − 2 × 102.4) / 2 a packet, the
//!   time on the wire taken off, and FLIP F = 570 / 2. The receiver bears the share ρ of both.
//! - The sequencer's time a message is 790 µs: E + F and its group work g2. The sender's group work g1 and the receiver's
//!   g3 share the rest of 740 equally.
//! - User work is u1 before the send and a thread switch twice: to the receiving thread, then to the sending one.
//!
//! Parameters can be changed by name, so that anyone can see what follows from which.

use super::flip;
use serde::Serialize;
use thiserror::Error;

/// A machine of the papers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub enum MachineName {
    /// The machine of KTHB89: faster packets and shorter headers than KT93, as measured before FLIP.
    #[serde(rename = "mc68020")]
    Mc68020,
    /// The machine of KT93 and KT96.
    #[serde(rename = "mc68030")]
    Mc68030,
    /// The directory servers of KTV93; their messages cost what they cost on the mc68030.
    #[serde(rename = "sun3-60")]
    Sun360,
    /// The machine of WMK94: UDP from user space.
    #[serde(rename = "sparc5")]
    Sparc5,
}

impl MachineName {
    /// Returns its name as text.
    pub fn name(self) -> &'static str {
        match self {
            MachineName::Mc68020 => "mc68020",
            MachineName::Mc68030 => "mc68030",
            MachineName::Sun360 => "sun3-60",
            MachineName::Sparc5 => "sparc5",
        }
    }
}

/// Where the value of a parameter comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Origin {
    /// A paper or a standard states it, or it follows from what they state.
    Given,
    /// Chosen so that one point comes out as in the paper.
    Fitted,
    /// Our assumption.
    Assumed,
}

impl Origin {
    /// Returns its name.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Given => "given",
            Origin::Fitted => "fitted",
            Origin::Assumed => "assumed",
        }
    }
}

/// A constant of the testbed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Parameter {
    /// Its name.
    pub parameter: &'static str,
    /// Machine for which it holds.
    pub machine: MachineName,
    /// Its value.
    pub value: f64,
    /// Unit of the value.
    pub unit: &'static str,
    /// Where the value comes from.
    pub origin: Origin,
    /// Point on which it is fitted, or its source; none if it is assumed.
    pub from: Option<&'static str>,
    /// What it means.
    pub meaning: &'static str,
}

/// How a parameter is to be changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Change {
    /// To this value.
    To(f64),
    /// To this multiple of its value.
    Times(f64),
}

/// Why a change was refused.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum CostError {
    /// There is no parameter of this name.
    #[error("there is no cost named {0}: `unisono papers costs` names them")]
    Unknown(String),
    /// Not `KEY=VALUE` or `KEY=xFACTOR`.
    #[error("{0} is no change of a cost: KEY=VALUE or KEY=xFACTOR, as in copy=x2")]
    Malformed(String),
    /// The value is not a number of at least 0, or out of the parameter's range.
    #[error("{0}: the value must be {1}")]
    Range(String, &'static str),
}

/// All parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Costs(Vec<Parameter>);

/// The costs of one machine on its network, as the testbed uses them. Times are in microseconds.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Machine {
    /// A packet received: Ethernet and FLIP.
    pub(super) er: f64,
    pub(super) fr: f64,
    /// A packet sent: Ethernet and FLIP.
    pub(super) es: f64,
    pub(super) fs: f64,
    /// Group work: before a message is sent, when it is numbered, when it is received.
    pub(super) g1: f64,
    pub(super) g2: f64,
    pub(super) g3: f64,
    /// Group work for a tentative message, an acknowledgement or a report.
    pub(super) ga: f64,
    /// User work before a message is sent.
    pub(super) u1: f64,
    /// A thread switch.
    pub(super) us: f64,
    /// Further work for a delivery at the sequencer.
    pub(super) gl: f64,
    /// A byte copied, for each byte of a packet above a null message's, and each byte delivered.
    pub(super) copy: f64,
    /// A datagram sent or received, where protocols use UDP, and a byte of it.
    pub(super) datagram: f64,
    pub(super) byte: f64,
    pub(super) mbit_per_s: f64,
    pub(super) packet_bytes_max: u64,
    pub(super) receive_ring: usize,
    pub(super) transmit_ring: usize,
    link_header: u64,
    flow_header: u64,
    flip_header: u64,
    pub(super) group_header: u64,
    pub(super) user_header: u64,
}

/// Costs of the directory service [KTV93], in milliseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct DirectoryCosts {
    pub(super) lookup: f64,
    pub(super) update: f64,
    pub(super) short: f64,
    pub(super) long: f64,
    pub(super) file: f64,
}

/// Sums of KT96, Table 3, in microseconds.
const GROUP: f64 = 740.0;
const FLIP: f64 = 570.0;
const ETHERNET: f64 = 916.0;
/// A null message on the wire.
const WIRE: f64 = 102.4;
/// The sequencer's time a message: "almost 800" [KT93 §6.2].
const SEQUENCER: f64 = 790.0;
const RHO: f64 = 0.852;

const NOT_NEGATIVE: &str = "a number, 0 or more";

impl Default for Costs {
    fn default() -> Costs {
        use MachineName::{Mc68020, Mc68030, Sparc5, Sun360};
        use Origin::{Assumed, Fitted, Given};
        let table = Some("KT96-3");
        let headers = Some("KT93-headers");
        let [er, es, fr, fs] = split(RHO);
        let g2 = SEQUENCER - (ETHERNET - 2.0 * WIRE) / 2.0 - FLIP / 2.0;
        let g1 = (GROUP - g2) / 2.0;
        let rows = [
            (
                "rho",
                Mc68030,
                RHO,
                "share",
                Fitted,
                Some("KT93-27-r15"),
                "receiver's share of a packet's work",
            ),
            ("er", Mc68030, er, "us", Given, table, "Ethernet: a packet received"),
            ("es", Mc68030, es, "us", Given, table, "Ethernet: a packet sent"),
            ("fr", Mc68030, fr, "us", Given, table, "FLIP: a packet received"),
            ("fs", Mc68030, fs, "us", Given, table, "FLIP: a packet sent"),
            ("g1", Mc68030, g1, "us", Given, table, "group: before a message is sent"),
            ("g2", Mc68030, g2, "us", Given, Some("KT93-seq-800"), "group: a message is numbered"),
            ("g3", Mc68030, g1, "us", Given, table, "group: a message is received"),
            ("ga", Mc68030, 60.0, "us", Assumed, None, "group: anything that is not final"),
            ("u1", Mc68030, 114.0, "us", Assumed, None, "user: before a message is sent"),
            ("us", Mc68030, 200.0, "us", Assumed, None, "user: a thread switch"),
            (
                "gl",
                Mc68030,
                230.0,
                "us",
                Fitted,
                Some("KT93-24-max"),
                "a delivery at the sequencer, besides us",
            ),
            ("copy", Mc68030, 0.4545, "us", Fitted, Some("KT93-21-8000B-added"), "a byte copied"),
            ("packet", Mc68030, 1514.0, "bytes", Given, Some("KT93-packet"), "largest packet"),
            ("receive_ring", Mc68030, 32.0, "packets", Given, Some("KT93-ring"), "ring of received packets"),
            ("transmit_ring", Mc68030, 16.0, "packets", Assumed, None, "ring of packets to be sent"),
            ("rate", Mc68030, 10.0, "Mbit/s", Given, Some("WMK94-capacity"), "rate of the Ethernet"),
            ("link_header", Mc68030, 14.0, "bytes", Given, headers, "of a packet: Ethernet"),
            ("flow_header", Mc68030, 2.0, "bytes", Given, headers, "of a packet: flow control"),
            ("flip_header", Mc68030, 40.0, "bytes", Given, headers, "of a packet: FLIP"),
            ("group_header", Mc68030, 28.0, "bytes", Given, headers, "of a message: group"),
            ("user_header", Mc68030, 32.0, "bytes", Given, headers, "of a message: user"),
            ("scale", Mc68020, 0.47, "share", Fitted, Some("KTHB89-6-n2"), "all work, of the mc68030's"),
            ("link_header", Mc68020, 14.0, "bytes", Given, headers, "of a packet: Ethernet"),
            ("flow_header", Mc68020, 0.0, "bytes", Assumed, None, "of a packet: flow control"),
            ("flip_header", Mc68020, 20.0, "bytes", Assumed, None, "of a packet: the layer before FLIP"),
            ("group_header", Mc68020, 32.0, "bytes", Assumed, None, "of a message"),
            ("user_header", Mc68020, 0.0, "bytes", Assumed, None, "of a message: user"),
            ("lookup", Sun360, 2.33, "ms", Fitted, Some("KTV93-7-lookup-group"), "a lookup at a server"),
            (
                "update",
                Sun360,
                5.76,
                "ms",
                Fitted,
                Some("KTV93-7-append-delete-nvram"),
                "an update at a server",
            ),
            (
                "short",
                Sun360,
                13.7,
                "ms",
                Fitted,
                Some("KTV93-7-tmp-file-nvram"),
                "a disk operation near the last one",
            ),
            (
                "long",
                Sun360,
                28.3,
                "ms",
                Fitted,
                Some("KTV93-7-append-delete-group"),
                "a disk operation elsewhere",
            ),
            ("file", Sun360, 1.0, "ms", Assumed, None, "a small file read from the server's memory"),
            ("datagram", Sparc5, 951.0, "us", Fitted, Some("WMK94-5.3-1"), "a datagram sent or received"),
            ("byte", Sparc5, 0.37, "us", Fitted, Some("WMK94-5.1-8"), "a byte of a datagram"),
            ("link_header", Sparc5, 14.0, "bytes", Given, Some("IEEE 802.3"), "of a packet: Ethernet"),
            ("flip_header", Sparc5, 20.0, "bytes", Given, Some("RFC 791"), "of a packet: IP"),
            ("group_header", Sparc5, 40.0, "bytes", Assumed, None, "of a datagram: UDP and RMP"),
        ];
        let parameter = |(parameter, machine, value, unit, origin, from, meaning)| Parameter {
            parameter,
            machine,
            value,
            unit,
            origin,
            from,
            meaning,
        };
        Costs(rows.map(parameter).to_vec())
    }
}

/// Splits the work for a packet between its receiver and its sender: er, es, fr, fs.
fn split(rho: f64) -> [f64; 4] {
    let (ethernet, flip) = ((ETHERNET - 2.0 * WIRE) / 2.0, FLIP / 2.0);
    [rho * ethernet, (1.0 - rho) * ethernet, rho * flip, (1.0 - rho) * flip]
}

impl Costs {
    /// Returns all parameters.
    pub fn parameters(&self) -> &[Parameter] {
        &self.0
    }

    /// Applies a change such as `copy=x2` or `us=150` to every machine that has the parameter.
    ///
    /// # Errors
    /// The caller's text is no change, or the value is out of its range.
    pub fn set(&mut self, text: &str) -> Result<(), CostError> {
        let malformed = || CostError::Malformed(text.into());
        let (key, value) = text.split_once('=').ok_or_else(malformed)?;
        let number = |text: &str| text.parse::<f64>().ok().filter(|number| number.is_finite());
        let change = match value.strip_prefix('x') {
            Some(factor) => Change::Times(number(factor).ok_or_else(malformed)?),
            None => Change::To(number(value).ok_or_else(malformed)?),
        };
        self.change(key, change)
    }

    /// Changes a parameter on every machine that has it.
    ///
    /// # Errors
    /// There is no such parameter, or the value is out of its range.
    pub fn change(&mut self, key: &str, change: Change) -> Result<(), CostError> {
        let mut found = false;
        for parameter in self.0.iter_mut().filter(|parameter| parameter.parameter == key) {
            found = true;
            parameter.value = match change {
                Change::To(value) => value,
                Change::Times(factor) => factor * parameter.value,
            };
            check(parameter)?;
        }
        if !found {
            return Err(CostError::Unknown(key.into()));
        }
        if key == "rho" {
            self.split_again();
        }
        self.check_packets()
    }

    fn split_again(&mut self) {
        let shares = split(self.value(MachineName::Mc68030, "rho"));
        for (key, value) in ["er", "es", "fr", "fs"].into_iter().zip(shares) {
            if let Some(parameter) = self.0.iter_mut().find(|parameter| parameter.parameter == key) {
                parameter.value = value;
            }
        }
    }

    /// Refuses packets that have no room beside their headers.
    fn check_packets(&self) -> Result<(), CostError> {
        for name in [MachineName::Mc68030, MachineName::Mc68020, MachineName::Sparc5] {
            let machine = self.machine(name);
            if machine.packet_bytes_max <= machine.packet_header_bytes() {
                return Err(CostError::Range("packet".into(), "larger than the headers in it"));
            }
        }
        Ok(())
    }

    /// Returns the parameter of a machine, or what all machines have from the mc68030.
    fn value(&self, machine: MachineName, key: &str) -> f64 {
        let of = |machine| self.0.iter().find(|row| row.machine == machine && row.parameter == key);
        of(machine).or_else(|| of(MachineName::Mc68030)).map_or(0.0, |row| row.value)
    }

    /// Returns the costs of a machine.
    pub(super) fn machine(&self, name: MachineName) -> Machine {
        let value = |key| self.value(name, key);
        let scale = match name {
            MachineName::Mc68030 | MachineName::Sun360 => 1.0,
            MachineName::Mc68020 => value("scale"),
            // Its protocol runs in user space: all work is for datagrams.
            MachineName::Sparc5 => 0.0,
        };
        let work = |key| scale * value(key);
        let is_udp = name == MachineName::Sparc5;
        Machine {
            er: work("er"),
            fr: work("fr"),
            es: work("es"),
            fs: work("fs"),
            g1: work("g1"),
            g2: work("g2"),
            g3: work("g3"),
            ga: work("ga"),
            u1: work("u1"),
            us: work("us"),
            gl: work("gl"),
            copy: work("copy"),
            datagram: value("datagram"),
            byte: value("byte"),
            mbit_per_s: value("rate"),
            packet_bytes_max: value("packet") as u64,
            receive_ring: value("receive_ring") as usize,
            transmit_ring: value("transmit_ring") as usize,
            link_header: value("link_header") as u64,
            flow_header: if is_udp { 0 } else { value("flow_header") as u64 },
            flip_header: value("flip_header") as u64,
            group_header: value("group_header") as u64,
            user_header: if is_udp { 0 } else { value("user_header") as u64 },
        }
    }

    /// Returns the costs of the directory service.
    pub(super) fn directory(&self) -> DirectoryCosts {
        let value = |key| self.value(MachineName::Sun360, key);
        DirectoryCosts {
            lookup: value("lookup"),
            update: value("update"),
            short: value("short"),
            long: value("long"),
            file: value("file"),
        }
    }
}

fn check(parameter: &Parameter) -> Result<(), CostError> {
    let refuse = |allowed| Err(CostError::Range(parameter.parameter.into(), allowed));
    match parameter.parameter {
        _ if !(0.0..1e9).contains(&parameter.value) => refuse(NOT_NEGATIVE),
        "rho" if parameter.value > 1.0 => refuse("a share from 0 to 1"),
        "rate" if parameter.value < 0.064 => refuse("a rate of at least 0.064 Mbit/s"),
        "receive_ring" | "transmit_ring" if parameter.value < 1.0 => refuse("at least 1"),
        _ => Ok(()),
    }
}

impl Machine {
    /// Returns the bytes of the headers that each packet has.
    pub(super) fn packet_header_bytes(&self) -> u64 {
        self.link_header + self.flow_header + self.flip_header
    }

    /// Returns the bytes of a message with its headers, without those of its packets.
    pub(super) fn message_bytes(&self, bytes: u64) -> u64 {
        self.group_header + self.user_header + bytes
    }

    /// Returns the bytes of a control message, which has no user's header.
    pub(super) fn control_bytes(&self) -> u64 {
        self.group_header
    }

    /// Returns the bytes of the packet of a null message.
    fn null_packet_bytes(&self) -> u64 {
        self.packet_header_bytes() + self.message_bytes(0)
    }

    /// Returns the time that the copy of a packet takes beyond that of a null message.
    fn packet_copy(&self, bytes: u64) -> f64 {
        self.copy * bytes.saturating_sub(self.null_packet_bytes()) as f64
    }

    /// Returns the nanoseconds of work to send a packet.
    pub(super) fn send_nanos(&self, packet_bytes: u64) -> u64 {
        nanos(self.fs + self.es + self.packet_copy(packet_bytes))
    }

    /// Returns the nanoseconds of work to receive a packet.
    pub(super) fn receive_nanos(&self, packet_bytes: u64) -> u64 {
        nanos(self.fr + self.er + self.packet_copy(packet_bytes))
    }

    /// Returns the number of packets of a message of this size.
    pub(super) fn packets(&self, bytes: u64) -> usize {
        flip::cut(self.message_bytes(bytes), self).len()
    }

    /// Returns the machine with processors that need no time at all.
    pub(super) fn without_work(&self) -> Machine {
        Machine {
            er: 0.0,
            fr: 0.0,
            es: 0.0,
            fs: 0.0,
            g1: 0.0,
            g2: 0.0,
            g3: 0.0,
            ga: 0.0,
            u1: 0.0,
            us: 0.0,
            gl: 0.0,
            copy: 0.0,
            ..self.clone()
        }
    }
}

/// Returns microseconds as whole nanoseconds.
pub(super) fn nanos(us: f64) -> u64 {
    (us * 1000.0).round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_add_up_to_the_paper_s_table() {
        let m = Costs::default().machine(MachineName::Mc68030);
        let near = |found: f64, expected: f64| assert!((found - expected).abs() < 1e-9, "{found} {expected}");
        near(m.u1 + 2.0 * m.us, 514.0);
        near(m.g1 + m.g2 + m.g3, 740.0);
        near(2.0 * (m.fs + m.fr), 570.0);
        near(2.0 * (m.es + m.er) + 2.0 * 102.4, 916.0);
        near(m.er + m.fr + m.g2 + m.fs + m.es, 790.0);
        assert_eq!(m.null_packet_bytes(), 116);
    }

    #[test]
    fn ten_parameters_are_fitted_each_on_a_point_of_its_own() {
        let costs = Costs::default();
        let mut points: Vec<_> =
            costs.parameters().iter().filter(|p| p.origin == Origin::Fitted).map(|p| p.from).collect();
        points.sort_unstable();
        points.dedup();
        assert_eq!(points.len(), 10);
        for parameter in costs.parameters() {
            assert_eq!(parameter.from.is_none(), parameter.origin == Origin::Assumed, "{parameter:?}");
        }
    }

    #[test]
    fn changes_reach_all_that_depend_on_them() {
        let mut costs = Costs::default();
        costs.set("us=x2").unwrap();
        costs.set("copy=0.9").unwrap();
        assert_eq!(costs.machine(MachineName::Mc68030).us, 400.0);
        assert_eq!(costs.machine(MachineName::Mc68020).us, 0.47 * 400.0);
        assert_eq!(costs.machine(MachineName::Mc68030).copy, 0.9);
        costs.set("rho=0.5").unwrap();
        let m = costs.machine(MachineName::Mc68030);
        assert!((m.er - m.es).abs() < 1e-9 && (m.fr - m.fs).abs() < 1e-9);
    }

    #[test]
    fn bad_changes_are_refused_by_name() {
        for (text, word) in [
            ("nonsense=x2", "nonsense"),
            ("copy=-1", "copy"),
            ("copy=x-1", "copy"),
            ("copy", "copy"),
            ("copy=much", "copy"),
            ("copy=inf", "copy"),
            ("rho=1.5", "rho"),
            ("packet=50", "packet"),
            ("receive_ring=0", "receive_ring"),
        ] {
            let error = Costs::default().set(text).expect_err(text).to_string();
            assert!(error.contains(word), "{text}: {error}");
        }
    }
}
