//! Combines flags, environment and settings file. A flag overrides the environment (clap does that), and the
//! environment overrides the file named by `--config`. An unknown setting in the file is an error.

use crate::arguments::{Common, Transport};
use crate::log::{self, Log};
use crate::problem::Problem;
use crate::text_file;
use crate::units::Milliseconds;
use serde::{Deserialize, Serialize};
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Maximum length of a settings file: 64 KiB.
const BYTES_MAX: u64 = 64 << 10;

/// The settings of a command.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Settings {
    /// File of the group key.
    pub(crate) key: Option<PathBuf>,
    /// Seed members, as given; resolved when the command looks for the group.
    pub(crate) seeds: Vec<String>,
    /// How long to wait while none of the seeds has an address.
    pub(crate) seeds_timeout: Option<Duration>,
    /// Address to receive on; with port 0 the system chooses a port.
    pub(crate) bind: Option<SocketAddr>,
    /// How datagrams for the whole group are sent.
    pub(crate) transport: Transport,
    /// True if addresses beyond this machine are allowed without a key.
    pub(crate) insecure: bool,
    /// How long a silent member may leave queries unanswered.
    pub(crate) patience: Option<Duration>,
    /// How long to look for a group before founding it.
    pub(crate) locate: Option<Duration>,
    /// True for JSON output.
    pub(crate) json: bool,
    /// Level and format of the log.
    pub(crate) log: Log,
}

/// The content of a settings file, under the names of the flags.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    key: Option<PathBuf>,
    seeds: Option<Vec<String>>,
    #[serde(rename = "seeds-timeout")]
    seeds_timeout: Option<Milliseconds>,
    bind: Option<String>,
    transport: Option<Transport>,
    insecure: Option<bool>,
    patience: Option<Milliseconds>,
    locate: Option<Milliseconds>,
    json: Option<bool>,
    log: Option<log::Level>,
    #[serde(rename = "log-format")]
    log_format: Option<log::Format>,
}

impl Settings {
    /// Reads the file, if one is named, and overrides it with the flags.
    pub(crate) fn resolve(flags: &Common) -> Result<Settings, Problem> {
        let file = match &flags.config {
            Some(path) => File::read(path)?,
            None => File::default(),
        };
        let bind = match flags.bind.as_deref().or(file.bind.as_deref()) {
            Some(text) => Some(address(text)?),
            None => None,
        };
        // An empty environment variable yields one empty seed, which is ignored.
        let named = |seeds: &[String]| -> Vec<String> {
            seeds.iter().filter(|seed| !seed.is_empty()).cloned().collect()
        };
        let seeds = named(&flags.seeds);
        Ok(Settings {
            key: flags.key.clone().or(file.key),
            seeds: if seeds.is_empty() { named(&file.seeds.unwrap_or_default()) } else { seeds },
            seeds_timeout: flags.seeds_timeout.or(file.seeds_timeout.map(|time| time.0)),
            bind,
            transport: flags.transport.or(file.transport).unwrap_or_default(),
            insecure: flags.insecure || file.insecure.unwrap_or(false),
            patience: flags.patience.or(file.patience.map(|time| time.0)),
            locate: flags.locate.or(file.locate.map(|time| time.0)),
            json: flags.json || file.json.unwrap_or(false),
            log: Log {
                level: flags.log.log.or(file.log).unwrap_or_default(),
                format: flags.log.log_format.or(file.log_format).unwrap_or_default(),
            },
        })
    }
}

impl File {
    fn read(path: &Path) -> Result<File, Problem> {
        let text = text_file::read(path, BYTES_MAX).map_err(|error| {
            Problem::usage(format!("cannot read the settings file {}: {error}", path.display()))
        })?;
        let file: File = toml::from_str(&text).map_err(|error| {
            Problem::usage(format!("{}: {}", path.display(), error.to_string().trim_end()))
        })?;
        if file.key.as_ref().is_some_and(|key| key.as_os_str().is_empty()) {
            return Err(Problem::usage(format!("{}: `key` names no file", path.display())));
        }
        let beside = path.parent().unwrap_or(Path::new(""));
        Ok(File { key: file.key.map(|key| beside.join(key)), ..file })
    }
}

/// Parses `192.0.2.7`, `192.0.2.7:7195`, `::1` or `[::1]:7195`.
fn address(text: &str) -> Result<SocketAddr, Problem> {
    let alone = text.parse::<IpAddr>().map(|ip| SocketAddr::new(ip, 0));
    alone.or_else(|_| text.parse()).map_err(|_| {
        Problem::usage(format!(
            "--bind takes an address of this machine such as 192.0.2.7 or 192.0.2.7:7195, not '{text}'"
        ))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("unisono.toml");
        std::fs::write(&path, text).unwrap();
        (folder, path)
    }

    #[test]
    fn a_flag_overrides_the_file() {
        let (_folder, path) = file(
            "bind = '10.0.0.1'\ntransport = 'unicast'\nseeds = ['a:1']\npatience = 500\nlocate = '600ms'\n",
        );
        let (bind, patience) = (Some("10.0.0.2:5".into()), Some(Duration::from_millis(700)));
        let flags = Common { config: Some(path), bind, patience, ..Common::default() };
        let settings = Settings::resolve(&flags).unwrap();
        assert_eq!(settings.bind, Some("10.0.0.2:5".parse().unwrap()));
        assert_eq!(settings.transport, Transport::Unicast);
        assert_eq!(settings.seeds, ["a:1"]);
        assert_eq!(
            [settings.patience, settings.locate],
            [700, 600].map(|ms| Some(Duration::from_millis(ms)))
        );
    }

    #[test]
    fn a_key_in_the_file_is_found_beside_the_file() {
        let (folder, path) = file("key = 'group.key'");
        let settings = Settings::resolve(&Common { config: Some(path), ..Common::default() }).unwrap();
        assert_eq!(settings.key, Some(folder.path().join("group.key")));
    }

    #[test]
    fn an_empty_key_is_refused_and_an_empty_seed_is_ignored() {
        let (_folder, path) = file("key = ''");
        let refused = Settings::resolve(&Common { config: Some(path), ..Common::default() }).unwrap_err();
        assert!(format!("{refused:?}").contains("`key` names no file"), "{refused:?}");
        let (_folder, path) = file("seeds = ['', 'a:1']");
        let settings = Settings::resolve(&Common { config: Some(path), ..Common::default() }).unwrap();
        assert_eq!(settings.seeds, ["a:1"]);
    }

    #[test]
    fn a_file_sets_the_log_and_flags_override_it() {
        let (_folder, path) = file("log = 'info'\nlog-format = 'json'");
        let mut flags = Common { config: Some(path), ..Common::default() };
        let settings = Settings::resolve(&flags).unwrap();
        assert_eq!(settings.log, Log { level: log::Level::Info, format: log::Format::Json });
        flags.log.log = Some(log::Level::Off);
        assert_eq!(Settings::resolve(&flags).unwrap().log.level, log::Level::Off);
    }

    #[test]
    fn a_misspelt_setting_is_refused() {
        let (_folder, path) = file("sedes = ['a:1']");
        assert!(Settings::resolve(&Common { config: Some(path), ..Common::default() }).is_err());
    }

    #[test]
    fn addresses_with_and_without_a_port() {
        assert_eq!(address("::1").unwrap(), "[::1]:0".parse().unwrap());
        assert_eq!(address("127.0.0.1:9").unwrap(), "127.0.0.1:9".parse().unwrap());
        assert!(address("localhost").is_err());
    }
}
