//! `unisono completions`: a script with which a shell completes commands and options.

use crate::arguments::{self, Common};
use crate::output::Output;
use crate::problem::Problem;
use clap::{Args, ValueEnum};
use clap_complete::aot;
use serde_json::json;

const HELP: &str = "\
Examples:
  source <(unisono completions bash)
  unisono completions bash > ~/.local/share/bash-completion/completions/unisono
  unisono completions zsh > \"${fpath[1]}/_unisono\"
  unisono completions fish > ~/.config/fish/completions/unisono.fish";

/// Print a script with which a shell completes commands and options
#[derive(Args, Debug)]
#[command(after_help = HELP)]
pub(crate) struct Completions {
    /// The shell that reads the script
    #[arg(value_enum)]
    shell: Shell,

    #[command(flatten)]
    pub(crate) common: Common,
}

/// A shell for which there is a script.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    /// Its name on the command line.
    fn name(self) -> &'static str {
        match self {
            Shell::Bash => "bash",
            Shell::Zsh => "zsh",
            Shell::Fish => "fish",
        }
    }

    fn script(self) -> String {
        let shell = match self {
            Shell::Bash => aot::Shell::Bash,
            Shell::Zsh => aot::Shell::Zsh,
            Shell::Fish => aot::Shell::Fish,
        };
        let (mut tree, mut script) = (arguments::public_tree(), Vec::new());
        aot::generate(shell, &mut tree, arguments::PROGRAM, &mut script);
        String::from_utf8_lossy(&script).into_owned()
    }
}

pub(crate) fn run(command: &Completions, output: &Output) -> Result<(), Problem> {
    let (shell, script) = (command.shell, command.shell.script());
    output.say(script.trim_end())?;
    output.object(&json!({"command": "completions", "shell": shell.name(), "script": script}))?;
    Ok(())
}
