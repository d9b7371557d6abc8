//! Members that ask for more hops: how far the multicasts of their group go.

use crate::network::*;
use unisono_core::*;

#[test]
fn multicasts_go_as_far_as_the_member_of_the_view_that_asks_for_most() {
    let mut net = Net::new();
    let asking = |hops| Settings { hops, ..unicast() };
    for (index, (hops, in_force)) in [(2, 2), (1, 2), (7, 7), (4, 7)].into_iter().enumerate() {
        let entry = if index == 0 { EntryMode::Found(GroupConfig::default()) } else { EntryMode::Join };
        net.add(entry, asking(hops));
        assert_eq!(net.group_mut(index).hops(), hops, "it looks for the group as far as it asks");
        assert!(net.run_until(MS, 5_000 * MS, |net| net.phase(index) == Phase::Member), "m{index} joins");
        net.run(500 * MS);
        for member in 0..=index {
            assert_eq!(net.group_mut(member).hops(), in_force, "m{member} when m{index} has joined");
        }
    }
    let hops = |net: &mut Net| [1, 3].map(|member| net.group_mut(member).hops());
    net.leave(2);
    assert!(net.run_until(MS, 5_000 * MS, |net| net.size(1) == 3));
    net.run(500 * MS);
    assert_eq!(hops(&mut net), [4, 4], "a number goes with its member");
    net.crash(0);
    assert!(net.run_until(MS, 5_000 * MS, |net| net.size(1) == 2));
    net.run(500 * MS);
    assert_eq!(hops(&mut net), [4, 4], "a reset keeps what those that go on ask for");
    net.leave(3);
    assert!(net.run_until(MS, 5_000 * MS, |net| net.size(1) == 1));
    net.run(500 * MS);
    assert_eq!(net.group_mut(1).hops(), 1);
}

#[test]
fn no_member_asks_for_no_hops() {
    assert!(Settings { hops: 0, ..Settings::default() }.check().is_err());
    assert!(Settings { hops: 255, ..Settings::default() }.check().is_ok());
}
