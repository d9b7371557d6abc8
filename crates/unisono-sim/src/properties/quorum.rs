//! The group's quorum rule, which says which members may go on. It is written a second time here, independently of
//! the protocol's code.

use crate::record::{Kind, Life, Record, What};
use unisono_core::{Name, Quorum};

/// A quorum rule, and the names of lives, which a fixed list needs.
#[derive(Clone, Debug)]
pub(super) struct Rule {
    quorum: Quorum,
    names: Vec<(Life, Name)>,
    /// Members of which an operator has vouched that they are dead: the others go on without a quorum.
    dead: Vec<Life>,
}

impl Rule {
    pub(super) fn new(quorum: Quorum) -> Rule {
        Rule { quorum, names: Vec::new(), dead: Vec::new() }
    }

    /// Kinds of the records that it follows.
    pub(super) const FOLLOWED: u64 = Kind::Started.bit() | Kind::ForceAsked.bit();

    /// Takes note of the name under which a life started, and of a forced reset; ignores other records.
    pub(super) fn follow(&mut self, record: &Record) {
        match &record.what {
            What::Started { name } => self.names.push((record.life, name.clone())),
            What::ForceAsked { without } => self.dead.extend_from_slice(without),
            _ => {}
        }
    }

    /// True if these are all members of a view except those that an operator named.
    fn is_forced(&self, those: &[Life], view: &[Life]) -> bool {
        let names_any = view.iter().any(|member| self.dead.contains(member));
        names_any && view.iter().all(|member| those.contains(member) || self.dead.contains(member))
    }

    /// True if any two quorums of one view have a member in common, so that a group never splits.
    pub(super) fn intersects(&self) -> bool {
        !matches!(self.quorum, Quorum::AtLeast(_))
    }

    /// True if names make the quorums, so that more than half of a view need not meet each of them.
    pub(super) fn is_by_list(&self) -> bool {
        matches!(self.quorum, Quorum::MajorityOf(_) | Quorum::MajorityOfNamed(_))
    }

    /// Returns the name of a life, if the rule lists it.
    pub(super) fn listed_name(&self, life: Life) -> Option<&Name> {
        let Quorum::MajorityOf(list) = &self.quorum else { return None };
        let (_, name) = self.names.iter().find(|(known, _)| *known == life)?;
        list.contains(name).then_some(name)
    }

    /// True if this view can have a quorum. Under a fixed list it may have too few names.
    pub(super) fn could_be_met(&self, view: &[Life]) -> bool {
        let Quorum::MajorityOf(list) = &self.quorum else { return true };
        let mut names: Vec<_> = view.iter().filter_map(|life| self.listed_name(*life)).collect();
        names.sort();
        names.dedup();
        names.len() * 2 > list.len()
    }

    /// True if `subset` may decide for all of `view`.
    pub(super) fn met(&self, subset: &[Life], view: &[Life]) -> bool {
        let present = || view.iter().filter(|member| subset.contains(member));
        let count = present().count();
        if count > 0 && self.is_forced(subset, view) {
            return true;
        }
        match &self.quorum {
            Quorum::MajorityOfView => {
                let half_with_first = || count * 2 == view.len() && subset.contains(&view[0]);
                count * 2 > view.len() || (count > 0 && half_with_first())
            }
            Quorum::MajorityOf(list) => {
                let mut names: Vec<_> = present().filter_map(|life| self.listed_name(*life)).collect();
                names.sort();
                names.dedup();
                // A view that is still too small to have a quorum decides only unanimously.
                let mut listed: Vec<_> = view.iter().filter_map(|life| self.listed_name(*life)).collect();
                listed.sort();
                listed.dedup();
                names.len() * 2 > list.len() || (listed.len() * 2 <= list.len() && count == view.len())
            }
            Quorum::All => count == view.len(),
            Quorum::AtLeast(least) => count >= usize::from(*least).min(view.len()),
            other => unreachable!("this checker does not know {other:?}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_core::Time;

    const VIEW: [Life; 4] = [Life(0), Life(1), Life(2), Life(3)];

    #[test]
    fn half_of_a_view_needs_its_first_member() {
        let rule = Rule::new(Quorum::MajorityOfView);
        assert!(rule.met(&[Life(0), Life(3)], &VIEW));
        assert!(!rule.met(&[Life(1), Life(2)], &VIEW));
        assert!(rule.met(&[Life(1), Life(2), Life(3)], &VIEW));
        assert!(!rule.met(&[Life(0), Life(8), Life(9)], &VIEW), "lives outside the view do not count");
        assert!(!rule.met(&[], &[]));
    }

    #[test]
    fn a_fixed_list_counts_names_and_not_lives() {
        let name = |text| Name::new(text).unwrap();
        let mut rule = Rule::new(Quorum::MajorityOf(["a", "b", "c"].map(name).to_vec()));
        for (life, text) in [(0, "a"), (1, "a"), (2, "b"), (3, "x")] {
            let what = What::Started { name: name(text) };
            rule.follow(&Record { at: Time::ZERO, process: 0, life: Life(life), what });
        }
        assert!(!rule.met(&[Life(0), Life(1), Life(3)], &VIEW));
        assert!(rule.met(&[Life(1), Life(2)], &VIEW));
        assert!(rule.could_be_met(&[Life(1), Life(2)]) && !rule.could_be_met(&[Life(0), Life(1), Life(3)]));
    }

    #[test]
    fn all_and_at_least() {
        assert!(!Rule::new(Quorum::All).met(&VIEW[..3], &VIEW));
        assert!(Rule::new(Quorum::All).met(&VIEW, &VIEW));
        assert!(Rule::new(Quorum::AtLeast(2)).met(&VIEW[2..], &VIEW));
        assert!(!Rule::new(Quorum::AtLeast(2)).met(&VIEW[3..], &VIEW));
    }
}
