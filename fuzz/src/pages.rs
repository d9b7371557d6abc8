//! The examples in the pages of the protocols, which tests hold against the code.

const DIRECTORY: &str = include_str!("../../docs/protocol/directory.md");

/// Returns the examples of requests and replies to a directory: the code of hexadecimal digits in the cells of tables.
pub(crate) fn of_directory() -> Vec<Vec<u8>> {
    let words = DIRECTORY.lines().filter(|line| line.starts_with('|')).flat_map(|line| line.split('`'));
    words.filter_map(bytes).collect()
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    let is_example =
        digits.len() >= 6 && digits.len() % 2 == 0 && digits.bytes().all(|b| b.is_ascii_hexdigit());
    let pair = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).ok();
    is_example.then(|| (0..digits.len()).step_by(2).filter_map(pair).collect())
}
