//! Calls over real sockets, within one process.

mod common;

use common::{PATIENCE, block_on, fresh_name};
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::Duration;
use unisono::rpc::{
    Answer, CallFailure, CallSettings, Client, Port, PrivatePort, ServeOptions, Server, Withdrawn,
};
use unisono::{AsyncGroup, Bytes, GroupConfig, Options};

/// A service that no other test has.
fn port() -> PrivatePort {
    PrivatePort::random().unwrap()
}

fn serve(port: &PrivatePort) -> Server {
    Server::new(port, ServeOptions::default(), &patient()).unwrap()
}

/// Options of clients and servers that give up no peer because the machine delays it.
fn patient() -> Options {
    let calls = CallSettings { silence: PATIENCE, locate: PATIENCE, ..CallSettings::default() };
    Options { calls, ..Options::default() }
}

/// The same with a socket of its own.
fn apart() -> Options {
    Options { bind: Some(elsewhere()), ..patient() }
}

/// A client with a socket of its own.
fn client() -> Client {
    Client::new(&apart()).unwrap()
}

/// A client that does not look for long.
fn hasty_client() -> Client {
    Client::new(&Options { bind: Some(elsewhere()), ..Options::default() }).unwrap()
}

/// An address whose engine differs from the default one.
fn elsewhere() -> std::net::SocketAddr {
    static NEXT: AtomicU64 = AtomicU64::new(2);
    // Every address of 127.0.0.0/8 is this machine's loopback.
    let host = NEXT.fetch_add(1, Ordering::Relaxed) as u8;
    std::net::SocketAddr::from(([127, 0, 0, host], 0))
}

/// Answers in capitals, in a thread of its own, until drained.
fn upper(server: &Server) -> thread::JoinHandle<()> {
    let server = server.clone();
    thread::spawn(move || server.serve(1, |request| request.payload().to_ascii_uppercase().into()))
}

#[test]
fn a_call_is_answered_from_another_socket_and_from_the_same() {
    let port = port();
    let server = serve(&port);
    let serving = upper(&server);
    for client in [client(), Client::new(&patient()).unwrap(), server.client()] {
        for text in ["hello", ""] {
            assert_eq!(client.call_within(port.public(), text, PATIENCE).unwrap(), text.to_uppercase());
        }
    }
    server.drain(PATIENCE).unwrap();
    serving.join().unwrap();
}

#[test]
fn no_server_serves_the_port() {
    let failure = hasty_client().call(port().public(), "hello").unwrap_err();
    assert_eq!(failure, CallFailure::NotFound);
    assert!(failure.did_not_happen());
}

#[test]
fn knowing_where_to_send_does_not_let_one_serve() {
    let private = port();
    // The public port's digits, read as a private port, are another port.
    let thief = PrivatePort::parse(&private.public().to_string()).unwrap();
    let server = serve(&thief);
    let serving = upper(&server);
    assert_eq!(hasty_client().call(private.public(), "hello"), Err(CallFailure::NotFound));
    server.drain(PATIENCE).unwrap();
    serving.join().unwrap();
}

#[test]
fn what_is_refused_or_dropped_says_why() {
    let port = port();
    let server = serve(&port);
    let client = client();
    let call = client.start(port.public(), "x", PATIENCE).unwrap();
    server.get_request().unwrap().refuse("not today").unwrap();
    assert_eq!(call.wait(), Err(CallFailure::Refused("not today".into())));
    let call = client.start(port.public(), "x", PATIENCE).unwrap();
    drop(server.get_request().unwrap());
    assert!(matches!(call.wait(), Err(CallFailure::Refused(_))));
    let call = client.start(port.public(), "x", PATIENCE).unwrap();
    let too_much = vec![0; (16 << 20) + 1];
    server.get_request().unwrap().reply(too_much.clone()).unwrap_err();
    assert!(matches!(call.wait(), Err(CallFailure::Refused(_))));
    assert!(matches!(client.call(port.public(), too_much), Err(CallFailure::NotSent(_))));
}

#[test]
fn large_requests_and_replies_arrive_whole() {
    let port = port();
    let server = serve(&port);
    let serving = {
        let server = server.clone();
        thread::spawn(move || server.serve(1, |request| request.payload().clone().into()))
    };
    let client = client();
    for bytes in [1_400, 1_500, 70_000, 3_000_000, 16 << 20] {
        let request: Bytes = (0..bytes).map(|at| (at % 251) as u8).collect::<Vec<_>>().into();
        assert!(client.call_within(port.public(), request.clone(), PATIENCE).unwrap() == request, "{bytes}");
    }
    server.drain(PATIENCE).unwrap();
    serving.join().unwrap();
}

#[test]
fn thousands_of_calls_are_under_way_at_once_each_with_its_own_answer() {
    let port = port();
    let options = ServeOptions { queue_max: 4000, ..ServeOptions::default() };
    let server = Server::new(&port, options, &patient()).unwrap();
    let serving = {
        let server = server.clone();
        thread::spawn(move || server.serve(3, |request| request.payload().to_ascii_uppercase().into()))
    };
    let client = client();
    let calls: Vec<_> =
        (0..5000).map(|n| client.start(port.public(), format!("call {n}"), PATIENCE).unwrap()).collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.wait().unwrap(), format!("CALL {n}"));
    }
    server.drain(PATIENCE).unwrap();
    serving.join().unwrap();
}

#[test]
fn a_server_calls_another_while_it_serves() {
    let (front, back) = (port(), port());
    let (front_server, back_server) = (serve(&front), serve(&back));
    let serving = upper(&back_server);
    let (server, inner, to) = (front_server.clone(), front_server.client(), back.public());
    let forwarding = thread::spawn(move || {
        server.serve(2, |request| {
            let answer = inner.call_within(to, request.payload().clone(), PATIENCE);
            answer.map_or_else(|error| Answer::Refuse(error.to_string().into()), Answer::Reply)
        });
    });
    let client = client();
    let calls: Vec<_> =
        (0..20).map(|n| client.start(front.public(), format!("x{n}"), PATIENCE).unwrap()).collect();
    for (n, call) in calls.into_iter().enumerate() {
        assert_eq!(call.wait().unwrap(), format!("X{n}"));
    }
    for (server, thread) in [(front_server, forwarding), (back_server, serving)] {
        server.drain(PATIENCE).unwrap();
        thread.join().unwrap();
    }
}

#[test]
fn a_request_is_passed_on_to_another_server_and_the_call_stays_the_same() {
    let port = port();
    let server_at = |address| {
        let options = Options { bind: Some(address), ..patient() };
        Server::new(&port, ServeOptions::default(), &options).unwrap()
    };
    let (first, client) = (server_at(elsewhere()), client());
    let call = client.start(port.public(), "x", PATIENCE).unwrap();
    let request = first.get_request().unwrap();
    let second = server_at(elsewhere());
    let (number, caller) = (request.call(), request.client());
    request.forward(second.address()).unwrap();
    let request = second.get_request().unwrap();
    assert_eq!((request.call(), request.client(), request.hops()), (number, caller, 1));
    assert_eq!(number, call.number());
    request.reply("from the second").unwrap();
    assert_eq!(call.wait().unwrap(), "from the second");
    // A call that is forwarded to an address without a server finds the other server.
    let call = client.start(port.public(), "y", PATIENCE).unwrap();
    let (asked, answered) = thread::scope(|scope| {
        let (first, second) = (&first, &second);
        let (told, said) = std::sync::mpsc::channel();
        for server in [first, second] {
            let told = told.clone();
            scope.spawn(move || {
                while let Ok(request) = server.get_request() {
                    match request.hops() {
                        0 => request.forward(std::net::SocketAddr::from(([127, 0, 0, 1], 9))).unwrap(),
                        _ => request.reply("after all").unwrap(),
                    }
                    told.send(server.address()).unwrap();
                }
            });
        }
        let outcome = call.wait();
        first.drain(PATIENCE).unwrap();
        second.drain(PATIENCE).unwrap();
        drop(told);
        (said.iter().count(), outcome)
    });
    assert_eq!((asked, answered.unwrap()), (2, "after all".into()));
}

#[test]
fn a_dropped_call_is_cancelled_and_not_begun() {
    const DROPPED: u32 = 20;
    let (port, other_port) = (port(), port());
    let (server, other) = (serve(&port), serve(&other_port));
    let client = client();
    let kept = client.start(port.public(), "kept", PATIENCE).unwrap();
    let first = server.get_request().unwrap();
    for _ in 0..DROPPED {
        drop(client.start(port.public(), "dropped", PATIENCE).unwrap());
    }
    let last = client.start(port.public(), "last", PATIENCE).unwrap();
    first.reply("first").unwrap();
    kept.wait().unwrap();
    // Requests are handed out in the order in which they are read. What came after all of them, at the same socket, was
    // read last.
    assert_eq!(server.address(), other.address());
    let after = client.start(other_port.public(), "after", PATIENCE).unwrap();
    other.get_request().unwrap().reply("").unwrap();
    after.wait().unwrap();
    // A call that was cancelled on its way may have come after that, though hardly each of them. Its answer is dropped.
    let mut begun = 0;
    loop {
        let request = server.get_request().unwrap();
        if request.payload() == "last" {
            request.reply("done").unwrap();
            break;
        }
        assert_eq!(request.payload(), "dropped");
        begun += 1;
    }
    assert!(begun < DROPPED);
    assert_eq!(last.wait().unwrap(), "done");
}

#[test]
fn a_drained_server_answers_what_it_took_and_takes_no_more() {
    let port = port();
    let server = serve(&port);
    let client = client();
    let taken = client.start(port.public(), "taken", PATIENCE).unwrap();
    let request = server.get_request().unwrap();
    let waits = client.start(port.public(), "waits", Duration::from_secs(3)).unwrap();
    assert!(server.drain(Duration::from_millis(1)).is_err());
    assert_eq!(server.get_request().unwrap_err(), Withdrawn);
    request.reply("done").unwrap();
    server.drain(PATIENCE).unwrap();
    assert_eq!(taken.wait().unwrap(), "done");
    assert!(waits.wait().unwrap_err().did_not_happen());
    // The port may be served again.
    let again = serve(&port);
    let serving = upper(&again);
    assert_eq!(client.call_within(port.public(), "back", PATIENCE).unwrap(), "BACK");
    again.drain(PATIENCE).unwrap();
    serving.join().unwrap();
}

#[test]
fn clients_of_another_key_find_no_server() {
    let port = port();
    let keyed = |byte, options| Options { key: Some(unisono::Key::from_bytes([byte; 32])), ..options };
    let server = Server::new(&port, ServeOptions::default(), &keyed(1, apart())).unwrap();
    let serving = upper(&server);
    let hasty = || Options { bind: Some(elsewhere()), ..Options::default() };
    let call = |options: &Options| Client::new(options).unwrap().call_within(port.public(), "x", PATIENCE);
    assert_eq!(call(&keyed(1, apart())).unwrap(), "X");
    assert_eq!(call(&keyed(2, hasty())), Err(CallFailure::NotFound));
    assert_eq!(call(&hasty()), Err(CallFailure::NotFound));
    server.drain(PATIENCE).unwrap();
    serving.join().unwrap();
}

#[test]
fn clients_and_services_of_one_address_share_a_socket_if_their_key_is_the_same() {
    let keyed = |byte| Options { key: Some(unisono::Key::from_bytes([byte; 32])), ..patient() };
    let of = |options: &Options| Client::new(options).unwrap();
    let (first, same, other) = (of(&keyed(1)), of(&keyed(1)), of(&keyed(2)));
    assert_eq!(first.address(), same.address());
    assert_ne!(first.address(), other.address());
}

#[test]
fn a_service_whose_last_handle_is_dropped_takes_no_more_requests_and_answers_those_it_took() {
    let port = port();
    let server = serve(&port);
    let client = client();
    let taken = client.start(port.public(), "taken", PATIENCE).unwrap();
    let (request, another) = (server.get_request().unwrap(), server.clone());
    drop(server);
    let last = client.start(port.public(), "last", PATIENCE).unwrap();
    another.get_request().unwrap().reply("done").unwrap();
    assert_eq!(last.wait().unwrap(), "done");
    drop(another);
    let failure = hasty_client().call(port.public(), "too late").unwrap_err();
    assert_eq!(failure, CallFailure::NotFound);
    request.reply("done all the same").unwrap();
    assert_eq!(taken.wait().unwrap(), "done all the same");
}

#[test]
fn names_and_ports_lead_to_the_same_service() {
    let name = fresh_name("named");
    let server = serve(&PrivatePort::from_name(&name));
    let serving = upper(&server);
    let digits = Port::from_name(&name).to_string();
    assert_eq!(client().call_within(digits.parse().unwrap(), "x", PATIENCE).unwrap(), "X");
    server.drain(PATIENCE).unwrap();
    serving.join().unwrap();
}

#[test]
fn several_servers_of_a_port_share_its_calls() {
    let port = port();
    let servers: Vec<Server> =
        (0..4).map(|_| Server::new(&port, ServeOptions::default(), &apart()).unwrap()).collect();
    let counts: Vec<AtomicU64> = servers.iter().map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for (server, count) in servers.iter().zip(&counts) {
            scope.spawn(move || {
                server.serve(1, |_| {
                    count.fetch_add(1, Ordering::Relaxed);
                    "done".into()
                });
            });
        }
        let client = client();
        let total = || counts.iter().map(|count| count.load(Ordering::Relaxed)).sum::<u64>();
        // The first answer starts the waiting calls; the other servers are known a moment later.
        while counts.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
            client.call_within(port.public(), "", PATIENCE).unwrap();
        }
        let before = total();
        counts.iter().for_each(|count| count.store(0, Ordering::Relaxed));
        assert!(before > 0);
        for _ in 0..250 {
            let calls: Vec<_> = (0..16).map(|_| client.start(port.public(), "", PATIENCE).unwrap()).collect();
            calls.into_iter().for_each(|call| assert_eq!(call.wait().unwrap(), "done"));
        }
        assert_eq!(total(), 4000);
        servers.iter().for_each(|server| server.drain(PATIENCE).unwrap());
    });
    // A quarter each, more or less. If the first server to answer got all calls, the others would have none.
    let counts: Vec<u64> = counts.into_iter().map(AtomicU64::into_inner).collect();
    assert!(counts.iter().all(|count| (250..=2000).contains(count)), "{counts:?}");
}

#[test]
fn asynchronous_programs_call_and_serve() {
    let port = port();
    let server = serve(&port);
    let client = client();
    let asking = thread::spawn(move || {
        block_on(async {
            let calls: Vec<_> =
                (0..100).map(|n| client.start(port.public(), format!("x{n}"), PATIENCE).unwrap()).collect();
            for (n, call) in calls.into_iter().enumerate() {
                assert_eq!(call.await.unwrap(), format!("X{n}"));
            }
        });
    });
    block_on(async {
        let mut answered = 0;
        while answered < 100 {
            // A future that is dropped takes no request along.
            let dropped = pin!(server.next_request()).poll(&mut Context::from_waker(Waker::noop()));
            let request = match dropped {
                Poll::Ready(request) => request.unwrap(),
                Poll::Pending => server.next_request().await.unwrap(),
            };
            let reply = request.payload().to_ascii_uppercase();
            request.reply(reply).unwrap();
            answered += 1;
        }
    });
    asking.join().unwrap();
    server.drain(PATIENCE).unwrap();
    assert_eq!(block_on(server.next_request()).unwrap_err(), Withdrawn);
}

#[test]
fn an_asynchronous_member_serves_and_calls_at_its_address() {
    block_on(async {
        let options = patient();
        let name = fresh_name("beside");
        let group = AsyncGroup::create(&name, GroupConfig::default(), &options).await.unwrap();
        let address = group.members()[0].address;
        let port = port();
        let server = Server::beside(&group, &port, ServeOptions::default()).unwrap();
        let own = Client::beside(&group).unwrap();
        assert_eq!((server.address(), own.address()), (address, address));
        let call = client().start(server.port(), "hello", PATIENCE).unwrap();
        let request = server.next_request().await.unwrap();
        assert_eq!(request.payload(), "hello");
        request.reply("from the member").unwrap();
        assert_eq!(call.await.unwrap(), "from the member");
        // The client beside the member calls too, here the service at its own address.
        let call = own.start(server.port(), "again", PATIENCE).unwrap();
        server.next_request().await.unwrap().reply("once more").unwrap();
        assert_eq!(call.await.unwrap(), "once more");
    });
}
