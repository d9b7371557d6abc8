//! The cities of a travelling salesman, the same for the same seed.

/// Returns the distances between `count` cities at random places of a square of 1,000 by 1,000.
pub(crate) fn distances(count: usize, seed: u64) -> Vec<Vec<u32>> {
    let mut state = seed;
    let mut coordinate = || {
        // Steps of an odd size through all 64-bit numbers, and a hash of each (splitmix64).
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (state ^ (state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % 1000) as f64
    };
    let places: Vec<(f64, f64)> = (0..count).map(|_| (coordinate(), coordinate())).collect();
    let between = |a: &(f64, f64), b: &(f64, f64)| (a.0 - b.0).hypot(a.1 - b.1).round() as u32;
    places.iter().map(|from| places.iter().map(|to| between(from, to)).collect()).collect()
}
