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

    /// Adds the field `dlock_<name>` with a text.
    pub fn text(&mut self, name: &CStr, value: &CStr) {
        if self.open {
            // SAFETY: as above; the server copies both C strings.
            unsafe {
                api!(RedisModule_InfoAddFieldCString(self.raw, name.as_ptr(), value.as_ptr()))
            };
        }
    }

    /// Adds the field `dlock_<name>` with several numbers: `one=1,two=2`.
    pub fn numbers(&mut self, name: &str, values: &[(String, u64)]) {
        if !self.open {
            return;
        }
        let name = super::c_string(name);
        // SAFETY: valid during the call of `report`; the server copies the C string. The field is closed below, before
        // another one begins.
        if !ok(unsafe { api!(RedisModule_InfoBeginDictField(self.raw, name.as_ptr())) }) {
            return;
        }
        for (name, value) in values {
            let name = super::c_string(name);
            // SAFETY: as above; within a field that is open.
            unsafe { api!(RedisModule_InfoAddFieldULongLong(self.raw, name.as_ptr(), *value)) };
        }
        // SAFETY: as above; this closes the field that is open.
        unsafe { api!(RedisModule_InfoEndDictField(self.raw)) };
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
