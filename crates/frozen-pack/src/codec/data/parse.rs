//! Encoding data as the symbols of its pages.
//!
//! The repetitions are chosen by a shortest path through the page, weighted by the cost of their symbols. The costs
//! come from the distributions for the choice of the previous round; the first round guesses them.

use rustc_hash::FxHashMap;

use super::{DICTIONARY, DISTANCE, DataModel, MAX_LENGTH, MIN_LENGTH, State};
use crate::codec::code::values::group;
use crate::codec::entropy::tables::Tables;
use crate::codec::symbols::Context;

/// Maximum number of earlier places that are tried for a repetition.
const CHAIN: usize = 64;

/// Number of places in a word, by which the costs of forms differ ([`State::form`]).
const PLACES: usize = 4;

/// The costs of symbols, in bits.
pub struct Costs<'a> {
    /// The distributions of the previous round, if any.
    tables: Option<&'a Tables>,
    /// The costs of tokens, by context.
    tokens: FxHashMap<Context, [f32; 256]>,
    /// The costs of the forms of repetitions, by token and place in a word.
    forms: Vec<Option<Box<[f32; 256]>>>,
}

impl<'a> Costs<'a> {
    /// Uses these distributions, or a guess.
    pub fn new(tables: Option<&'a Tables>) -> Costs<'a> {
        Costs { tables, tokens: FxHashMap::default(), forms: vec![None; 256 * PLACES] }
    }

    fn token(&mut self, context: Context) -> [f32; 256] {
        let Some(tables) = self.tables else {
            let mut guess = [5.0; 256];
            guess[0] = 0.5;
            return guess;
        };
        *self.tokens.entry(context).or_insert_with(|| tables.costs(context))
    }

    fn byte(&self, context: Context, byte: u8) -> f32 {
        self.tables.map_or(6.0, |tables| tables.cost(context, byte))
    }

    fn form(&mut self, context: Context, form: u8) -> f32 {
        let Some(tables) = self.tables else { return 5.0 };
        let [token, place] = context.values.map(usize::from);
        self.forms[PLACES * token + place].get_or_insert_with(|| Box::new(tables.costs(context)))
            [usize::from(form)]
    }
}

/// The source of a repetition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum From {
    Back(u32),
    Dictionary(u32),
}

/// The cheapest way to a place of the page.
#[derive(Clone, Copy)]
struct Reached {
    cost: f32,
    from: Option<From>,
    length: usize,
    state: State,
}

/// Returns the symbols of a page, as input of [`crate::codec::symbols::Recorder`].
pub fn page(model: &DataModel, finder: &Finder, page: &[u8], costs: &mut Costs<'_>) -> Vec<u32> {
    let nothing = Reached { cost: f32::INFINITY, from: None, length: 0, state: State::default() };
    let mut reached = vec![nothing; page.len() + 1];
    reached[0].cost = 0.0;
    let own = Finder::new(page);
    for at in 0..page.len() {
        let Reached { cost, state, .. } = reached[at];
        let token = costs.token(state.token(page, at));
        let mut reach = |length: usize, cost: f32, from: Option<From>, state: State| {
            if cost < reached[at + length].cost {
                reached[at + length] = Reached { cost, from, length, state };
            }
        };
        let byte = token[0] + costs.byte(state.byte(page, at), page[at]);
        reach(1, cost + byte, None, state.behind_byte());

        let most = MAX_LENGTH.min(page.len() - at);
        let mut tried = |longest: usize, from: From, known: usize| {
            let (form, bits) = form(&state, from);
            let next = state.behind_repetition(match from {
                From::Back(distance) => Some(distance),
                From::Dictionary(_) => None,
            });
            for length in MIN_LENGTH.max(known)..=longest {
                let symbol = (length - 1) as u8;
                let cost = cost
                    + token[usize::from(symbol)]
                    + costs.form(state.form(at, symbol), form)
                    + bits as f32;
                reach(length, cost, Some(from), next);
            }
        };
        for distance in state.distances {
            if distance != 0 && distance as usize <= at {
                tried(same(&page[at - distance as usize..], &page[at..], most), From::Back(distance), 0);
            }
        }
        // Among more distant places, only longer repetitions are useful.
        let mut known = 0;
        for start in own.before(page, at) {
            let length = longer(&page[start..], &page[at..], known, most);
            if length > known {
                tried(length, From::Back((at - start) as u32), known + 1);
                known = length;
            }
        }
        let mut known = 0;
        for start in finder.at(page, at) {
            let length = longer(&model.dictionary[start..], &page[at..], known, most);
            if length > known {
                tried(length, From::Dictionary(start as u32), known + 1);
                known = length;
            }
        }
    }
    encode(page, &reached)
}

/// Returns the number of equal bytes, or any number up to `known` if it is not larger.
fn longer(one: &[u8], other: &[u8], known: usize, most: usize) -> usize {
    if known >= most || one.get(known) != other.get(known) { 0 } else { same(one, other, most) }
}

/// Returns the number of equal bytes.
fn same(one: &[u8], other: &[u8], most: usize) -> usize {
    one.iter().zip(other).take(most).take_while(|(one, other)| one == other).count()
}

/// Returns the form of a repetition, and the number of bits after it.
fn form(state: &State, from: From) -> (u8, u32) {
    match from {
        From::Back(distance) => match state.distances.iter().position(|&known| known == distance) {
            Some(place) => (place as u8, 0),
            None => {
                let (form, bits) = group(distance - 1);
                (DISTANCE + form, bits)
            }
        },
        From::Dictionary(offset) => {
            let (form, bits) = group(offset);
            (DICTIONARY + form, bits)
        }
    }
}

/// Returns the symbols of a page along the cheapest path.
fn encode(page: &[u8], reached: &[Reached]) -> Vec<u32> {
    let mut path = Vec::new();
    let mut at = page.len();
    while at > 0 {
        path.push(at);
        at -= reached[at].length;
    }
    let mut out = Vec::new();
    for &end in path.iter().rev() {
        let Reached { from, length, .. } = reached[end];
        let start = end - length;
        let Some(from) = from else {
            out.extend([0, u32::from(page[start])]);
            continue;
        };
        let (form, bits) = form(&reached[start].state, from);
        out.extend([length as u32 - 1, u32::from(form)]);
        if bits > 0 {
            let index = match from {
                From::Back(distance) => distance - 1,
                From::Dictionary(offset) => offset,
            };
            out.push(index & ((1 << bits) - 1));
        }
    }
    out
}

/// Finds places by their first two or three bytes.
pub struct Finder {
    /// The last place with each hash.
    last: Vec<u32>,
    /// For each place, the previous one with the same hash.
    previous: Vec<u32>,
}

const NONE: u32 = u32::MAX;

fn hash(bytes: &[u8]) -> Option<usize> {
    let pair = bytes.first_chunk::<2>()?;
    Some(usize::from(u16::from_le_bytes(*pair)))
}

impl Finder {
    /// Indexes all places.
    pub fn new(bytes: &[u8]) -> Finder {
        let mut finder = Finder { last: vec![NONE; 1 << 16], previous: vec![NONE; bytes.len()] };
        for at in 0..bytes.len() {
            if let Some(hash) = hash(&bytes[at..]) {
                finder.previous[at] = finder.last[hash];
                finder.last[hash] = at as u32;
            }
        }
        finder
    }

    fn chain(&self, first: u32) -> impl Iterator<Item = usize> {
        let next = |at: &u32| Some(self.previous[*at as usize]).filter(|at| *at != NONE);
        std::iter::successors(Some(first).filter(|at| *at != NONE), next).map(|at| at as usize)
    }

    /// Earlier places of the page itself.
    fn before<'f>(&'f self, page: &[u8], at: usize) -> impl Iterator<Item = usize> + use<'f> {
        let first = hash(&page[at..]).map_or(NONE, |_| self.previous[at]);
        self.chain(first).take(CHAIN)
    }

    /// Places of the dictionary.
    fn at<'f>(&'f self, page: &[u8], at: usize) -> impl Iterator<Item = usize> + use<'f> {
        self.chain(hash(&page[at..]).map_or(NONE, |hash| self.last[hash])).take(4 * CHAIN)
    }
}
