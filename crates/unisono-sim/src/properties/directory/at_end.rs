//! Checkers that judge the whole history of a run at its end.

use super::history::History;
use crate::properties::{Facts, Property, Violation, final_result};
use crate::record::{End, Kind, Record};
use std::cell::RefCell;
use std::rc::Rc;

/// A promise about a whole history.
pub(super) trait Promise: Default {
    /// Name of the property.
    const NAME: &'static str;

    /// Checks it. Adds to `checked` how often the promise was tested.
    ///
    /// # Errors
    /// Where it is broken.
    fn check(&self, history: &History, checked: &mut u64) -> Result<(), String>;
}

/// The checker of a promise.
#[derive(Debug, Default)]
pub(super) struct AtEnd<P> {
    promise: P,
    /// What happened. The first checker takes the records for all that share it.
    history: Rc<RefCell<History>>,
    is_other: bool,
    checked: u64,
}

impl<P> AtEnd<P> {
    /// Returns the checker of another promise about the same history.
    pub(super) fn and<Q: Promise>(&self) -> AtEnd<Q> {
        let history = Rc::clone(&self.history);
        AtEnd { promise: Q::default(), history, is_other: true, checked: 0 }
    }
}

impl<P: Promise> Property for AtEnd<P> {
    fn name(&self) -> &'static str {
        P::NAME
    }

    fn interests(&self) -> u64 {
        if self.is_other { 0 } else { Kind::Replica.bit() | Kind::Directory.bit() }
    }

    fn observe(&mut self, record: &Record, _: &Facts) -> Result<(), Violation> {
        self.history.borrow_mut().observe(record);
        Ok(())
    }

    fn finish(&mut self, end: &End, _: &Facts) -> Result<(), Violation> {
        let fault = self.promise.check(&self.history.borrow(), &mut self.checked).err();
        final_result(self, end, fault)
    }

    fn checked(&self) -> u64 {
        self.checked
    }
}
