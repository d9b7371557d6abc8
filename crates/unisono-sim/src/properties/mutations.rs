//! Tests that no error escapes the checkers. Correct histories are drawn from seeds, and all properties must accept
//! them. Then each history is broken in every way we know, and some property must reject it.

use super::fixture::Fixture;
use super::streams::seqno_of;
use crate::record::{Life, Record, What};
use unisono_core::{MessageNumber, Outcome, Quorum, Random};

/// A correct history drawn from a seed: small and large messages, joins, leaves, hand-overs, crashes and resets.
fn drawn(seed: u64, steps: u32) -> Fixture {
    let mut random = Random::from_u64(seed);
    let resilience = random.below(3) as u8;
    let mut fixture = Fixture::found(resilience, Quorum::MajorityOfView);
    for _ in 0..random.below(4) + 1 {
        fixture.join();
    }
    let mut waiting: Vec<(Life, MessageNumber)> = Vec::new();
    for _ in 0..steps {
        let alive = fixture.alive();
        let one = alive[random.below(alive.len() as u64) as usize];
        let in_step = alive.len() == fixture.view.len();
        match random.below(20) {
            0..6 => {
                let pieces = if random.chance(0.1) { 3 } else { 1 };
                waiting.push((one, fixture.send_pieces(one, pieces)));
            }
            6..11 if !waiting.is_empty() && fixture.is_ordered() => {
                let (sender, number) = waiting.remove(0);
                fixture.order(sender, number);
            }
            11..14 => {
                let through = random.below(fixture.end() + 1);
                fixture.store(one, through);
            }
            14..16 => {
                let acceptable = fixture.acceptable();
                fixture.accept(one, acceptable);
            }
            16 => fixture.purge(),
            17 if in_step => {
                fixture.deliver_all();
                match random.below(3) {
                    0 if fixture.view.len() < 6 => _ = fixture.join(),
                    1 if fixture.view.len() > 2 && !waiting.iter().any(|(sender, _)| *sender == one) => {
                        fixture.leave(one);
                    }
                    _ => fixture.hand_over(one),
                }
            }
            18 if alive.len() * 2 > fixture.view.len() + 2 => fixture.crash(one),
            19 => {
                let left_out =
                    (alive.len() * 2 > fixture.view.len() + 2 && random.chance(0.3)).then_some(one);
                let rest: Vec<_> = alive.into_iter().filter(|life| Some(*life) != left_out).collect();
                fixture.reset(&rest);
                waiting.clear();
            }
            _ => {}
        }
    }
    let rest = fixture.alive();
    fixture.reset(&rest);
    fixture.heal();
    for life in fixture.view.clone() {
        fixture.message(life);
    }
    fixture.purge();
    fixture
}

/// One way to break a history. Returns `None` if this history has no record to which it applies.
type Mutation = fn(&mut Fixture, &mut Random) -> Option<()>;

/// Returns the index of a random record for which `fits` holds.
fn pick(records: &[Record], random: &mut Random, fits: impl Fn(usize, &Record) -> bool) -> Option<usize> {
    let indices: Vec<_> = (0..records.len()).filter(|index| fits(*index, &records[*index])).collect();
    (!indices.is_empty()).then(|| indices[random.below(indices.len() as u64) as usize])
}

/// Returns the index of the same life's next event that has a seqno.
fn next_event(records: &[Record], index: usize) -> Option<usize> {
    let life = records[index].life;
    (index + 1..records.len())
        .find(|next| records[*next].life == life && seqno_of(&records[*next].what).is_some())
}

fn is_delivery(record: &Record) -> bool {
    matches!(record.what, What::Delivered { .. })
}

/// True if another life received the same event.
fn is_shared(records: &[Record], record: &Record) -> bool {
    records.iter().any(|other| other.life != record.life && other.what == record.what)
}

fn delivered_by_others(records: &[Record]) -> impl Fn(usize, &Record) -> bool {
    move |_, record| is_delivery(record) && is_shared(records, record)
}

fn exchange_events(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index =
        pick(records, random, |index, record| is_delivery(record) && next_event(records, index).is_some())?;
    let next = next_event(records, index)?;
    let (one, other) = (records[index].what.clone(), records[next].what.clone());
    (records[index].what, records[next].what) = (other, one);
    Some(())
}

fn drop_event(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index = pick(records, random, |index, record| {
        let next = next_event(records, index).map(|next| &records[next]);
        let shared =
            |record: &Record| is_shared(records, record) && !matches!(record.what, What::Entered { .. });
        seqno_of(&record.what).is_some() && shared(record) && next.is_some_and(shared)
    })?;
    records.remove(index);
    Some(())
}

fn repeat_event(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index = pick(records, random, |_, record| seqno_of(&record.what).is_some_and(|seqno| seqno > 0))?;
    let again = records[index].clone();
    let later = index + 1 + random.below((records.len() - index) as u64) as usize;
    records.insert(later, again);
    Some(())
}

fn delay_event_beyond_a_reset(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let reset_after = |index: usize, life: Life| {
        (index..records.len())
            .find(|next| records[*next].life == life && matches!(records[*next].what, What::Reset(_)))
    };
    let index = pick(records, random, |index, record| {
        is_delivery(record) && reset_after(index, record.life).is_some()
    })?;
    let reset = reset_after(index, records[index].life)?;
    let late = records.remove(index);
    records.insert(reset, late);
    Some(())
}

/// Changes the contents of a delivery.
fn change_delivery(
    records: &mut [Record],
    random: &mut Random,
    change: impl Fn(&mut u64, &mut Life, &mut u64, &mut u64),
) -> Option<()> {
    let index = pick(records, random, delivered_by_others(records))?;
    match &mut records[index].what {
        What::Delivered { seqno, sender, number, hash } => change(seqno, sender, number, hash),
        _ => return None,
    }
    Some(())
}

fn change_seqno(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    change_delivery(records, random, |seqno, _, _, _| *seqno += 1)
}

fn change_sender(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    change_delivery(records, random, |_, sender, _, _| sender.0 = (sender.0 + 1) % 3)
}

fn change_number(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    change_delivery(records, random, |_, _, number, _| *number += 1)
}

fn change_payload(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    change_delivery(records, random, |_, _, _, hash| *hash ^= 1)
}

fn forget_send(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index = pick(records, random, |_, record| {
        let What::Sent { number, .. } = record.what else { return false };
        records.iter().any(|other| {
            matches!(other.what, What::Delivered { sender, number: n, .. } if (sender, n) == (record.life, number))
        })
    })?;
    records.remove(index);
    Some(())
}

fn result_of(records: &mut [Record], random: &mut Random, change: impl Fn(&mut Outcome)) -> Option<()> {
    let ok = |record: &Record| matches!(record.what, What::SendResult { outcome: Outcome::Ok { .. }, .. });
    let index = pick(records, random, |_, record| ok(record))?;
    if let What::SendResult { outcome, .. } = &mut records[index].what {
        change(outcome);
    }
    Some(())
}

fn report_another_seqno(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    result_of(records, random, |outcome| {
        if let Outcome::Ok { seqno } = outcome {
            *seqno += 1;
        }
    })
}

fn report_failure(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    result_of(records, random, |outcome| *outcome = Outcome::Failed)
}

fn report_twice(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index = pick(records, random, |_, record| matches!(record.what, What::SendResult { .. }))?;
    let again = records[index].clone();
    records.insert(index + 1, again);
    Some(())
}

/// Changes a reset event that other lives received too.
fn reset_event(
    records: &mut [Record],
    random: &mut Random,
    change: impl Fn(&mut crate::record::Reset),
) -> Option<()> {
    let index = pick(records, random, |_, record| {
        matches!(record.what, What::Reset(_)) && is_shared(records, record)
    })?;
    if let What::Reset(reset) = &mut records[index].what {
        change(reset);
    }
    Some(())
}

fn begin_an_epoch_elsewhere(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    reset_event(records, random, |reset| reset.seqno += 1)
}

fn say_degraded_wrongly(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    reset_event(records, random, |reset| reset.degraded = !reset.degraded)
}

fn leave_a_member_out(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    reset_event(records, random, |reset| _ = reset.view.members.pop())
}

fn exclude_another_member(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    reset_event(records, random, |reset| reset.excluded.push(Life(0)))
}

fn name_another_sequencer(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let names = |_, record: &Record| {
        matches!(record.what, What::HandedOver { .. } | What::Left { successor: Some(_), .. })
    };
    let index = pick(records, random, names)?;
    if let What::HandedOver { sequencer, .. } | What::Left { successor: Some(sequencer), .. } =
        &mut records[index].what
    {
        sequencer.0 ^= 1;
    }
    Some(())
}

fn miscount_members(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index =
        pick(records, random, |_, record| matches!(record.what, What::Joined { .. } | What::Left { .. }))?;
    if let What::Joined { members, .. } | What::Left { members, .. } = &mut records[index].what {
        *members += 1;
    }
    Some(())
}

fn number_by_another(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index = pick(records, random, |_, record| matches!(record.what, What::Numbered { .. }))?;
    records[index].life.0 += 1;
    Some(())
}

fn number_twice(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index = pick(records, random, |_, record| matches!(record.what, What::Numbered { .. }))?;
    let again = records[index].clone();
    records.insert(index + 1, again);
    Some(())
}

fn purge_too_much(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index = pick(records, random, |_, record| matches!(record.what, What::Purged { .. }))?;
    if let What::Purged { through, .. } = &mut records[index].what {
        *through += 1;
    }
    Some(())
}

/// A member delivers an event without having known it to be accepted.
fn deliver_early(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index = pick(records, random, |index, record| {
        matches!(record.what, What::Accepted { .. })
            && next_event(records, index).is_some_and(|next| {
                records[index..next].iter().filter(|r| r.life == record.life).count() <= 2
                    && !matches!(records[next].what, What::Entered { seqno: 0, .. })
            })
    })?;
    records.remove(index);
    Some(())
}

/// A member accepts after it promised a ballot.
fn accept_after_promising(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index = pick(records, random, |_, record| matches!(record.what, What::Promised { .. }))?;
    let What::Promised { epoch, .. } = records[index].what else { return None };
    let what = What::Accepted { epoch, through: u64::MAX / 2 };
    records.insert(index + 1, Record { what, ..records[index].clone() });
    Some(())
}

/// All members lose the last message delivered before a reset, as if the reset had dropped it.
fn lose_without_report(fixture: &mut Fixture, random: &mut Random) -> Option<()> {
    let records = &mut fixture.records;
    let index = pick(records, random, |index, record| {
        is_delivery(record)
            && is_shared(records, record)
            && next_event(records, index).is_some_and(|next| matches!(records[next].what, What::Reset(_)))
    })?;
    records.remove(index);
    Some(())
}

const MUTATIONS: &[(&str, Mutation)] = &[
    ("exchange_events", exchange_events),
    ("drop_event", drop_event),
    ("repeat_event", repeat_event),
    ("delay_event_beyond_a_reset", delay_event_beyond_a_reset),
    ("change_seqno", change_seqno),
    ("change_sender", change_sender),
    ("change_number", change_number),
    ("change_payload", change_payload),
    ("forget_send", forget_send),
    ("report_another_seqno", report_another_seqno),
    ("report_failure", report_failure),
    ("report_twice", report_twice),
    ("begin_an_epoch_elsewhere", begin_an_epoch_elsewhere),
    ("say_degraded_wrongly", say_degraded_wrongly),
    ("leave_a_member_out", leave_a_member_out),
    ("exclude_another_member", exclude_another_member),
    ("name_another_sequencer", name_another_sequencer),
    ("miscount_members", miscount_members),
    ("number_by_another", number_by_another),
    ("number_twice", number_twice),
    ("purge_too_much", purge_too_much),
    ("deliver_early", deliver_early),
    ("accept_after_promising", accept_after_promising),
    ("lose_without_report", lose_without_report),
];

const SEEDS: u64 = 150;
const STEPS: u32 = 120;

#[test]
fn good_histories_are_accepted() {
    for seed in 0..SEEDS {
        let fixture = drawn(seed, STEPS);
        if let Err(violation) = fixture.check_all() {
            panic!("seed {seed}: {violation}\n{}", fixture.text());
        }
    }
}

#[test]
fn every_mutation_is_noticed_in_every_history() {
    for (name, mutation) in MUTATIONS {
        let mut tried = 0;
        for seed in 0..SEEDS {
            let mut fixture = drawn(seed, STEPS);
            // The state at the end is that of the correct fixture; only the records are broken.
            let end = fixture.ending();
            if mutation(&mut fixture, &mut Random::from_u64(seed)).is_none() {
                continue;
            }
            tried += 1;
            let verdict = fixture.check_all_with_end(&end);
            assert!(verdict.is_err(), "{name} was not noticed with seed {seed}\n{}", fixture.text());
        }
        assert!(tried > SEEDS / 10, "{name} applied to only {tried} histories");
    }
}
