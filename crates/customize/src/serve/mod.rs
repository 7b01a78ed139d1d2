/*!
The server: it answers requests of devices with copies of a path for the values that the objects of one socket have there
(the paper, sections 2.2 to 2.4).

A device runs a kernel with a gate in front of the path's entry. When a program asks for a token of a socket, the daemon
of the device connects and sends the address of the socket. The server asks for the words that the facts of the path are
about, and answers with code that is sealed with the key of the device. It keeps what it made: the same values have the
same code.
*/

pub mod facts;
pub mod kernel;
mod line;
pub mod seal;
pub mod wire;

use std::collections::HashMap;
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use kplan::{Path, PathFact};

use self::facts::observe;
use self::kernel::Kernel;
use self::line::Line;
use self::seal::Seal;
use self::wire::{Answer, Message, Wire};

/// Maximum number of devices at a time.
const MAX_DEVICES: usize = 256;

/// Delay before the next connection is accepted, after one failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Maximum number of answers that are kept.
const MAX_KEPT: usize = 256;

/// Sealed code, or the reason why there is none.
type Made = Result<Vec<u8>, String>;

/// Answers requests for one path of one kernel.
pub struct Server<'k> {
    kernel: &'k Kernel<'k>,
    seal: Seal,
    /// Sealed code, or the reason why there is none, by the facts.
    made: Mutex<HashMap<Vec<PathFact>, Made>>,
}

impl<'k> Server<'k> {
    /// Creates a server for devices with this key.
    pub fn new(kernel: &'k Kernel<'k>, seal: Seal) -> Server<'k> {
        Server { kernel, seal, made: Mutex::default() }
    }

    /// Answers the devices that connect, for ever.
    pub fn listen(&self, listener: &TcpListener) {
        let devices = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for stream in listener.incoming() {
                let failed = match stream {
                    Ok(_) if devices.load(Relaxed) >= MAX_DEVICES => "too many devices".to_owned(),
                    Ok(stream) => {
                        devices.fetch_add(1, Relaxed);
                        let devices = &devices;
                        let serve = move || {
                            self.device(&stream);
                            devices.fetch_sub(1, Relaxed);
                        };
                        match std::thread::Builder::new().spawn_scoped(scope, serve) {
                            Ok(_) => continue,
                            Err(error) => {
                                devices.fetch_sub(1, Relaxed);
                                error.to_string()
                            }
                        }
                    }
                    Err(error) => error.to_string(),
                };
                eprintln!("customize: a connection failed: {failed}");
                std::thread::sleep(PAUSE);
            }
        });
    }

    fn device(&self, stream: &TcpStream) {
        let name = stream.peer_addr().map_or_else(|_| "a device".to_owned(), |address| address.to_string());
        match self.session(stream, &name) {
            Ok(()) => eprintln!("customize: {name}: closed"),
            Err(problem) => eprintln!("customize: {name}: {problem}"),
        }
    }

    /// Answers the requests of one device until it closes the connection. After an error, the device has to begin anew.
    fn session(&self, stream: &TcpStream, name: &str) -> Result<(), String> {
        let line = Line::new(stream).map_err(|error| format!("cannot set up the connection: {error}"))?;
        eprintln!("customize: {name}: connected");
        let mut wire = Wire::new(line);
        loop {
            wire.stream().wait_endlessly();
            if !wire.skip()? {
                return Ok(());
            }
            match self.requests(&mut wire, name) {
                Ok(()) => return Ok(()),
                Err(problem) => eprintln!("customize: {name}: {problem}"),
            }
        }
    }

    /// Answers the requests of a device that begins with a greeting, until it closes the connection.
    ///
    /// # Errors
    /// If the connection fails, or a message is none of a device, or comes too late.
    fn requests(&self, wire: &mut Wire<Line<'_>>, name: &str) -> Result<(), String> {
        let mut is_known = false;
        loop {
            wire.stream().wait_for_message();
            let Some(message) = wire.receive()? else { return Ok(()) };
            match message {
                Message::Hello(build, number) => {
                    is_known = build == self.kernel.build;
                    wire.send(&Answer::Ready(number))?;
                }
                Message::Request(_) if !is_known => {
                    wire.send(&Answer::None("this server has another kernel".into()))?;
                    eprintln!("customize: {name}: runs another kernel");
                }
                Message::Request(socket) => {
                    let start = Instant::now();
                    let (answer, what) = match self.answer(wire, socket)? {
                        Ok(code) => {
                            let what = format!("{} bytes", code.len());
                            (Answer::Code(code), what)
                        }
                        Err(why) => (Answer::None(why.clone()), why),
                    };
                    wire.send(&answer)?;
                    eprintln!("customize: {name}: {what} in {} ms", start.elapsed().as_millis());
                }
                Message::Loaded(0) => {}
                Message::Loaded(error) => {
                    let why = std::io::Error::from_raw_os_error(error as i32);
                    eprintln!("customize: {name}: the device did not load the code: {why}");
                }
                Message::Memory(_) => return Err("sent memory that nobody asked for".into()),
            }
        }
    }

    /// Returns the sealed code for a socket, or the reason why there is none.
    ///
    /// # Errors
    /// If the connection fails.
    fn answer(&self, wire: &mut Wire<Line<'_>>, socket: u32) -> Result<Made, String> {
        let path = match observe(&self.kernel.path, &self.kernel.symbols, socket, |address, size| {
            wire.send(&Answer::Read(address, size))?;
            match wire.receive()? {
                Some(Message::Memory(bytes)) if bytes.len() == size as usize => Ok(Some(bytes)),
                Some(Message::Memory(_)) => Ok(None),
                Some(message) => {
                    if matches!(message, Message::Hello(..)) {
                        wire.take_back(message);
                    }
                    Err("sent no memory".to_owned())
                }
                None => Err("closed the connection in the middle of a request".to_owned()),
            }
        })? {
            Ok(path) => path,
            Err(why) => return Ok(Err(why)),
        };
        if let Some(known) = self.known(&path) {
            return Ok(known);
        }
        let made = self.kernel.copy(&path).map(|code| self.seal.seal(self.kernel, &code)).and_then(|code| {
            let size = code.len();
            let fits = size <= wire::MAX as usize;
            fits.then_some(code)
                .ok_or_else(|| format!("the path has {size} bytes; a device takes {}", wire::MAX))
        });
        let mut kept = self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if kept.len() >= MAX_KEPT {
            kept.retain(|_, made| made.is_ok());
        }
        if kept.len() >= MAX_KEPT {
            kept.clear();
        }
        kept.insert(path.facts, made.clone());
        Ok(made)
    }

    fn known(&self, path: &Path) -> Option<Made> {
        self.made.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).get(&path.facts).cloned()
    }
}
