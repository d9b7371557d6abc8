//! The points: every number of the papers that can be re-run, and some that are only quoted.
//!
//! They are a table of facts, `points.toml`, which says for each number where it stands, under which conditions it was
//! measured, what it is good for here, and how near a prediction must come.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use toml::{Table, Value};

const TEXT: &str = include_str!("points.toml");

/// What a point is good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Use {
    /// An input of the testbed.
    Given,
    /// A parameter is fitted on it.
    Fit,
    /// The testbed must come within its tolerance.
    Predict,
    /// A count, which no cost changes.
    Count,
    /// A rule must hold.
    Order,
    /// It cannot be predicted: its reason says why.
    Exception,
    /// The paper's number is lost with its figure. Ours is printed.
    Print,
    /// Another system, or not run again.
    Quote,
}

impl Use {
    /// Returns its name in the table of points.
    pub fn name(self) -> &'static str {
        match self {
            Use::Given => "given",
            Use::Fit => "fit",
            Use::Predict => "predict",
            Use::Count => "count",
            Use::Order => "order",
            Use::Exception => "exception",
            Use::Print => "print",
            Use::Quote => "quote",
        }
    }
}

/// Declares the quantities, each with its name in the table of points.
macro_rules! quantities {
    ($($variant:ident = $name:literal,)*) => {
        /// What a point is a number of.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Quantity {
            $(#[doc = $name] #[serde(rename = $name)] $variant,)*
        }

        impl Quantity {
            /// Returns its name in the table of points.
            pub fn name(self) -> &'static str {
                match self {
                    $(Quantity::$variant => $name,)*
                }
            }
        }
    };
}

quantities! {
    Delay = "delay",
    DelayUnderLoad = "delay under load",
    DelayAdded = "delay added",
    DelayPerMember = "delay per member",
    DelayPerAcknowledgement = "delay per acknowledgement",
    CriticalPath = "critical path",
    Throughput = "throughput",
    Packets = "packets",
    Interrupts = "interrupts",
    GroupMinusRpc = "group minus RPC",
    BbOverPb = "bb over pb",
    SequencersBound = "sequencer's bound",
    GroupsAtTheMaximum = "groups at the maximum",
    EthernetUse = "Ethernet use",
    Fairness = "fairness",
    SendersThatOverflow = "senders at which the ring overflows",
    BytesPerS = "bytes per s",
    RpcPackets = "RPC packets",
    Time = "time",
    GroupOverNvram = "group over NVRAM",
    ServersTime = "server's time a lookup",
    LookupsBound = "lookups, bound",
    Lookups = "lookups",
    LookupsDeviation = "standard deviation of lookups",
    Updates = "updates",
    Pairs = "pairs",
    ServicesTime = "service's time a pair",
    DiskOperationsMore = "disk operations the pair needs more",
    ThroughputToOne = "throughput to one",
    ThroughputOfAll = "throughput, all members",
    ThroughputSpread = "throughput, 4 and 8 senders",
    Latency = "latency",
    OrderedOverUnordered = "ordered over unordered",
    TimesTheEthernet = "times the Ethernet",
    KthbBound = "bound of KTHB89's protocol",
    WirePb = "time on the wire, PB, 8 KB",
    WireRmp = "time on the wire, RMP, 8 KB",
    // Given or quoted, not measured.
    ApplicationRate = "application rate",
    EthernetUseOfApplications = "Ethernet use of applications",
    DelayOfNcnOnV = "delay of NCN on V",
    MessagesBeforeDeliveryInMm = "messages before delivery in MM",
    HistoryEntries = "history entries",
    Layer = "layer",
    SequencersTime = "sequencer's time a message",
    HeaderBytes = "header bytes",
    ReceiveRing = "receive ring",
    History = "history",
    LargestPacket = "largest packet",
    Copies = "copies",
    PacketsOfAdkm = "packets of ADKM",
    PacketsOfNcn = "packets of NCN",
    PacketsOfTy = "packets of TY",
    PacketsOfCm = "packets of CM",
    Acknowledgements = "acknowledgements",
    UserLevelProtocolsSlowerBy = "user-level protocols slower by",
    GroupOverNfs = "group over NFS",
    ShareOfReads = "share of reads",
    Nvram = "NVRAM",
    Ethernet = "Ethernet",
    Detection = "detection",
    ThroughputOverAGateway = "throughput over a gateway",
    LatencyOfToto = "latency of ToTo",
}

/// One point, for one value of each of its conditions.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// Its name.
    pub id: String,
    /// What was measured.
    pub what: Quantity,
    /// The paper's number; none if it is lost, or if the point is a rule.
    pub value: Option<f64>,
    /// Unit of the number.
    pub unit: String,
    /// What it is good for.
    pub use_: Use,
    /// Largest error, as a share of the number.
    pub tolerance: Option<f64>,
    /// Largest difference, in the point's unit.
    pub absolute: Option<f64>,
    /// Why it is an exception.
    pub why: Option<String>,
    /// The number of our own core, where it must be another one than the paper's.
    pub ours: Option<f64>,
    /// Why our own core differs from the papers' protocol.
    pub ours_why: Option<String>,
    /// Place in the paper and conditions, by name.
    pub conditions: BTreeMap<String, Value>,
}

/// The keys of the table that are no conditions.
#[derive(Deserialize)]
struct Head {
    id: String,
    what: Quantity,
    value: Option<f64>,
    /// A rule may have none.
    #[serde(default)]
    unit: String,
    #[serde(rename = "use")]
    use_: Use,
    tolerance: Option<f64>,
    absolute: Option<f64>,
    why: Option<String>,
    ours: Option<f64>,
    ours_why: Option<String>,
}

const HEAD_KEYS: [&str; 10] =
    ["id", "value", "unit", "use", "tolerance", "absolute", "why", "ours", "ours_why", "what"];

/// Returns all points in the order of the table. A point with a list of values is one for each of them.
pub fn points() -> Vec<Point> {
    let table: Table = TEXT.parse().expect("the table is part of the program: its tests read it");
    let rows = table.get("point").and_then(Value::as_array).cloned().unwrap_or_default();
    rows.into_iter().flat_map(expand).collect()
}

fn expand(row: Value) -> Vec<Point> {
    let head: Head = row.clone().try_into().expect("the table is part of the program: its tests read it");
    let mut conditions = row.as_table().cloned().unwrap_or_default();
    conditions.retain(|key, _| !HEAD_KEYS.contains(&key));
    let mut all = vec![BTreeMap::new()];
    for (key, value) in conditions {
        let values = value.as_array().cloned().unwrap_or_else(|| vec![value]);
        let with = |before: &BTreeMap<String, Value>| {
            let extended = values.iter().map(|value| {
                let mut conditions = before.clone();
                conditions.insert(key.clone(), value.clone());
                conditions
            });
            extended.collect::<Vec<_>>()
        };
        all = all.iter().flat_map(with).collect();
    }
    let point = |mut conditions: BTreeMap<String, Value>| {
        resolve(&mut conditions);
        Point {
            id: head.id.clone(),
            what: head.what,
            value: head.value,
            unit: head.unit.clone(),
            use_: head.use_,
            tolerance: head.tolerance,
            absolute: head.absolute,
            why: head.why.clone(),
            ours: head.ours,
            ours_why: head.ours_why.clone(),
            conditions,
        }
    };
    all.into_iter().map(point).collect()
}

/// Puts numbers where the table says `r + 1` or `members`.
fn resolve(conditions: &mut BTreeMap<String, Value>) {
    let number =
        |conditions: &BTreeMap<String, Value>, key: &str| conditions.get(key).and_then(Value::as_integer);
    if conditions.get("members").is_some_and(Value::is_str)
        && let Some(r) = number(conditions, "r")
    {
        conditions.insert("members".into(), Value::Integer(r + 1));
    }
    if conditions.get("senders").is_some_and(Value::is_str)
        && let Some(members) = number(conditions, "members")
    {
        conditions.insert("senders".into(), Value::Integer(members));
    }
}

impl Point {
    /// Returns the paper's short name.
    pub fn paper(&self) -> &str {
        self.text("paper").unwrap_or_default()
    }

    /// Returns the figure: the first two parts of the point's name.
    pub fn figure(&self) -> &str {
        let end = self.id.match_indices('-').nth(1).map_or(self.id.len(), |(at, _)| at);
        &self.id[..end]
    }

    /// Returns a condition that is a whole number.
    pub fn number(&self, key: &str) -> Option<usize> {
        self.conditions.get(key).and_then(Value::as_integer).and_then(|number| usize::try_from(number).ok())
    }

    /// Returns a condition that is a text.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.conditions.get(key).and_then(Value::as_str)
    }

    /// Returns a condition that is true or false.
    pub fn flag(&self, key: &str) -> Option<bool> {
        self.conditions.get(key).and_then(Value::as_bool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_has_its_points_and_their_uses() {
        let table: Table = TEXT.parse().unwrap();
        assert_eq!(table["point"].as_array().unwrap().len(), 178);
        let points = points();
        let count = |of: Use| {
            let mut ids: Vec<_> = points.iter().filter(|p| p.use_ == of).map(|p| &p.id).collect();
            ids.dedup();
            ids.len()
        };
        assert_eq!([Use::Fit, Use::Predict, Use::Count, Use::Order].map(count), [10, 59, 25, 9]);
        assert!(points.iter().all(|p| p.use_ != Use::Exception || p.why.is_some()));
        assert!(
            points.iter().all(|p| p.use_ != Use::Predict || p.tolerance.is_some() != p.absolute.is_some())
        );
    }

    #[test]
    fn a_list_is_a_point_for_each_value() {
        let rows: Vec<_> = points().into_iter().filter(|point| point.id == "KT93-27-0B").collect();
        let of = |key: &str| rows.iter().filter_map(|row| row.number(key)).collect::<Vec<_>>();
        assert_eq!((of("r"), of("members")), (vec![1, 2, 3, 7, 15], vec![2, 3, 4, 8, 16]));
        assert_eq!(rows[0].figure(), "KT93-27");
    }
}
