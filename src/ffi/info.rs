//! The module's part of INFO.

use std::ffi::{CStr, c_int};

use redis_module::raw;

use super::codes::ok;
use super::guard;

/// Writes sections and fields. Fields of a section that was not requested are discarded.
pub struct InfoWriter {
    raw: *mut raw::RedisModuleInfoCtx,
    open: bool,
}

impl InfoWriter {
    /// Begins the section `dlock_<name>`. False if it was not requested: its fields need not be computed.
    pub fn section(&mut self, name: &CStr) -> bool {
        // SAFETY: valid during the call of `report`, which lends this writer out; C string.
        self.open = ok(unsafe { api!(RedisModule_InfoAddSection(self.raw, name.as_ptr())) });
        self.open
    }

    /// Adds the field `dlock_<name>`.
    pub fn number(&mut self, name: &CStr, value: u64) {
        if self.open {
            // SAFETY: as above.
            unsafe { api!(RedisModule_InfoAddFieldULongLong(self.raw, name.as_ptr(), value)) };
        }
    }
}

/// Registers the report. Only while the module is loading.
pub(super) fn register(ctx: super::Ctx<'_>) -> Result<(), String> {
    // SAFETY: valid context, and a callback with the signature of the server.
    if ok(unsafe { api!(RedisModule_RegisterInfoFunc(ctx.as_ptr(), Some(report))) }) {
        Ok(())
    } else {
        Err("the server refuses the INFO section".to_owned())
    }
}

unsafe extern "C" fn report(raw: *mut raw::RedisModuleInfoCtx, crash: c_int) {
    guard::call("INFO", (), || {
        crate::info::write(&mut InfoWriter { raw, open: false }, crash != 0);
    });
}
