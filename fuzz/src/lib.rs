//! Fuzz targets: what arrives from networks and disks, and may have been made to do harm.
//!
//! Each target is a module with two functions. `run` takes any bytes and must not panic, overflow or run for long. `seeds`
//! returns inputs that the tests of the workspace know to be valid, or that run through much code: the first corpus.
//! `cargo test` runs every target on its seeds and on changes of them, without libFuzzer.
#![forbid(unsafe_code)]

pub mod backups;
pub mod datagrams;
pub mod disk;
pub mod endpoint;
mod free;
mod input;
mod pages;
pub mod requests;
pub mod table;

/// A target: its name, what it runs, and its first corpus.
pub type Target = (&'static str, fn(&[u8]), fn() -> Vec<Vec<u8>>);

/// All targets.
pub const TARGETS: [Target; 6] = [
    ("datagrams", datagrams::run, datagrams::seeds),
    ("requests", requests::run, requests::seeds),
    ("table", table::run, table::seeds),
    ("endpoint", endpoint::run, endpoint::seeds),
    ("disk", disk::run, disk::seeds),
    ("backups", backups::run, backups::seeds),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seeds_and_changes_of_them_are_survived() {
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut draw = |below: usize| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            (random % below.max(1) as u64) as usize
        };
        for (name, run, seeds) in TARGETS {
            let seeds = seeds();
            assert!(!seeds.is_empty(), "{name}");
            run(&[]);
            for seed in &seeds {
                run(seed);
            }
            for _ in 0..2000 {
                let mut input = seeds[draw(seeds.len())].clone();
                for _ in 0..=draw(4) {
                    let at = draw(input.len());
                    match draw(3) {
                        0 => input.truncate(at),
                        1 if at < input.len() => input[at] = [0, 1, 0x7f, 0xff][draw(4)],
                        _ if at < input.len() => input[at] ^= 1 << draw(8),
                        _ => {}
                    }
                }
                run(&input);
            }
        }
    }
}
