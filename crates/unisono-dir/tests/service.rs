//! Three servers in this process, and their clients.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};
use unisono_dir::{
    Capability, Client, ClientError, DiskOptions, Event, Limits, Name, ObjectNumber, Options, Place,
    Position, Query, Reason, Replacement, Reply, Request, RestoreError, Rights, Server, ServerEnd,
    ServerOptions, StartError, State, operation, random_check, restore,
};

/// Longer than any working case takes.
const LONG: Duration = Duration::from_secs(60);

const SECOND: Duration = Duration::from_secs(1);

/// A service of three, or one, in folders of its own.
struct Service {
    name: String,
    folder: tempfile::TempDir,
    options: Options,
    servers: Vec<Option<Server>>,
}

impl Service {
    fn begin(what: &str) -> Service {
        Service::of(3, what)
    }

    fn of(count: u8, what: &str) -> Service {
        // The machine may keep a thread waiting.
        Service::with_patience(Duration::from_millis(500), count, what)
    }

    /// Returns a service of `count` servers with this [`unisono::Settings::patience`].
    fn with_patience(patience: Duration, count: u8, what: &str) -> Service {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("{what}-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let mut options = Options::default();
        options.settings.patience = patience;
        let folder = tempfile::tempdir().unwrap();
        let mut service = Service { name, folder, options, servers: Vec::new() };
        service.servers.resize_with(count.into(), || None);
        for id in 1..=count {
            service.start(id, false);
        }
        (1..=count).for_each(|id| service.serves(id));
        service
    }

    fn disk(&self, id: u8, replace: bool) -> DiskOptions {
        let servers = self.servers.len() as u8;
        DiskOptions { replace, servers, ..DiskOptions::of_three(id, self.folder.path().join(id.to_string())) }
    }

    fn server_options(&self, id: u8, replace: bool) -> ServerOptions {
        ServerOptions {
            service: self.name.clone(),
            disk: self.disk(id, replace),
            servers: self.options.clone(),
            client_key: None,
            limits: Limits::default(),
        }
    }

    fn start(&mut self, id: u8, replace: bool) {
        let options = self.server_options(id, replace);
        self.servers[usize::from(id) - 1] = Some(Server::begin(options).unwrap());
    }

    fn server(&self, id: u8) -> &Server {
        self.servers[usize::from(id) - 1].as_ref().unwrap()
    }

    fn serves(&self, id: u8) {
        self.server(id).wait_until_serving().unwrap();
    }

    /// Ends a server at once, as a crash would.
    fn crash(&mut self, id: u8) {
        self.servers[usize::from(id) - 1].take().unwrap().end(Duration::ZERO);
    }

    fn client(&self) -> Client {
        Client::new(&self.options).unwrap().within(LONG)
    }

    fn root(&self) -> Capability {
        unisono_dir::read_capability(self.folder.path().join("1/root.cap")).unwrap()
    }
}

fn place(at: Capability, path: &str) -> Place {
    Place { capability: at, path: path.parse().unwrap() }
}

fn columns() -> Vec<Name> {
    ["owner", "group", "other"].map(|name| name.parse().unwrap()).into()
}

fn mkdir(client: &Client, at: Capability, path: &str) -> Result<u64, ClientError> {
    let made = operation::create_directory(place(at, path), columns(), None, random_check().unwrap());
    client.run(&made).map(|done| done.number)
}

fn names(client: &Client, at: Capability, is_local: bool) -> Result<Vec<String>, ClientError> {
    let listed = client.list(&Place::of(at), is_local)?;
    Ok(listed.value.rows.iter().map(|row| row.name.to_string()).collect())
}

#[test]
fn what_was_answered_survives_and_no_minority_answers() {
    let mut service = Service::begin("survives");
    let (client, root) = (service.client(), service.root());
    mkdir(&client, root, "a").unwrap();
    service.crash(2);
    mkdir(&client, root, "b").unwrap();
    service.crash(3);
    let hasty = client.clone().within(Duration::from_secs(4));
    for is_local in [false, true] {
        let refused = names(&hasty, root, is_local);
        let missing = match refused {
            Err(ClientError::NoMajority { missing, .. }) => missing,
            other => panic!("{other:?}"),
        };
        assert_eq!(missing, [2, 3]);
    }
    assert!(matches!(mkdir(&hasty, root, "never"), Err(ClientError::NoMajority { .. })));
    let alone = client.servers(root.port);
    assert_eq!((alone.len(), alone[0].server, &alone[0].waits_for[..]), (1, 1, &[2, 3][..]));
    assert_ne!(alone[0].state, State::Serving);
    service.start(3, false);
    service.serves(3);
    assert_eq!(names(&client, root, false).unwrap(), ["a", "b"]);
    service.start(2, false);
    service.serves(2);
    let all = client.servers(root.port);
    assert!(all.iter().all(|status| status.state == State::Serving && status.servers == 3), "{all:?}");
    assert_eq!(client.servers_of(&service.name).len(), 3);
}

#[test]
fn a_watch_misses_nothing_while_its_server_crashes() {
    let mut service = Service::begin("watch");
    let (client, root) = (service.client(), service.root());
    let first = mkdir(&client, root, "d0").unwrap();
    let mut watch =
        client.watch(Place::of(root), Some(client.position_of(root.port, first).unwrap())).unwrap();
    let mut made = vec![first];
    for id in [1, 2, 3] {
        made.push(mkdir(&client, root, &format!("before-{id}")).unwrap());
        service.crash(id);
        made.push(mkdir(&client, root, &format!("without-{id}")).unwrap());
        service.start(id, false);
        service.serves(id);
    }
    let mut seen = Vec::new();
    while seen.len() < made.len() {
        let change = watch.next().unwrap();
        assert_eq!(change.event, Event::Append);
        seen.push(change.number);
    }
    assert_eq!(seen, made);
    // Resumed elsewhere, it goes on after what was seen.
    let mut resumed = client.watch(Place::of(root), Some(watch.position())).unwrap();
    let next = mkdir(&client, root, "next").unwrap();
    assert_eq!(resumed.next().unwrap().number, next);
    let later = Position { number: next + 100, ..watch.position() };
    let future = client.watch(Place::of(root), Some(later)).unwrap_err();
    assert!(
        matches!(&future, ClientError::Refused(refusal) if matches!(refusal.reason, Reason::Future { .. }))
    );
}

#[test]
fn a_watch_stays_with_its_directory() {
    let service = Service::begin("stays");
    let (client, root) = (service.client(), service.root());
    mkdir(&client, root, "home").unwrap();
    mkdir(&client, root, "other").unwrap();
    let lookup = operation::lookup(["home", "other"].map(|path| place(root, path)).into()).unwrap();
    let [home, other] = client.run(&lookup).unwrap().value[..] else { panic!() };
    let mut watch = client.watch(place(root, "home"), None).unwrap();
    let (home, other) = (home.unwrap().capability, other.unwrap().capability);
    let row = Replacement { place: place(root, "home"), capability: other, expected: None };
    client.run(&operation::replace(vec![row]).unwrap()).unwrap();
    mkdir(&client, other, "unseen").unwrap();
    let seen = mkdir(&client, home, "seen").unwrap();
    assert_eq!(watch.next().unwrap().number, seen);
    client.run(&operation::revoke(Place::of(home), random_check().unwrap())).unwrap();
    let over = watch.next().unwrap_err();
    assert!(matches!(&over, ClientError::Refused(refusal) if refusal.reason == Reason::NotFound), "{over}");
}

#[test]
fn a_backup_goes_on_as_another_instance() {
    let mut service = Service::begin("backup");
    let (client, root) = (service.client(), service.root());
    mkdir(&client, root, "kept").unwrap();
    let file =
        operation::create_file(place(root, "file"), vec![7; 3 << 20].into(), None, random_check().unwrap());
    client.run(&file).unwrap();
    let path = service.folder.path().join("saved");
    let saved = client.save(root, || std::fs::File::create(&path), |_, _| {}).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), saved.bytes);
    let mut watch = client.watch(Place::of(root), None).unwrap();
    let lost = mkdir(&client, root, "lost").unwrap();
    assert_eq!(watch.next().unwrap().number, lost);
    let before = watch.position();
    let stranger = root.restrict(Rights(0x04)).unwrap();
    assert!(client.save(stranger, || std::fs::File::create(&path), |_, _| {}).is_err());
    for id in 1..=3 {
        service.crash(id);
        std::fs::remove_dir_all(service.folder.path().join(id.to_string())).unwrap();
    }
    let folder = service.folder.path().join("2");
    assert_eq!(restore(&path, &folder).unwrap().number, saved.number);
    assert!(restore(&path, &folder).is_err(), "the folder is not empty");
    assert_eq!(unisono_dir::read_capability(folder.join("root.cap")).unwrap(), root);
    service.start(2, false);
    service.start(1, true);
    service.start(3, true);
    (1..=3).for_each(|id| service.serves(id));
    // A client of before does not take it for the service that it knew.
    let known = names(&client, root, false);
    assert!(matches!(known, Err(ClientError::OtherInstance)), "{known:?}");
    // Its position is none of the new service, whether or not this process has accepted that one.
    client.accept_instance(root.port).unwrap();
    for from in [watch.position(), before] {
        let refused = client.watch(Place::of(root), Some(from)).err();
        assert!(matches!(refused, Some(ClientError::OtherInstance)), "{refused:?}");
    }
    let ended = watch.next();
    assert!(matches!(ended, Err(ClientError::OtherInstance)), "{ended:?}");
    let number = client.position_of(root.port, before.number).err();
    assert!(matches!(number, Some(ClientError::WhichInstance { .. })), "{number:?}");
    let now = client.now(root.port).unwrap();
    assert_ne!(now.instance, before.instance);
    assert_eq!(names(&client, root, false).unwrap(), ["file", "kept"]);
    let mut watch = client.watch(Place::of(root), Some(now)).unwrap();
    let next = mkdir(&client, root, "next").unwrap();
    assert_eq!(watch.next().unwrap().number, next);
    client.run(&operation::delete_directory(place(root, "next"))).unwrap();
    assert_eq!(client.read_file(&place(root, "file"), false).unwrap(), vec![7; 3 << 20]);
    assert!(client.servers(root.port).iter().all(|status| status.begun_anew.len() == 1));
    // What was restored is durable: the server of the backup may crash.
    service.crash(2);
    mkdir(&client, root, "after").unwrap();
    service.start(2, false);
    service.serves(2);
    assert!(client.servers(root.port).iter().all(|status| status.begun_anew.len() == 1));
}

#[test]
fn only_a_restored_folder_lets_a_service_begin_anew() {
    let mut service = Service::begin("anew");
    let (client, root) = (service.client(), service.root());
    let folder = service.folder.path().join("1");
    let saved = ["backup", "restoring"].map(|name| folder.join(name));
    for path in &saved {
        client.save(root, || std::fs::File::create(path), |_, _| {}).unwrap();
    }
    (1..=3).for_each(|id| service.crash(id));
    // The folder of 1 has backups, and 3 is away.
    service.start(1, false);
    service.start(2, false);
    service.serves(1);
    mkdir(&client, root, "acked").unwrap();
    assert!(client.servers(root.port).iter().all(|status| status.begun_anew.is_empty()));
    assert!(saved.iter().all(|path| path.exists()), "they are the user's");
    // A restored folder beside a majority of the servers of before.
    service.crash(1);
    let kept = folder.with_extension("kept");
    std::fs::rename(&folder, &kept).unwrap();
    service.start(3, false);
    service.serves(3);
    restore(&kept.join("backup"), &folder).unwrap();
    let other = ServerOptions { service: "other".into(), ..service.server_options(1, false) };
    let refused = Server::begin(other).err();
    assert!(matches!(refused, Some(StartError::Restore(RestoreError::OtherService { .. }))), "{refused:?}");
    let mut other = service.server_options(1, false);
    other.disk.servers = 5;
    let refused = Server::begin(other).err();
    assert!(matches!(refused, Some(StartError::Restore(RestoreError::OtherServers { .. }))), "{refused:?}");
    service.start(1, false);
    let end = service.server(1).wait_until_serving();
    assert!(matches!(end, Err(ServerEnd::BeforeIsThere)), "{end:?}");
    assert_eq!(names(&client, root, false).unwrap(), ["acked"]);
}

#[test]
fn a_backup_of_a_single_server_is_restored() {
    let mut service = Service::of(1, "single");
    let (client, root) = (service.client(), service.root());
    mkdir(&client, root, "kept").unwrap();
    let path = service.folder.path().join("saved");
    client.save(root, || std::fs::File::create(&path), |_, _| {}).unwrap();
    service.crash(1);
    let folder = service.folder.path().join("1");
    std::fs::remove_dir_all(&folder).unwrap();
    restore(&path, &folder).unwrap();
    service.start(1, false);
    service.serves(1);
    client.accept_instance(root.port).unwrap();
    assert_eq!(names(&client, root, false).unwrap(), ["kept"]);
    assert_eq!(client.servers(root.port)[0].begun_anew.len(), 1);
}

/// Returns the port to which a service's backup questions go.
fn backup_port(calls: &unisono::rpc::Client, root: Capability) -> unisono::rpc::Port {
    let port = |number: u128| format!("{number:032x}").parse::<unisono::rpc::Port>().unwrap();
    let ports = calls.call_within(port(root.port.0), vec![1, 0xf0], LONG).unwrap();
    port(u128::from_be_bytes(ports[17..33].try_into().unwrap()))
}

/// Returns the question with which a backup begins.
fn backup_question(owner: Capability) -> bytes::Bytes {
    Request::Query(Query::Files { owner, after: ObjectNumber(0) }).encode()
}

#[test]
fn a_backup_is_given_to_owners_alone_and_to_nobody_without_a_majority() {
    let mut service = Service::begin("owners");
    let root = service.root();
    let calls = unisono::rpc::Client::new(&service.options).unwrap();
    let (backups, question) = (backup_port(&calls, root), backup_question);
    let begun = [(); 2].map(|()| calls.call_within(backups, question(root), LONG).unwrap());
    let id = |begun: &[u8]| u64::from_be_bytes(begun[1..9].try_into().unwrap());
    assert!(begun[0][0] == 0xb0 && id(&begun[0]).wrapping_add(1) != id(&begun[1]));
    let at = str::from_utf8(&begun[0][25..]).unwrap().parse().unwrap();
    let ask = |owner: &[u8]| {
        let piece = [&[0xb1][..], owner, &begun[0][1..9], &[0; 8]].concat();
        calls.call_at(backups, at, piece, LONG)
    };
    // The capability follows version, kind and code.
    let bytes_of = |owner| question(owner).slice(3..44);
    assert!(ask(&bytes_of(root)).unwrap().starts_with(b"uniK"));
    assert!(ask(&[]).is_err());
    assert!(ask(&bytes_of(root.restrict(Rights(0xfe)).unwrap())).is_err());
    // A server keeps two.
    assert!(ask(&bytes_of(root)).is_ok());
    for _ in 0..2 {
        calls.call_at(backups, at, question(root), LONG).unwrap();
    }
    assert!(ask(&bytes_of(root)).is_err());
    service.crash(2);
    service.crash(3);
    assert!(calls.call_within(backups, question(root), 4 * SECOND).is_err());
}

#[test]
fn a_question_for_a_backup_that_waits_for_a_majority_holds_up_no_other() {
    let mut service = Service::with_patience(10 * SECOND, 3, "held-up");
    let root = service.root();
    let calls = unisono::rpc::Client::new(&service.options).unwrap();
    let (backups, question) = (backup_port(&calls, root), backup_question);
    // The servers of this process have one address.
    let begun = calls.call_within(backups, question(root), LONG).unwrap();
    let at = str::from_utf8(&begun[25..]).unwrap().parse().unwrap();
    let wrong = Capability { check: random_check().unwrap(), ..root };
    let denied = calls.call_at(backups, at, question(wrong), LONG).unwrap();
    assert!(matches!(Reply::decode(&denied), Some(Reply { result: Err(_), .. })), "{denied:?}");
    assert!(calls.call_at(backups, at, vec![1], LONG).is_err());
    let answers = || {
        let piece = [&[0xb1][..], &question(root).slice(3..44), &[0; 16]].concat();
        matches!(calls.call_at(backups, at, piece, SECOND), Err(unisono::rpc::CallFailure::Refused(_)))
    };
    // The servers of this process take the port one after the other, each within 100 ms.
    let goes_on_answering = || {
        let until = Instant::now() + SECOND / 2;
        while Instant::now() < until {
            if !answers() {
                return false;
            }
            thread::sleep(Duration::from_millis(10));
        }
        true
    };
    service.crash(2);
    service.crash(3);
    let until = Instant::now() + 5 * SECOND;
    while !goes_on_answering() {
        assert!(Instant::now() < until, "the server that is left does not answer");
    }
    let (asked, within) = (Instant::now(), 3 * SECOND);
    let waits = calls.start_at(backups, at, question(wrong), within).unwrap();
    assert!(goes_on_answering(), "the question without a right holds it up");
    assert!(waits.wait().is_err());
    assert!(asked.elapsed() >= within, "it is not answered without a majority");
    assert!(answers());
}

#[test]
fn a_root_that_is_revoked_is_written_anew() {
    let service = Service::begin("revoked");
    let (client, root) = (service.client(), service.root());
    let fresh = client.run(&operation::revoke(Place::of(root), random_check().unwrap())).unwrap().value;
    let old = names(&client, root, false).unwrap_err();
    assert!(matches!(&old, ClientError::Refused(refusal) if refusal.reason == Reason::NotFound));
    let begun = Instant::now();
    while service.root() != fresh {
        assert!(begun.elapsed() < LONG);
        thread::yield_now();
    }
}

#[test]
fn tasks_await_operations() {
    let service = Service::begin("tasks");
    let (client, root) = (service.client(), service.root());
    let made = block_on(async {
        let made = operation::create_directory(place(root, "a"), columns(), None, random_check().unwrap());
        client.run_async(&made).await.unwrap();
        let lookup = operation::lookup(vec![place(root, "a"), place(root, "b")]).unwrap();
        client.run_async(&lookup).await.unwrap().value
    });
    assert!(made[0].is_ok_and(|found| found.is_directory));
    assert_eq!(made[1], Err(Reason::NotFound));
    assert_eq!(block_on(client.servers_async(root.port)).len(), 3);
}

/// Runs a task on this thread.
fn block_on<T>(task: impl Future<Output = T>) -> T {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut task = pin!(task);
    loop {
        match task.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(done) => return done,
            Poll::Pending => thread::park(),
        }
    }
}
