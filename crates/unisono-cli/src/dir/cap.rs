//! `unisono dir cap`: looks at capabilities, and makes others of them.

use super::capability::{parse_capability, target};
use super::session::{At, Session, client, object_digits, secret};
use crate::arguments::Common;
use crate::output::{Output, tell};
use crate::problem::Problem;
use crate::settings::Settings;
use clap::{Args, Subcommand};
use serde_json::json;
use unisono_dir::{Capability, Check, ClientError, Place, Rights, operation};

/// Look at a capability, or make another one of it
#[derive(Args, Debug)]
#[command(
    after_help = "Example:\n  unisono dir cap restrict @home.cap --rights 04   for the column `other` alone"
)]
pub(crate) struct Cap {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    Show(Show),
    Restrict(Restrict),
    Revoke(Revoke),
}

/// Say what a capability opens, without asking a server
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir cap show @home.cap")]
struct Show {
    /// The capability: @FILE, or - for a line of standard input
    capability: String,

    #[command(flatten)]
    common: Common,
}

/// Make a capability with fewer rights; the owner needs no server for that
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir cap restrict @home.cap --rights 04")]
struct Restrict {
    /// The capability: @FILE, or - for a line of standard input
    capability: String,

    /// The rights that stay, two hexadecimal digits
    #[arg(long, value_name = "RIGHTS")]
    rights: Rights,

    #[command(flatten)]
    common: Common,
}

/// Make all capabilities of an object void, and print the new one
///
/// With a path, the row gets the new capability; other rows keep the void one. Capabilities that were read from a directory
/// stay valid: revoke those objects too.
#[derive(Args, Debug)]
#[command(after_help = "Example:\n  unisono dir cap revoke home/ann")]
struct Revoke {
    /// A capability with all rights, as @FILE or - for a line of standard input, or a path that leads to one; ./ begins a path
    /// that would be another thing
    #[arg(value_name = "CAPABILITY|PATH")]
    target: String,

    #[command(flatten)]
    at: At,
}

impl Cap {
    pub(crate) fn common(&self) -> &Common {
        match &self.what {
            What::Show(command) => &command.common,
            What::Restrict(command) => &command.common,
            What::Revoke(command) => &command.at.common,
        }
    }
}

pub(crate) fn run(command: &Cap, settings: &Settings, output: &Output) -> Result<(), Problem> {
    match &command.what {
        What::Show(command) => show(command, output),
        What::Restrict(command) => restrict(command, settings, output),
        What::Revoke(command) => revoke(command, settings, output),
    }
}

fn show(command: &Show, output: &Output) -> Result<(), Problem> {
    let Capability { port, object, rights, .. } = parse_capability(&command.capability)?;
    let (object, is_owner) = (object_digits(object), rights == Rights::ALL);
    output.say(format_args!("service  {:032x}, where it listens", port.0))?;
    output.say(format_args!("object   {object}"))?;
    let all = if is_owner { ", all: its holder restricts it without a server" } else { "" };
    output.say(format_args!("rights   {rights}{all}"))?;
    for (bit, meaning) in MEANINGS {
        if rights.include(Rights(bit)) {
            output.say(format_args!("  {bit:02x}     {meaning}"))?;
        }
    }
    output.object(&json!({
        "command": "dir cap show", "port": format!("{:032x}", port.0), "object": object, "rights": rights.to_string(),
        "owner": is_owner,
    }))?;
    Ok(())
}

/// What each right allows.
const MEANINGS: [(u8, &str); 6] = [
    (0x01, "a directory's first column (owner)"),
    (0x02, "a directory's second column (group); read a file"),
    (0x04, "a directory's third column (other)"),
    (0x08, "a directory's fourth column; delete a file"),
    (0x40, "change a directory's rows"),
    (0x80, "delete a directory"),
];

fn restrict(command: &Restrict, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let capability = parse_capability(&command.capability)?;
    let restricted = match capability.restrict(command.rights) {
        Some(restricted) => restricted,
        None => client(settings)?.run(&operation::restrict(Place::of(capability), command.rights))?.value,
    };
    output.say(restricted.reveal())?;
    output.object(&json!({"command": "dir cap restrict", "capability": restricted.reveal()}))?;
    Ok(())
}

fn revoke(command: &Revoke, settings: &Settings, output: &Output) -> Result<(), Problem> {
    let place = target(&command.target, &command.at)?;
    let session = Session::of(place.capability, settings)?;
    let secret = secret()?;
    let outcome = session.run(&operation::revoke(place.clone(), secret));
    let revoked = match outcome {
        Ok(revoked) => revoked,
        Err(error) => {
            if let Some(perhaps) = perhaps_good(&place, secret, &error) {
                output.say(perhaps.reveal())?;
                output.object(
                    &json!({"command": "dir cap revoke", "seqno": null, "capability": perhaps.reveal()}),
                )?;
                tell(
                    "the capability above is good if the revoke was executed, and the one before if not; keep both",
                );
            }
            return Err(error.into());
        }
    };
    output.say(revoked.value.reveal())?;
    output.object(
        &json!({"command": "dir cap revoke", "seqno": revoked.number, "capability": revoked.value.reveal()}),
    )?;
    Ok(())
}

/// Returns the capability that a revoke without an answer has perhaps made: no row has it, so it would be lost.
fn perhaps_good(place: &Place, secret: Check, error: &ClientError) -> Option<Capability> {
    let Capability { port, object, .. } = place.capability;
    let is_lost = error.may_have_happened() && place.path.is_empty();
    is_lost.then(|| Capability::of_owner(port, object, secret))
}

#[cfg(test)]
mod tests {
    use super::*;
    use unisono_dir::{ObjectNumber, Port, Reason};

    #[test]
    fn a_revoke_without_an_answer_loses_no_object() {
        let (old, new) = (Check::from_bits(1), Check::from_bits(2));
        let of = |secret| Capability::of_owner(Port(7), ObjectNumber(3), secret);
        let late = |may_have_happened| ClientError::Late { may_have_happened };
        let bare = Place::of(of(old));
        assert_eq!(perhaps_good(&bare, new, &late(true)), Some(of(new)));
        assert_eq!(perhaps_good(&bare, new, &late(false)), None);
        assert_eq!(perhaps_good(&bare, new, &ClientError::Refused(Reason::NotFound.into())), None);
        // The row at the path has it.
        let named = Place { path: "a".parse().unwrap(), ..bare };
        assert_eq!(perhaps_good(&named, new, &late(true)), None);
    }
}
