//! `unisono man`: writes a manual page for every command, from the same definitions as `--help`.

use crate::arguments::{self, Common};
use crate::output::{Output, several};
use crate::problem::Problem;
use anyhow::Context;
use clap::Args;
use serde_json::json;
use std::fs;
use std::path::{Path, PathBuf};

/// Write manual pages into a folder, one for each command
///
/// The folder is made if it does not exist. Existing pages of the same names are replaced.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono man ~/.local/share/man/man1\n  man unisono-listen")]
pub(crate) struct Man {
    /// The folder, such as ~/.local/share/man/man1
    #[arg(value_name = "DIR")]
    folder: PathBuf,

    #[command(flatten)]
    pub(crate) common: Common,
}

pub(crate) fn run(command: &Man, output: &Output) -> Result<(), Problem> {
    let folder = command.folder.as_path();
    fs::create_dir_all(folder).map_err(|cause| {
        let folder = folder.display();
        Problem::usage(format!(
            "cannot make the folder {folder} ({cause}): name a folder that you may write to"
        ))
    })?;
    // The `help` command of each level repeats what `--help` prints, so it gets no page.
    let mut tree = arguments::public_tree().disable_help_subcommand(true);
    tree.build();
    let mut pages = Vec::new();
    write(&tree, folder, &mut pages)?;
    let folder = folder.display();
    output
        .say(format_args!("{folder}: {}, beginning with unisono.1", several(pages.len() as u64, "page")))?;
    output.object(&json!({"command": "man", "folder": folder.to_string(), "pages": pages}))?;
    Ok(())
}

/// Writes the pages of a command and of its subcommands. Appends their names to `pages`.
fn write(command: &clap::Command, folder: &Path, pages: &mut Vec<String>) -> anyhow::Result<()> {
    let version = format!("{} {}", arguments::PROGRAM, env!("CARGO_PKG_VERSION"));
    let page = clap_mangen::Man::new(command.clone()).source(version).manual("Unisono");
    let (name, mut text) = (page.get_filename(), Vec::new());
    page.render(&mut text)?;
    let path = folder.join(&name);
    fs::write(&path, keep_lines_of_notes(&String::from_utf8_lossy(&text)))
        .with_context(|| format!("cannot write {}", path.display()))?;
    pages.push(name);
    command.get_subcommands().try_for_each(|command| write(command, folder, pages))
}

/// Keeps the line breaks of examples and tables. clap_mangen puts these into a section EXTRA, whose lines man would
/// join; this function renames the section to NOTES and prints it unfilled.
fn keep_lines_of_notes(page: &str) -> String {
    let (mut kept, mut in_notes) = (String::new(), false);
    for line in page.lines() {
        if in_notes && line.starts_with(".SH") {
            kept.push_str(".fi\n");
            in_notes = false;
        }
        if line == ".SH EXTRA" {
            kept.push_str(".SH NOTES\n.nf\n");
            in_notes = true;
        } else {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lines_of_notes_stay_lines_and_other_sections_are_filled() {
        let page = ".SH NAME\nunisono\n.SH EXTRA\nExample:\n  unisono demo\n.SH VERSION\nv0\n";
        let kept = ".SH NAME\nunisono\n.SH NOTES\n.nf\nExample:\n  unisono demo\n.fi\n.SH VERSION\nv0\n";
        assert_eq!(keep_lines_of_notes(page), kept);
    }
}
