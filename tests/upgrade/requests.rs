//! Requests that are over, and their late copies.

use dlock_testing::{Reply as _, redis::Value};

use crate::caller::{Caller, shown};

/// What a late copy of a request is answered.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// `SPENT`: an ACQUIRE whose hold has ended.
    Spent,
    /// The reply that the first copy got.
    Same(Value),
}

/// A request that is over.
#[derive(Clone, Debug)]
pub struct Copy {
    pub key: String,
    pub words: Vec<String>,
    pub expected: Expected,
}

impl Copy {
    /// Sends it again; what is wrong with the answer.
    pub fn send(&self, caller: &mut Caller) -> Result<(), String> {
        let answer = caller.call(&self.key, &self.words);
        let is_expected = answer.as_ref().is_some_and(|answer| match &self.expected {
            Expected::Spent => {
                matches!(&answer.value, Value::ServerError(error) if error.code() == "SPENT")
            }
            Expected::Same(value) => answer.value == *value,
        });
        if is_expected {
            return Ok(());
        }
        let expected = match &self.expected {
            Expected::Spent => "SPENT".to_owned(),
            Expected::Same(value) => value.show(),
        };
        let got = shown(answer.as_ref());
        Err(format!("a late copy of {}: {got}, not {expected}", self.words.join(" ")))
    }
}
