use std::io::{Cursor, Read, Write};

use super::*;

/// A connection with messages that have arrived, and those that are sent.
struct Both(Cursor<Vec<u8>>, Vec<u8>);

impl Read for Both {
    fn read(&mut self, to: &mut [u8]) -> std::io::Result<usize> {
        // One byte at a time, as a slow device may send them.
        let size = to.len().min(1);
        self.0.read(&mut to[..size])
    }
}

impl Write for Both {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.1.write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

fn frame(kind: u32, content: &[u8]) -> Vec<u8> {
    [kind.to_le_bytes().as_slice(), &(content.len() as u32).to_le_bytes(), content].concat()
}

/// A greeting with a number.
fn hello(number: u8) -> Vec<u8> {
    frame(1, &[&[5; 32][..], &[number, 0, 0, 0]].concat())
}

fn received(bytes: &[u8]) -> Result<Option<Message>, String> {
    Wire::new(Both(Cursor::new(bytes.to_vec()), Vec::new())).receive()
}

#[test]
fn messages_of_devices_are_received() {
    assert_eq!(received(&hello(7)), Ok(Some(Message::Hello([5; 32], 7))));
    assert_eq!(received(&frame(2, &[0, 0, 0, 0xc1])), Ok(Some(Message::Request(0xc100_0000))));
    assert_eq!(received(&frame(3, b"memory")), Ok(Some(Message::Memory(b"memory".to_vec()))));
    assert_eq!(received(&frame(4, &[28, 0, 0, 0])), Ok(Some(Message::Loaded(28))));
    assert_eq!(received(&[]), Ok(None));
}

#[test]
fn other_messages_are_refused() {
    let refused = |bytes: &[u8]| received(bytes).unwrap_err();
    assert!(refused(&frame(9, b"")).contains("a message of kind 9 with 0 bytes"));
    assert!(refused(&frame(2, b"abc")).contains("a message of kind 2 with 3 bytes"));
    assert!(refused(&[0xff; 8]).contains("a message of 4294967295 bytes; expected at most"));
    assert!(refused(&frame(1, &[5; 32])).contains("a message of kind 1 with 32 bytes"));
    assert!(refused(&hello(7)[..7]).contains("in the middle of a message"));
    assert!(refused(&hello(7)[..20]).contains("in the middle of a message"));
}

#[test]
fn everything_before_a_greeting_is_skipped() {
    let skipped = |bytes: &[u8]| {
        let mut wire = Wire::new(Both(Cursor::new(bytes.to_vec()), Vec::new()));
        wire.skip().map(|found| found.then(|| wire.receive()))
    };
    let greeting = Ok(Some(Ok(Some(Message::Hello([5; 32], 7)))));
    assert_eq!(skipped(&hello(7)), greeting);
    // The rest of a message, a whole one, and the start of a greeting.
    for before in [&[0, 0, 0][..], &frame(4, &[0; 4]), &[1, 0, 0, 0], &[1, 0, 0, 0, 36]] {
        assert_eq!(skipped(&[before, &hello(7)].concat()), greeting, "{before:?}");
    }
    assert_eq!(skipped(&frame(4, &[0; 4])), Ok(None));
    // The end of a message is missing, so that greetings are received as part of it.
    let mut bytes = frame(2, &[0; 100]);
    bytes.truncate(60);
    bytes.extend([hello(6), hello(7), frame(2, &[0, 0, 0, 0xc1])].concat());
    let mut wire = Wire::new(Both(Cursor::new(bytes), Vec::new()));
    assert!(wire.receive().is_err());
    assert_eq!(wire.skip(), Ok(true));
    assert_eq!(wire.receive(), Ok(Some(Message::Hello([5; 32], 6))));
    assert_eq!(wire.receive(), Ok(Some(Message::Hello([5; 32], 7))));
    assert_eq!(wire.receive(), Ok(Some(Message::Request(0xc100_0000))));
    assert_eq!(wire.receive(), Ok(None));
    let unfinished = skipped(&hello(7)[..20]).unwrap().unwrap();
    assert!(unfinished.unwrap_err().contains("in the middle of a message"));
}

#[test]
fn answers_have_a_kind_and_a_size() {
    let sent = |answer: Answer| {
        let both = Both(Cursor::default(), Vec::new());
        let mut wire = Wire::new(both);
        wire.send(&answer).unwrap();
        wire.stream().1.clone()
    };
    assert_eq!(sent(Answer::Read(0xc100_0000, 8)), frame(1, &[0, 0, 0, 0xc1, 8, 0, 0, 0]));
    assert_eq!(sent(Answer::Code(vec![1, 2])), frame(2, &[1, 2]));
    assert_eq!(sent(Answer::None("why".into())), frame(3, b"why"));
    assert_eq!(sent(Answer::Ready(7)), frame(4, &[7, 0, 0, 0]));
}
