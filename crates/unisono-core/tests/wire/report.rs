//! Reports are cut to the room that there is, and say how many entries were left out.

use crate::strategies::any_report;
use proptest::prelude::*;
use unisono_core::look::{Report, WaitReason};
use unisono_core::{Suspicion, wire::*};

fn written(report: &Report) -> Vec<u8> {
    let mut out = Vec::new();
    assert!(encode_report(report, &mut out, usize::MAX));
    out
}

proptest! {
    #[test]
    fn a_report_is_told_as_far_as_there_is_room(report in any_report(), limit in REPORT_BYTES_MIN..6000) {
        let mut out = vec![9; 5];
        prop_assert!(encode_report(&report, &mut out, limit));
        prop_assert!(out.len() <= 5 + limit);
        let mut expected = report.clone();
        let told = decode_report(&bytes::Bytes::from(out).slice(5..)).unwrap();
        expected.members.truncate(told.members.len());
        expected.waiting.truncate(told.waiting.len());
        expected.members_omitted = report.members.len() - told.members.len();
        expected.waiting_omitted = report.waiting.len() - told.waiting.len();
        prop_assert_eq!(told, expected);
    }

    #[test]
    fn nothing_is_left_out_if_all_fits(report in any_report()) {
        let mut out = Vec::new();
        prop_assert!(encode_report(&report, &mut out, usize::MAX));
        let needed = out.len();
        prop_assert_eq!(decode_report(&out.into()), Ok(report.clone()));
        let mut out = Vec::new();
        prop_assert!(encode_report(&report, &mut out, needed));
        prop_assert_eq!(decode_report(&out.into()), Ok(report));
    }

    #[test]
    fn room_is_used(report in any_report(), limit in REPORT_BYTES_MIN..6000) {
        let mut out = Vec::new();
        prop_assert!(encode_report(&report, &mut out, limit));
        let used = out.len();
        let told = decode_report(&out.into()).unwrap();
        // The largest entry has 117 bytes.
        prop_assert!(told.members_omitted + told.waiting_omitted == 0 || limit - used < 117);
    }

    /// However many members there are, they leave the waits half of the room.
    #[test]
    fn what_is_waited_for_has_its_share(report in any_report(), limit in REPORT_BYTES_MIN..6000) {
        let mut out = Vec::new();
        prop_assert!(encode_report(&report, &mut out, limit));
        let told = decode_report(&out.into()).unwrap();
        let wait_bytes = 34;
        let share = (limit - REPORT_BYTES_MIN) / 2 / wait_bytes;
        prop_assert!(told.waiting.len() >= share.min(report.waiting.len()));
    }

    #[test]
    fn less_than_the_least_is_refused(report in any_report(), limit in 0..REPORT_BYTES_MIN) {
        let mut out = Vec::new();
        prop_assert!(!encode_report(&report, &mut out, limit));
        prop_assert!(out.is_empty());
    }

    /// Code 4 of a suspicion and code 5 of a wait are not used: the decoder refuses them like any unknown code.
    #[test]
    fn an_unused_code_is_refused(mut report in any_report()) {
        prop_assume!(!report.waiting.is_empty());
        if let Some(reset) = &mut report.last_reset {
            reset.reason = Some(Suspicion::Slow);
        }
        report.waiting[0].reason = WaitReason::Reset;
        let before = written(&report);
        let mut other = report.clone();
        match &mut other.last_reset {
            Some(reset) => reset.reason = Some(Suspicion::Replaced),
            None => other.waiting[0].reason = WaitReason::Flush,
        }
        let after = written(&other);
        let at = (0..before.len()).find(|&at| before[at] != after[at]).unwrap();
        let mut unused = before;
        unused[at] = 200;
        let fault = decode_report(&unused.into()).map_err(|error| error.fault);
        let refused = matches!(fault, Err(Fault::Range { field: "suspicion" | "reason", .. }));
        prop_assert!(refused, "{:?}", fault);
    }
}
