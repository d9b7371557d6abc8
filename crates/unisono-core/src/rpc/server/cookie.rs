//! Cookies: proof that a client receives at its address and that its request was not executed in a forgotten session.
//!
//! A cookie consists of the time of its issue and a seal, which binds that time to the client's life and address under
//! a secret of this life. When a session is forgotten, the horizon is raised to that moment, and a cookie issued before
//! it opens no session. So no request that was executed in a forgotten session is taken for a new one.

use crate::cookies::CookieKey;
use crate::identity::Uid;
use crate::random::Random;
use crate::time::Time;
use crate::wire::Cookie;
use core::net::SocketAddr;

#[derive(Debug)]
pub(in crate::rpc) struct Cookies {
    key: CookieKey,
    /// Only cookies issued after this moment open a session.
    horizon: Option<Time>,
}

impl Cookies {
    pub(super) fn new(random: &mut Random) -> Cookies {
        Cookies { key: CookieKey::new(random), horizon: None }
    }

    pub(super) fn issue(&self, now: Time, client: Uid, address: SocketAddr) -> Cookie {
        let issued = now.as_nanos();
        Cookie { issued, seal: self.key.seal(issued, client, address) }
    }

    pub(super) fn is_good(&self, now: Time, client: Uid, address: SocketAddr, cookie: Cookie) -> bool {
        let issued = Time::from_nanos(cookie.issued);
        self.is_beyond_horizon(issued)
            && issued <= now
            && cookie.seal == self.key.seal(cookie.issued, client, address)
    }

    pub(super) fn is_beyond_horizon(&self, issued: Time) -> bool {
        self.horizon.is_none_or(|horizon| issued > horizon)
    }

    /// Raises the horizon, because sessions are forgotten now.
    pub(super) fn raise_horizon(&mut self, now: Time) {
        self.horizon = Some(now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_one_client_at_one_address_until_the_horizon_passes_it() {
        let mut cookies = Cookies::new(&mut Random::from_u64(1));
        let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let (now, later) = (Time::from_nanos(1000), Time::from_nanos(2000));
        let cookie = cookies.issue(now, Uid(1), address(1));
        assert!(cookies.is_good(later, Uid(1), address(1), cookie));
        assert!(!cookies.is_good(later, Uid(2), address(1), cookie));
        assert!(!cookies.is_good(later, Uid(1), address(2), cookie));
        assert!(!cookies.is_good(later, Uid(1), address(1), Cookie { issued: 1001, ..cookie }));
        assert!(!cookies.is_good(Time::from_nanos(999), Uid(1), address(1), cookie), "from the future");
        cookies.raise_horizon(now);
        assert!(!cookies.is_good(later, Uid(1), address(1), cookie));
        assert!(cookies.is_good(later, Uid(1), address(1), cookies.issue(later, Uid(1), address(1))));
        let other = Cookies::new(&mut Random::from_u64(2));
        assert!(!other.is_good(later, Uid(1), address(1), cookie), "another life's secret");
    }
}
