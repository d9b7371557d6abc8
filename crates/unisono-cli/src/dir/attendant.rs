//! What a running server tells its operator: that it serves, that it no longer does and serves again, and that one of the
//! servers has another key.

use crate::copies::created_words;
use crate::output::{Output, tell, visible};
use crate::problem::Problem;
use crate::rpc::notice_words;
use crate::threads;
use crate::watch;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;
use unisono_dir::{Notice, ROOT_FILE, Server, State};

/// Interval at which a server that was out is looked at: 200 ms.
const LOOKS_EVERY: Duration = Duration::from_millis(200);

/// Where a server is.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) service: &'a str,
    pub(crate) data: &'a Path,
    /// The command that shows its status.
    pub(crate) status: &'a str,
}

/// Tells the operator of a server what becomes of it, in threads of its own.
pub(crate) struct Attendant {
    server: Arc<Server>,
    service: String,
    root: PathBuf,
    output: Output,
    /// True if the server has ceased to serve since it last said that it does.
    was_out: AtomicBool,
}

impl Attendant {
    /// Begins to print notices, and warns of another key. `sealed` is true if the servers have a key.
    pub(crate) fn begin(
        server: &Arc<Server>,
        place: Place<'_>,
        sealed: bool,
        output: Output,
    ) -> Result<Arc<Attendant>, Problem> {
        let attendant = Arc::new(Attendant {
            server: server.clone(),
            service: place.service.to_owned(),
            root: place.data.join(ROOT_FILE),
            output,
            was_out: AtomicBool::new(false),
        });
        let (noticing, status) = (attendant.clone(), place.status.to_owned());
        threads::start("notices", move || {
            while let Some(notice) = noticing.server.next_notice() {
                noticing.take(&notice, &status);
            }
        })?;
        let looking = server.clone();
        watch::watch_for_strangers(place.service, sealed, move || looking.foreign())?;
        Ok(attendant)
    }

    fn take(&self, notice: &Notice, status: &str) {
        let advice = match notice {
            Notice::Halted { .. } => format!("; start them, or see `{status}`"),
            Notice::BelowMinimum { .. } => format!("; start more, or see `{status}`"),
            _ => String::new(),
        };
        tell(format_args!("{}{advice}", notice_words(notice)));
        if matches!(notice, Notice::Halted { .. } | Notice::BelowMinimum { .. } | Notice::Reentering) {
            self.was_out.store(true, Ordering::Release);
        }
    }

    /// Says that the server serves, and says it again each time that it had ceased to.
    pub(crate) fn introduce(self: &Arc<Self>) -> Result<(), Problem> {
        self.was_out.store(false, Ordering::Release);
        if self.server.has_created() {
            tell(created_words(&self.service, self.server.status().created_at_ms));
        }
        self.say_that_it_serves();
        let attendant = self.clone();
        threads::start("attendant", move || {
            loop {
                thread::sleep(LOOKS_EVERY);
                if !attendant.was_out.swap(false, Ordering::AcqRel) {
                    continue;
                }
                match attendant.server.status().state {
                    State::Serving => attendant.say_that_it_serves(),
                    _ => attendant.was_out.store(true, Ordering::Release),
                }
            }
        })?;
        Ok(())
    }

    fn say_that_it_serves(&self) {
        let status = self.server.status();
        let root = self.root.display().to_string();
        let (server, service, number) = (status.server, visible(&self.service), status.number);
        let shown = visible(&root);
        self.output.announce(
            format_args!("server {server} of {service} serves, at command {number}; the root's capability is in {shown}"),
            &json!({
                "event": "serving", "service": self.service, "server": server, "servers": status.servers,
                "seqno": number, "root": root,
            }),
        );
    }
}
