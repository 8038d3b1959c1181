//! Settings: CONFIG GET, SET and REWRITE, and the arguments of `loadmodule`.

use std::ffi::{c_char, c_int, c_longlong, c_void};

use redis_module::raw;

use crate::config::{Kind, SETTINGS, Setting};

use super::args::Args;
use super::codes::{OK, int, ok};
use super::ctx::Ctx;
use super::guard;

/// Registers all settings. An argument of `loadmodule` replaces the default, so that the configuration file overrides
/// it and CONFIG REWRITE writes no line for it.
pub(super) fn register(ctx: Ctx<'_>, args: &Args<'_>) -> Result<(), String> {
    let chosen = chosen(args)?;
    for (setting, chosen) in SETTINGS.iter().zip(chosen) {
        let name = super::c_string(setting.name);
        let default = chosen.unwrap_or(setting.default);
        let private_data = std::ptr::from_ref::<Setting>(setting).cast_mut().cast();
        // SAFETY: valid context; the server copies the name; the private data is a static that the callbacks only
        // read.
        let registered = unsafe {
            match setting.kind {
                Kind::Number => api!(RedisModule_RegisterNumericConfig(
                    ctx.as_ptr(),
                    name.as_ptr(),
                    default,
                    raw::REDISMODULE_CONFIG_DEFAULT,
                    setting.min,
                    setting.max,
                    Some(get_number),
                    Some(set_number),
                    None,
                    private_data,
                )),
                Kind::Switch => api!(RedisModule_RegisterBoolConfig(
                    ctx.as_ptr(),
                    name.as_ptr(),
                    int(u32::from(default != 0)),
                    raw::REDISMODULE_CONFIG_DEFAULT,
                    Some(get_switch),
                    Some(set_switch),
                    None,
                    private_data,
                )),
            }
        };
        if !ok(registered) {
            return Err(format!("the server refuses the setting {}", setting.name));
        }
    }
    // SAFETY: valid context.
    if ok(unsafe { api!(RedisModule_LoadConfigs(ctx.as_ptr())) }) {
        Ok(())
    } else {
        Err("a dlock setting in the configuration is not valid".to_owned())
    }
}

/// The values in the arguments of `loadmodule`, in the order of the settings.
fn chosen(args: &Args<'_>) -> Result<Vec<Option<i64>>, String> {
    args.with_slices(chosen_in)
}

fn chosen_in(args: &[&[u8]]) -> Result<Vec<Option<i64>>, String> {
    let mut chosen = vec![None; SETTINGS.len()];
    for pair in args.chunks(2) {
        let name = String::from_utf8_lossy(pair.first().copied().unwrap_or_default());
        let short = name.strip_prefix("dlock.").unwrap_or(&name);
        let found = SETTINGS
            .iter()
            .zip(&mut chosen)
            .find(|(setting, _)| setting.name.eq_ignore_ascii_case(short));
        let Some((setting, slot)) = found else {
            return Err(format!("unknown setting '{name}'"));
        };
        let Some(text) = pair.get(1) else {
            return Err(format!("setting '{name}' needs a value"));
        };
        if slot.is_some() {
            return Err(format!("setting '{name}' given twice"));
        }
        *slot = Some(value_of(setting, &String::from_utf8_lossy(text))?);
    }
    Ok(chosen)
}

fn value_of(setting: &Setting, text: &str) -> Result<i64, String> {
    let name = setting.name;
    match setting.kind {
        Kind::Number => text
            .parse()
            .ok()
            .filter(|value| (setting.min..=setting.max).contains(value))
            .ok_or_else(|| {
                let (min, max) = (setting.min, setting.max);
                format!("{name} must be an integer between {min} and {max}, not '{text}'")
            }),
        Kind::Switch if text.eq_ignore_ascii_case("yes") => Ok(1),
        Kind::Switch if text.eq_ignore_ascii_case("no") => Ok(0),
        Kind::Switch => Err(format!("{name} must be yes or no, not '{text}'")),
    }
}

/// # Safety
/// `private_data` is what `register` passed.
unsafe fn setting(private_data: *mut c_void) -> &'static Setting {
    // SAFETY: by the contract, a static.
    unsafe { &*private_data.cast::<Setting>().cast_const() }
}

unsafe extern "C" fn get_number(_name: *const c_char, private_data: *mut c_void) -> c_longlong {
    guard::call("reading a setting", 0, || {
        // SAFETY: the server passes what was registered.
        unsafe { setting(private_data) }.get()
    })
}

unsafe extern "C" fn set_number(
    _name: *const c_char,
    value: c_longlong,
    private_data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guard::call("changing a setting", (), || {
        // SAFETY: the server passes what was registered.
        unsafe { setting(private_data) }.set(value);
    });
    OK
}

unsafe extern "C" fn get_switch(_name: *const c_char, private_data: *mut c_void) -> c_int {
    guard::call("reading a setting", 0, || {
        // SAFETY: the server passes what was registered.
        c_int::from(unsafe { setting(private_data) }.get() != 0)
    })
}

unsafe extern "C" fn set_switch(
    _name: *const c_char,
    value: c_int,
    private_data: *mut c_void,
    _error: *mut *mut raw::RedisModuleString,
) -> c_int {
    guard::call("changing a setting", (), || {
        // SAFETY: the server passes what was registered.
        unsafe { setting(private_data) }.set(i64::from(value != 0));
    });
    OK
}
