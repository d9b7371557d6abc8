//! Holds the golden bytes of `docs/protocol/wire-format.md` to the code: the two seals, from keys to datagrams.

use crate::key::Key;
use crate::rpc::LifeKey;
use crate::sealed::Sealed;
use bytes::BytesMut;
use ring::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use unisono_core::rpc::KeyAgreement;
use unisono_core::wire::*;
use unisono_core::{Instance, Uid};

/// A symbolic link to the page, so that the package contains it.
const PAGE: &str = include_str!("wire-format.txt");

/// Returns the golden bytes of one table, by the names of its rows; each row has the bytes or numbers of its code spans.
fn golden(after: &str) -> impl Fn(&str) -> Vec<Vec<u8>> {
    let section = PAGE.split_once("## Golden bytes").unwrap().1.split_once(after).unwrap().1;
    move |name| {
        let row = section.lines().find_map(|line| line.strip_prefix(&format!("| {name} |"))).unwrap();
        let spans = row.split('`').skip(1).step_by(2);
        spans.map(hex).collect()
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.chars().filter_map(|c| c.to_digit(16)).map(|digit| digit as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

fn word(bytes: &[u8]) -> u64 {
    u64::from_be_bytes(bytes.try_into().unwrap())
}

/// Returns the key that HKDF-SHA256 derives from this secret.
fn derived(secret: &[u8], salt: &str, info: &[&[u8]]) -> Vec<u8> {
    let mut key = vec![0; 32];
    let root = Salt::new(HKDF_SHA256, salt.as_bytes()).extract(secret);
    root.expand(info, HKDF_SHA256).unwrap().fill(&mut key).unwrap();
    key
}

/// Opens with this key what is sealed, tag last, in a datagram with number 7.
fn opened(key: &[u8], covered: &[u8], mut sealed: Vec<u8>) -> Vec<u8> {
    let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).unwrap());
    let nonce = Nonce::assume_unique_for_key([0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 7]);
    key.open_in_place(nonce, Aad::from(covered), &mut sealed).unwrap().to_vec()
}

#[test]
fn the_derived_key_of_a_member_is_as_the_page_says() {
    let row = golden("A member of a group with a key");
    let one = |name: &str| row(name).swap_remove(0);
    let [sender, salt] = &row("sender, packet number, salt")[..] else { panic!() };
    let key = derived(&one("group key"), "unisono datagrams 2", &[&one("founding"), sender, salt]);
    assert_eq!(key, one("derived key"));
    let datagram = one("datagram");
    let (header, frames) = datagram.split_at(HEADER_BYTES);
    let (covered, tag) = header.split_at(HEADER_BYTES - TAG_BYTES);
    assert_eq!(opened(&key, covered, [frames, tag].concat()), one("frames"));
}

#[test]
fn the_derived_key_of_a_client_is_as_the_page_says() {
    let row = golden("A client sends");
    let one = |name: &str| row(name).swap_remove(0);
    let public = |name| <[u8; 32]>::try_from(&row(name)[1][..]).unwrap();
    let (client, server) =
        (public("client's secret, its public key"), public("server's secret, its public key"));
    let secret = x25519_dalek::StaticSecret::from([1; 32]).diffie_hellman(&server.into());
    let salt = one("packet number, salt");
    let key = derived(secret.as_bytes(), "unisono calls 2", &[&client, &server, &salt]);
    assert_eq!(key, one("derived key"));
    let mut datagram = one("datagram");
    datagram[HEADER_BYTES - TAG_BYTES..HEADER_BYTES].fill(0);
    let sealed = datagram.split_off(datagram.len() - TAG_BYTES - one("frames").len());
    assert_eq!(opened(&key, &datagram, sealed), one("frames"));
}

#[test]
fn a_member_seals_as_the_page_says() {
    let row = golden("A member of a group with a key");
    let one = |name: &str| row(name).swap_remove(0);
    let datagram = one("datagram");
    let header = Header::parse(&datagram).unwrap();
    let instance = Instance(u128::from_be_bytes(one("founding").try_into().unwrap()));
    let context = KeyContext { instance, sender: header.sender, salt: header.salt };
    let named = row("sender, packet number, salt");
    assert_eq!((header.sender.0, header.number, header.salt), (word(&named[0]), 7, word(&named[1])));
    let mut sealed = Sealed::new(&Key::from_bytes(one("group key").try_into().unwrap()));
    let mut out = Vec::new();
    header.write(&mut out);
    out.extend(one("frames"));
    assert!(seal(&mut out, &header, &context, &mut sealed));
    assert_eq!(out, datagram);
    let opened = open(BytesMut::from(&datagram[..]), &header, &context, &mut sealed).unwrap();
    assert_eq!(Decoder::new(opened).next(), Some(Ok(Frame::Gone { through: 30 })));
}

#[test]
fn a_client_seals_as_the_page_says() {
    let row = golden("A client sends");
    let one = |name: &str| row(name).swap_remove(0);
    let life = |byte| LifeKey::from_secret([byte; 32]);
    let (client, server) = (life(1), life(2));
    let uids = row("client's uid, server's uid");
    for (life, name, uid) in [
        (&client, "client's secret, its public key", &uids[0]),
        (&server, "server's secret, its public key", &uids[1]),
    ] {
        let key = life.public_key();
        assert_eq!((&key.0[..], life.uid_of(&key)), (&row(name)[1][..], Uid(word(uid))));
    }
    let datagram = one("datagram");
    let header = Header::parse(&datagram).unwrap();
    assert_eq!((header.sender, header.number), (Uid(word(&uids[0])), 7));
    let opened = open(BytesMut::from(&datagram[..]), &header, &checksummed(&header), &mut Checksum).unwrap();
    let Some(Ok(Frame::Envelope(envelope))) = Decoder::new(opened).next() else { panic!() };
    assert_eq!(
        (envelope.head.to, envelope.head.salt),
        (Uid(word(&uids[1])), word(&row("packet number, salt")[0]))
    );
    let mut covered = Vec::new();
    header.write(&mut covered);
    covered.extend_from_slice(&datagram[HEADER_BYTES..datagram.len() - envelope.sealed.len()]);
    let mut frames = one("frames");
    let mut pair = client.agree(&server.public_key()).unwrap();
    let tag = pair.seal(envelope.head.salt, header.number, &covered, &mut frames).unwrap();
    assert_eq!([&frames[..], &tag].concat(), envelope.sealed);
    let mut pair = server.agree(&client.public_key()).unwrap();
    assert!(pair.open(envelope.head.salt, header.number, &covered, &mut frames, tag));
    assert_eq!(frames, one("frames"));
}

fn checksummed(header: &Header) -> KeyContext {
    KeyContext { instance: Instance(0), sender: header.sender, salt: 0 }
}
