//! A minority is silent: a server that answers a linearizable query has heard of a majority of the servers since the query
//! arrived, directly or through other servers. Without that it cannot know that its state is the present one.

use super::at_end::Promise;
use super::history::History;

/// The promise `minority_is_silent`.
#[derive(Debug, Default)]
pub(super) struct MinorityIsSilent;

impl Promise for MinorityIsSilent {
    const NAME: &'static str = "minority_is_silent";

    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String> {
        *checked += history.confirmed.len() as u64;
        let servers = history.servers;
        match history.confirmed.iter().find(|(_, heard)| 2 * heard <= servers) {
            Some((name, heard)) => {
                Err(format!("{name:?} was answered by a server that heard of {heard} of {servers}"))
            }
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::at_end::AtEnd;
    use super::super::fixture::Fixture;
    use super::*;

    #[test]
    fn accepts_a_majority_and_rejects_a_minority() {
        for (heard, is_good) in [(3, true), (2, true), (1, false)] {
            let mut fixture = Fixture::founded();
            fixture.confirmed(heard);
            match is_good {
                true => fixture.good(AtEnd::<MinorityIsSilent>::default()),
                false => fixture.bad(AtEnd::<MinorityIsSilent>::default()),
            }
        }
    }
}
