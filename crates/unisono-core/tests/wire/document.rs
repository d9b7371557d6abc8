//! Holds `docs/protocol/wire-format.md` to the code: its tables add up to the sizes in the code, and its examples
//! decode to what the page says.

use bytes::Bytes;
use std::collections::BTreeMap;
use unisono_core::wire::*;

/// A symbolic link to the page, so that the package contains it.
const PAGE: &str = include_str!("wire-format.txt");

/// A section of the page that has a table.
#[derive(Default)]
struct Section {
    rows: Vec<Row>,
    /// The line under the table: the explanation of the example.
    meaning: Option<&'static str>,
}

struct Row {
    /// Offset of the field. Only the table of the header gives it.
    offset: Option<usize>,
    /// Minimum size of the field in bytes.
    bytes_min: usize,
    /// The field has exactly `bytes_min` bytes.
    exact: bool,
    example: &'static str,
}

/// Returns the page's sections by their headings.
fn sections() -> BTreeMap<&'static str, Section> {
    let mut sections = BTreeMap::new();
    let mut heading = "";
    for line in PAGE.lines() {
        if let Some(title) = line.strip_prefix("### ") {
            heading = title;
            assert!(sections.insert(heading, Section::default()).is_none(), "{heading} occurs twice");
        } else if line.starts_with("## ") {
            heading = "";
        } else if let Some(section) = sections.get_mut(heading) {
            if let Some(row) = row(line) {
                section.rows.push(row);
            } else if let Some(meaning) = line.strip_prefix("> ") {
                section.meaning = Some(meaning);
            }
        }
    }
    sections
}

fn row(line: &'static str) -> Option<Row> {
    let cells: Vec<_> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let (offset, cells) = match cells.len() {
        5 => (cells[0].parse().ok(), &cells[1..]),
        4 => (None, &cells[..]),
        count => panic!("{count} cells: {line}"),
    };
    let bytes_min = cells[0].split(' ').next()?.parse().ok()?;
    Some(Row { offset, bytes_min, exact: cells[0].parse::<usize>().is_ok(), example: cells[3] })
}

impl Section {
    fn bytes_min(&self) -> usize {
        self.rows.iter().map(|row| row.bytes_min).sum()
    }
}

/// Returns the bytes of a section's example. Checks that each row has as many as the table says.
fn example(sections: &BTreeMap<&str, Section>, heading: &str) -> Vec<u8> {
    let mut example = Vec::new();
    for row in &sections[heading].rows {
        let bytes = cell(sections, row.example);
        let right = if row.exact { bytes.len() == row.bytes_min } else { bytes.len() >= row.bytes_min };
        assert!(right, "{heading}: {} has {} bytes, not {}", row.example, bytes.len(), row.bytes_min);
        if let Some(offset) = row.offset {
            assert_eq!(offset, example.len(), "{heading}: {}", row.example);
        }
        example.extend(bytes);
    }
    example
}

/// Returns the bytes of a cell: hex in backquotes, repeated if a count follows; or hex, links to sections, or both.
fn cell(sections: &BTreeMap<&str, Section>, cell: &str) -> Vec<u8> {
    if let Some((bytes, count)) = cell.split_once(" × ") {
        return hex(bytes.trim_matches('`')).repeat(count.parse().unwrap());
    }
    let (bytes, links) = match cell.strip_prefix('`').and_then(|cell| cell.split_once('`')) {
        Some((bytes, links)) => (hex(bytes), links),
        None => (Vec::new(), cell),
    };
    let links = links.split('(').skip(1);
    let linked = links.flat_map(|link| {
        let anchor = link.split(')').next().unwrap().trim_start_matches('#').replace('-', " ");
        let heading = sections.keys().find(|heading| heading.to_lowercase() == anchor).unwrap();
        example(sections, heading)
    });
    bytes.into_iter().chain(linked).collect()
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<_> =
        text.chars().filter(|c| !c.is_whitespace()).map(|c| c.to_digit(16).unwrap()).collect();
    assert!(digits.len() % 2 == 0, "{text}");
    digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect()
}

/// Returns the text between a fence of this language and the next fence.
fn fenced(language: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("\n```{language}\n")).unwrap();
    rest.split_once("```").unwrap().0
}

#[test]
fn every_kind_of_frame_is_on_the_page_and_reads_as_it_says() {
    let sections = sections();
    let mut kinds = Vec::new();
    for (heading, section) in &sections {
        let Some((number, name)) = heading.strip_prefix("0x").and_then(|heading| heading.split_once(' '))
        else {
            continue;
        };
        let number = u8::from_str_radix(number, 16).unwrap();
        let kind = FrameKind::from_number(number).unwrap_or_else(|| panic!("{heading}: no such kind"));
        assert_eq!(kind.name(), name);
        assert_eq!(kind.body_bytes_min(), section.bytes_min(), "{heading}: the least bytes of the body");
        kinds.push(kind);

        let body = example(&sections, heading);
        let mut written = vec![number];
        written.extend((body.len() as u16).to_be_bytes());
        written.extend(body);
        let mut decoder = Decoder::new(Bytes::from(written.clone()));
        let frame = decoder.next().unwrap().unwrap_or_else(|error| panic!("{heading}: {error}"));
        assert_eq!(decoder.next(), None);
        assert_eq!(section.meaning, Some(&*frame.to_string()), "{heading}");
        let mut again = Vec::new();
        assert!(Writer::new(&mut again, written.len()).frame(&frame));
        assert_eq!(again, written, "{heading}");
    }
    assert_eq!(kinds, FrameKind::ALL);
}

#[test]
fn the_header_is_as_the_page_says() {
    let sections = sections();
    assert_eq!(sections["Header"].bytes_min(), HEADER_BYTES);
    let written = example(&sections, "Header");
    let mut again = Vec::new();
    Header::parse(&written).unwrap().write(&mut again);
    assert_eq!(again, written);
    assert_eq!(sections["Frame"].bytes_min(), FRAME_HEAD_BYTES);
    let frame = example(&sections, "Frame");
    assert_eq!(Decoder::new(frame.into()).collect::<Vec<_>>(), [Ok(Frame::Gone { through: 30 })]);
}

#[test]
fn the_report_is_as_the_page_says() {
    let sections = sections();
    assert_eq!(sections["Report"].bytes_min(), REPORT_BYTES_MIN);
    let written = example(&sections, "Report");
    let told = decode_report(&written.clone().into()).unwrap();
    assert_eq!((told.waiting.len(), told.waiting_omitted), (1, 0));
    assert_eq!((told.members.len(), told.members_omitted), (1, 2));
    let mut again = Vec::new();
    assert!(encode_report(&told, &mut again, written.len()));
    assert_eq!(again, written);
}

#[test]
fn limits_are_as_the_page_says() {
    for limit in [
        format!("padded to {} bytes", thousands(PADDED_BYTES)),
        format!("never to less than {PADDED_BYTES_MIN}"),
        format!("at most {} bytes long", thousands(PARCELLED_BYTES_MAX)),
        format!("at most {}, with the highest bit", thousands(PIECE_BYTES_MAX)),
        format!("last {} packet numbers", thousands(REPLAY_WINDOW as usize)),
        format!("how many there are, 1 to {}", thousands(PARCELS_MAX)),
        format!("ranges, 1 to {NACK_RANGES_MAX}"),
        format!("at most {GREETING_BYTES_MAX}"),
        format!("at most {}", unisono_core::Name::BYTES_MAX),
        format!("| count | 1 to {}", thousands(MEMBERS_MAX)),
        format!("below {}", thousands(SLOTS_MAX)),
        format!("1 to {}, and that of each part", thousands(CALL_BYTES_MAX)),
        format!("in 2 bytes, at least {PART_BYTES_MIN}"),
        format!("passed on, at most {HOPS_MAX}"),
        format!("{GOT_PARTS} bits for the parts"),
        format!("attempts, at most {DONE_MAX}"),
    ] {
        assert!(PAGE.replace('\n', " ").contains(&limit), "the page does not say: {limit}");
    }
    assert_eq!(NUMBER_MAX, (1 << 63) - 1);
}

fn thousands(number: usize) -> String {
    match number / 1000 {
        0 => number.to_string(),
        thousands_ => format!("{},{:03}", thousands(thousands_), number % 1000),
    }
}

#[test]
fn the_example_is_explained_as_the_page_says() {
    assert_eq!(explain(&hex(fenced("hex"))), fenced("text"));
}
