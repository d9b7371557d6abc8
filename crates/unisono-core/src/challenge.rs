//! Challenges: how a member makes sure that a request from outside of the group is not a recording.
//!
//! A process that is no member asks twice. The first answer is a number that the member draws anew; the second request
//! returns it. A challenge is taken once, within 5 s, and from the host to which it was sent.

use crate::random::Random;
use crate::time::Time;
use core::net::IpAddr;
use core::time::Duration;

const LASTS: Duration = Duration::from_secs(5);

/// The last challenge that a member gave for one kind of request.
#[derive(Clone, Debug, Default)]
pub(crate) struct Challenge {
    /// The challenge, the host that it was sent to, and until when it is taken.
    drawn: Option<(u64, IpAddr, Time)>,
}

impl Challenge {
    /// True if this host returns the last challenge in time. The challenge is used up in any case.
    pub(crate) fn is_met(&mut self, now: Time, from: IpAddr, returned: u64) -> bool {
        self.drawn.take().is_some_and(|(drawn, to, until)| (drawn, to) == (returned, from) && now < until)
    }

    /// Draws a challenge for this host; it is never 0.
    pub(crate) fn draw(&mut self, now: Time, to: IpAddr, random: &mut Random) -> u64 {
        let drawn = random.next_u64() | 1;
        self.drawn = Some((drawn, to, now + LASTS));
        drawn
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const HOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const OTHER: IpAddr = IpAddr::V4(Ipv4Addr::BROADCAST);

    #[test]
    fn a_challenge_is_met_once_in_time_and_by_its_host() {
        let (mut challenge, mut random) = (Challenge::default(), Random::from_u64(1));
        let begin = Time::ZERO;
        assert!(!challenge.is_met(begin, HOST, 0), "none was drawn");
        let mut drawn = challenge.draw(begin, HOST, &mut random);
        assert!(challenge.is_met(begin, HOST, drawn));
        assert!(!challenge.is_met(begin, HOST, drawn), "it was used up");
        drawn = challenge.draw(begin, HOST, &mut random);
        assert!(!challenge.is_met(begin, OTHER, drawn));
        drawn = challenge.draw(begin, HOST, &mut random);
        assert!(!challenge.is_met(begin + LASTS, HOST, drawn));
    }
}
